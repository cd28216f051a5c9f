/** The network `local`: the embedded chain of host/local-network as a network of payments. */
import type { Logger } from 'pino';
import type { Address } from 'viem';
import { startLocalNetwork } from '../../local-network/index.ts';
import type { Config } from '../../shared/config.ts';
import { localEvmChain, localTempoChain, walletChain, X402_NETWORKS } from './chains.ts';
import { eachOnce, tempoClient, x402Client } from './clients.ts';
import type { NetworkKeys } from './keys.ts';
import type { Network } from './types.ts';

export interface LocalPaymentNetwork extends Network {
  /** Process id of the chain; undefined while it is being restarted. */
  readonly pid: number | undefined;
}

/** @throws Problem `start_failed` when the chain or its gateway does not start */
export async function openLocal(options: {
  config: Config['payments'];
  dataFolder: string;
  keys: NetworkKeys;
  log: Logger;
}): Promise<LocalPaymentNetwork> {
  const { config, dataFolder, keys, log } = options;
  const { facilitator, settler, feePayer, operator } = keys.accounts;
  const local = await startLocalNetwork({
    chainId: config.localChainId,
    port: config.localPort,
    dataFolder,
    wallets: keys.wallets,
    senders: [facilitator, settler, feePayer],
    log,
  });
  const { rpcUrl } = local;
  const tempo = localTempoChain(local.chainId, rpcUrl);
  const evm = localEvmChain(local.chainId, rpcUrl);
  const recipient = (config.recipient || operator.address) as Address;
  return {
    name: 'local',
    testMoney: true,
    mpp: {
      chain: tempo,
      rpcUrl,
      currency: local.token,
      decimals: 6,
      recipient,
      voucherSignatures: 'ecdsa',
      getClient: eachOnce((account) => tempoClient(tempo, account)),
    },
    x402: {
      ...local.x402,
      chain: evm,
      rpcUrl,
      // A wallet only has to sign, and does so for the chain that it is on.
      walletChain: walletChain(local.x402.network === `eip155:${evm.id}` ? evm : X402_NETWORKS['base-sepolia'].chain),
      decimals: 6,
      recipient: (config.x402.recipient || recipient) as Address,
      getClient: eachOnce((account) => x402Client(evm, account)),
    },
    hostAccounts: keys.accounts,
    wallets: keys.wallets,
    get pid() {
      return local.pid;
    },
    healthy: () => local.healthy(),
    close: () => local.close(),
  };
}
