/**
 * The local network: an embedded Tempo chain with its contracts and funded wallets, behind an RPC gateway on loopback,
 * for trying and testing. It knows nothing of payments: whoever pays or is paid here speaks to `rpcUrl`.
 * Writes `<data>/local-network.json` (0600), which says all that a client needs to pay here.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Logger } from 'pino';
import type { Address, Hex } from 'viem';
import { writePrivateFile } from '../shared/private-file.ts';
import { findConfinement } from './anvil.ts';
import { PATH_USD_ADDRESS, USDC_ADDRESS } from './contracts/index.ts';
import { EmbeddedChain } from './embedded-chain.ts';
import { startGateway } from './gateway.ts';
import { type Funded, setUpChain, signedChainId } from './genesis.ts';

/** Longest path of a unix socket on Linux, bytes. */
const MAX_SOCKET_PATH = 107;

/** A test wallet of the local network. The key is test money's, yet it stays in files of mode 0600. */
export interface TestWallet {
  address: Address;
  privateKey: Hex;
}

/** The content of `<data>/local-network.json`. */
export interface LocalNetworkFile {
  rpcUrl: string;
  chainId: number;
  /** TIP-20 token of MPP payments. */
  token: Address;
  /** `network`: the one that payments are signed for, which is not the chain that they are on. */
  x402: { network: `eip155:${number}`; token: Address; name: string; version: string };
  wallets: TestWallet[];
}

export interface LocalNetwork extends LocalNetworkFile {
  /** Process id of the chain; undefined while it is being restarted. For tests and the operator's view. */
  readonly pid: number | undefined;
  /** `detail` is one line for the operator. */
  healthy(): Promise<{ ok: boolean; detail: string }>;
  /** Saves and stops the chain. Idempotent. */
  close(): Promise<void>;
}

export interface LocalNetworkOptions {
  chainId: number;
  /** Port of the RPC gateway on loopback; 0: any that is free. */
  port: number;
  dataFolder: string;
  wallets: TestWallet[];
  /** As in `Funded`. */
  senders: Funded['senders'];
  log: Logger;
}

/** @throws Problem `start_failed` when the chain or its gateway does not start */
export async function startLocalNetwork(options: LocalNetworkOptions): Promise<LocalNetwork> {
  const { chainId, port, log } = options;
  const dataFolder = resolve(options.dataFolder);
  const folder = join(dataFolder, 'chain', String(chainId));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { socketPath, removeSocketFolder } = await findSocketPath(folder);
  const confinement = findConfinement();
  if (!confinement.portHidden) {
    log.warn('this system cannot hide the local chain: other users of this machine may change test balances');
  }
  const chain = await EmbeddedChain.start({
    chainId,
    folder,
    socketPath,
    confinement,
    setUp: (rpc) => setUpChain(rpc, options),
    log,
  });
  const signedFor = await signedChainId(chain, chainId);
  const gateway = await startGateway(chain, port).catch(async (error) => {
    await chain.close();
    throw error;
  });
  const file: LocalNetworkFile = {
    rpcUrl: gateway.url,
    chainId,
    token: PATH_USD_ADDRESS,
    x402: { network: `eip155:${signedFor}`, token: USDC_ADDRESS, name: 'USDC', version: '2' },
    wallets: options.wallets,
  };
  await writePrivateFile(join(dataFolder, 'local-network.json'), `${JSON.stringify(file, null, 2)}\n`);
  log.info({ rpcUrl: gateway.url, chainId }, 'local payment network is up');
  return {
    ...file,
    get pid() {
      return chain.pid;
    },
    async healthy() {
      const answer = await chain.call('eth_blockNumber', []).catch(() => undefined);
      if (!answer || 'error' in answer) return { ok: false, detail: 'the local chain is starting again' };
      return { ok: true, detail: `local test network, chain ${chainId}, block ${Number(answer.result as Hex)}` };
    },
    async close() {
      await gateway.close();
      await chain.close();
      await removeSocketFolder();
    },
  };
}

/** In the data folder, or in a private temporary folder where that path is too long for a socket. */
async function findSocketPath(folder: string): Promise<{ socketPath: string; removeSocketFolder(): Promise<void> }> {
  const socketPath = join(folder, 'anvil.sock');
  if (Buffer.byteLength(socketPath) <= MAX_SOCKET_PATH)
    return { socketPath, removeSocketFolder: async () => undefined };
  const temporary = await mkdtemp(join(tmpdir(), 'turnpike-'));
  return {
    socketPath: join(temporary, 'anvil.sock'),
    removeSocketFolder: () => rm(temporary, { recursive: true, force: true }),
  };
}
