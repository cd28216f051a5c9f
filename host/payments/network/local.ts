/**
 * The network `local`: an embedded Tempo chain with funded wallets, behind its RPC gateway, for trying and testing.
 * Writes `<data>/local-network.json` (0600), which says all that a client needs to pay here.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Logger } from 'pino';
import type { Address, Hex } from 'viem';
import { findConfinement } from '../../local-network/anvil.ts';
import { PATH_USD_ADDRESS, USDC_ADDRESS } from '../../local-network/contracts/index.ts';
import { EmbeddedChain } from '../../local-network/embedded-chain.ts';
import { startGateway } from '../../local-network/gateway.ts';
import { setUpChain } from '../../local-network/genesis.ts';
import type { Config } from '../../shared/config.ts';
import { writePrivateFile } from '../../shared/private-file.ts';
import { localEvmChain, localTempoChain } from './chains.ts';
import { tempoClient, x402Client } from './clients.ts';
import type { NetworkKeys } from './keys.ts';
import type { Network, TestWallet } from './types.ts';

/** Longest path of a unix socket on Linux, bytes. */
const MAX_SOCKET_PATH = 107;

/** The content of `<data>/local-network.json`. */
export interface LocalNetworkFile {
  rpcUrl: string;
  chainId: number;
  /** TIP-20 token of MPP payments. */
  token: Address;
  x402: { network: `eip155:${number}`; token: Address; name: string; version: string };
  wallets: TestWallet[];
}

export interface LocalNetwork extends Network {
  /** Process id of the chain; undefined while it is being restarted. For tests and the operator's view. */
  readonly pid: number | undefined;
}

/** @throws Problem `start_failed` when the chain or its gateway does not start */
export async function startLocalNetwork(options: {
  config: Config['payments'];
  dataFolder: string;
  keys: NetworkKeys;
  log: Logger;
}): Promise<LocalNetwork> {
  const { config, keys, log } = options;
  const dataFolder = resolve(options.dataFolder);
  const folder = join(dataFolder, 'chain', String(config.localChainId));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { socketPath, removeSocketFolder } = await findSocketPath(folder);
  const confinement = findConfinement();
  if (!confinement.portHidden) {
    log.warn('this system cannot hide the local chain: other users of this machine may change test balances');
  }
  const chain = await EmbeddedChain.start({
    chainId: config.localChainId,
    folder,
    socketPath,
    confinement,
    setUp: (rpc) => setUpChain(rpc, keys),
    log,
  });
  const gateway = await startGateway(chain, config.localPort).catch(async (error) => {
    await chain.close();
    throw error;
  });
  const file: LocalNetworkFile = {
    rpcUrl: gateway.url,
    chainId: config.localChainId,
    token: PATH_USD_ADDRESS,
    x402: { network: `eip155:${config.localChainId}`, token: USDC_ADDRESS, name: 'USDC', version: '2' },
    wallets: keys.wallets,
  };
  await writePrivateFile(join(dataFolder, 'local-network.json'), `${JSON.stringify(file, null, 2)}\n`);
  log.info({ rpcUrl: gateway.url, chainId: config.localChainId }, 'local payment network is up');

  const tempo = localTempoChain(config.localChainId, gateway.url);
  const evm = localEvmChain(config.localChainId, gateway.url);
  const recipient = (config.recipient || keys.accounts.operator.address) as Address;
  return {
    name: 'local',
    testMoney: true,
    mpp: {
      chain: tempo,
      rpcUrl: gateway.url,
      currency: PATH_USD_ADDRESS,
      decimals: 6,
      recipient,
      voucherSignatures: 'ecdsa',
      getClient: (account) => tempoClient(tempo, account),
    },
    x402: {
      ...file.x402,
      chain: evm,
      rpcUrl: gateway.url,
      decimals: 6,
      recipient: (config.x402.recipient || recipient) as Address,
      getClient: (account) => x402Client(evm, account),
    },
    hostAccounts: keys.accounts,
    wallets: keys.wallets,
    get pid() {
      return chain.pid;
    },
    async healthy() {
      const answer = await chain.call('eth_blockNumber', []).catch(() => undefined);
      if (!answer || 'error' in answer) return { ok: false, detail: 'the local chain is starting again' };
      return {
        ok: true,
        detail: `local test network, chain ${config.localChainId}, block ${Number(answer.result as Hex)}`,
      };
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
