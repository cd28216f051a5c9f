/**
 * Which wallet pays and owns: the one that was named; else, on a local host with test money, its first test wallet;
 * else the one in the user's configuration folder.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { resolve } from 'node:path';
import type { privateKeyToAccount } from 'viem/accounts';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { isLoopback, type LocalHost } from './local-host.ts';
import { defaultWalletPath, parsePrivateKey, readWallet, type StoredWallet } from './wallet-file.ts';

export interface ChosenWallet {
  account: ReturnType<typeof privateKeyToAccount>;
  /** Where it comes from, for people. */
  source: string;
}

/**
 * @param named `--wallet`: a file, or `test:<n>` for a test wallet of the local host
 * @param hostUrl the host that is talked to
 * @throws Failure `usage` when there is none, or the named one is unusable
 */
export async function chooseWallet(
  terminal: Terminal,
  named: string | undefined,
  localHost: LocalHost | undefined,
  hostUrl: URL,
): Promise<ChosenWallet> {
  const { env } = terminal;
  const test = /^test:(\d+)$/.exec(named ?? '');
  if (test) return testWallet(localHost, Number(test[1]));
  if (named !== undefined) return fromFile(resolve(terminal.cwd, notAKey(named, '--wallet')));
  if (env.TURNPIKE_PRIVATE_KEY) {
    return chosen(await parsePrivateKey(env.TURNPIKE_PRIVATE_KEY, 'TURNPIKE_PRIVATE_KEY'), 'TURNPIKE_PRIVATE_KEY');
  }
  if (env.TURNPIKE_WALLET) return fromFile(resolve(terminal.cwd, notAKey(env.TURNPIKE_WALLET, 'TURNPIKE_WALLET')));
  if (localHost) return testWallet(localHost, 0);
  const path = defaultWalletPath(terminal);
  const wallet = await readWallet(path);
  if (wallet) return chosen(wallet, path);
  if (isLoopback(hostUrl) && !(await isListening(hostUrl)))
    throw new Failure(
      'unreachable',
      `No host answers at ${hostUrl.origin}, and there is no wallet yet. Start a host in another terminal (npm start), and run this again once it serves: it has test wallets. For a host elsewhere: --host-url, and turnpike wallet create, turnpike wallet import, or TURNPIKE_PRIVATE_KEY.`,
    );
  const testMoney = isLoopback(hostUrl)
    ? ` The host at ${hostUrl.origin} has no test wallets that can be read here.`
    : '';
  throw new Failure(
    'usage',
    `There is no wallet yet: run turnpike wallet create, or turnpike wallet import, or set TURNPIKE_PRIVATE_KEY.${testMoney}`,
  );
}

/** Whether something takes connections there. */
async function isListening({ hostname, port, protocol }: URL): Promise<boolean> {
  const socket = connect(Number(port) || (protocol === 'https:' ? 443 : 80), hostname.replace(/^\[|\]$/g, ''));
  socket.setTimeout(5_000, () => socket.destroy(new Error('silent')));
  return await once(socket, 'connect')
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy());
}

async function testWallet(localHost: LocalHost | undefined, index: number): Promise<ChosenWallet> {
  const wallet = localHost?.network.wallets[index];
  if (!localHost || !wallet) {
    throw new Failure('usage', `There is no test wallet ${index}: the host is not a local one, or has fewer.`);
  }
  return chosen(
    await parsePrivateKey(wallet.privateKey, 'local-network.json'),
    `test wallet ${index} of ${localHost.dataFolder}`,
  );
}

/** A key in the place of a file's name would be shown with the error that the file is missing. */
function notAKey(path: string, where: string): string {
  if (!/^(0x)?[0-9a-f]{64}$/i.test(path)) return path;
  throw new Failure('usage', `${where} takes the name of a file, not a key; set TURNPIKE_PRIVATE_KEY to the key.`);
}

async function fromFile(path: string): Promise<ChosenWallet> {
  const wallet = await readWallet(path);
  if (!wallet) throw new Failure('usage', `There is no wallet at ${path}; turnpike wallet create makes one.`);
  return chosen(wallet, path);
}

async function chosen(wallet: StoredWallet, source: string): Promise<ChosenWallet> {
  const { privateKeyToAccount } = await import('viem/accounts');
  return { account: privateKeyToAccount(wallet.privateKey), source };
}
