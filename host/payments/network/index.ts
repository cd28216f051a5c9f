/**
 * Opens the payment networks that the configuration names: the embedded chain, Tempo, Base, and others beside them.
 * Nothing is started for public networks; they are reached by RPC.
 */
import type { Logger } from 'pino';
import { erc20Abi, parseAbi } from 'viem';
import { type KeyFiles, keyFilesIn } from '../../registry/key-file.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Config } from '../../shared/config.ts';
import { usesTestMoney } from '../../shared/config.ts';
import { Problem } from '../../shared/problem.ts';
import { useLibsecp256k1 } from '../libsecp256k1.ts';
import { chainHealth, rpcOf } from './chain-health.ts';
import { walletChain, X402_NETWORKS } from './chains.ts';
import { eachOnce, tempoClient, x402Client } from './clients.ts';
import { loadNetworkKeys, type NetworkKeys } from './keys.ts';
import { type LocalPaymentNetwork, openLocal } from './local.ts';
import {
  assertDistinct,
  type NamedNetwork,
  type NamedNetworks,
  type NamedX402Network,
  namedNetworks,
} from './named.ts';
import {
  type MppNetwork,
  mppNetworks,
  type Network,
  type SolanaNetwork,
  type X402Network,
  x402Networks,
} from './types.ts';

export type { HostAccounts, MppNetwork, Network, NetworkHealth, TestWallet, X402Client, X402Network } from './types.ts';
export { mppNetworks, x402Networks } from './types.ts';

const VERSION_ABI = parseAbi(['function version() view returns (string)']);

export interface NetworkOptions {
  config: Config;
  dataFolder: string;
  /** Default: of the data folder. */
  keyFiles?: KeyFiles;
  clock: Clock;
  log: Logger;
}

/** @throws Problem `invalid_config` for settings that cannot work, `start_failed` when the local chain does not start */
export async function openNetwork({ config, dataFolder, keyFiles, log }: NetworkOptions): Promise<Network> {
  useLibsecp256k1();
  const payments = config.payments;
  const keys = await loadNetworkKeys(dataFolder, keyFiles);
  if (payments.network === 'local' && payments.x402.network !== '') {
    throw new Problem(
      'invalid_config',
      'payments.x402.network must be empty with payments.network = local, which has its own; payments.also adds others.',
    );
  }
  const named = namedNetworks(payments);
  const mpps = named.mpp.map(openTempo);
  const x402s = await Promise.all(named.x402.map((one) => openX402(one, log)));
  const solana = await openSolana({ payments, named, keys, keyFiles: keyFiles ?? keyFilesIn(dataFolder), log });
  const local = payments.network === 'local' ? await openLocal({ config: payments, dataFolder, keys, log }) : undefined;
  try {
    return assembled({ payments, keys, local, mpps, x402s, solana });
  } catch (error) {
    await local?.close();
    throw error;
  }
}

function assembled(parts: {
  payments: Config['payments'];
  keys: NetworkKeys;
  local: LocalPaymentNetwork | undefined;
  mpps: MppNetwork[];
  x402s: X402Network[];
  solana: SolanaNetwork[];
}): Network {
  const { payments, keys, local, solana } = parts;
  const [mpp, ...moreMpp] = [...(local?.mpp ? [local.mpp] : []), ...parts.mpps];
  const [x402, ...moreX402] = [...(local?.x402 ? [local.x402] : []), ...parts.x402s];
  const { healthy, close } = local ?? {};
  const network: Network = Object.assign(local ?? {}, {
    name: payments.network,
    testMoney: usesTestMoney(payments),
    ...(mpp ? { mpp } : {}),
    ...(x402 ? { x402 } : {}),
    also: { mpp: moreMpp, x402: moreX402 },
    solana,
    hostAccounts: keys.accounts,
    async healthy() {
      const details = await Promise.all([
        ...(healthy ? [healthy()] : []),
        ...[...parts.mpps, ...parts.x402s].map((one) => chainHealth(one.chain)),
        ...solana.map((one) => one.healthy()),
      ]);
      return {
        ok: details.every((one) => one.ok),
        detail: details.map((one) => one.detail).join('; ') || 'payments are off',
      };
    },
    close: async () => close?.(),
  });
  const all = x402Networks(network);
  assertDistinct(
    'MPP',
    mppNetworks(network).map(({ chain }) => chain.id),
  );
  assertDistinct(
    'x402',
    all.map(({ network: signedFor }) => Number(signedFor.slice('eip155:'.length))),
  );
  assertDistinct(
    'x402',
    all.map(({ chain }) => chain.id),
  );
  return network;
}

/** Its code is large: a host that takes nothing on Solana does not load it. */
async function openSolana(given: {
  payments: Config['payments'];
  named: NamedNetworks;
  keys: NetworkKeys;
  keyFiles: KeyFiles;
  log: Logger;
}): Promise<SolanaNetwork[]> {
  const { payments, named, keys, keyFiles, log } = given;
  const { network } = payments.solana;
  if (network === '') return [];
  const recipients = [...named.mpp, ...named.x402].map(({ recipient }) => recipient);
  const local = payments.network === 'local' ? [payments.recipient || keys.accounts.operator.address] : [];
  const operators = [...recipients, ...local].map((each) => each.toLowerCase());
  const [{ openSolanaNetwork }, { solanaTroubles }] = await Promise.all([
    import('./solana.ts'),
    import('./solana-troubles.ts'),
  ]);
  const opened = await openSolanaNetwork({ settings: { ...payments.solana, network }, operators, keyFiles });
  const paysFees = payments.x402.facilitator.url === '';
  // Nothing that starts waits for it.
  void solanaTroubles(opened, paysFees ? opened.feePayer : undefined).then((troubles) => {
    for (const { detail, fix } of troubles) log.warn(`payments on Solana: ${detail}: ${fix}`);
  });
  return [opened];
}

function openTempo({ chain, token, recipient }: NamedNetwork): MppNetwork {
  return {
    chain,
    rpcUrl: rpcOf(chain),
    currency: token,
    decimals: 6,
    recipient,
    voucherSignatures: 'primitive',
    getClient: eachOnce((account) => tempoClient(chain, account)),
  };
}

async function openX402(named: NamedX402Network, log: Logger): Promise<X402Network> {
  const { name, chain, token, recipient } = named;
  const known = Object.entries(X402_NETWORKS).find(([each]) => each === name)?.[1];
  return {
    network: `eip155:${chain.id}`,
    chain,
    rpcUrl: rpcOf(chain),
    walletChain: walletChain(known?.chain ?? chain),
    token,
    ...(await readToken(named, log)),
    recipient,
    getClient: eachOnce((account) => x402Client(chain, account)),
  };
}

/**
 * A host must start while its RPC is away, so a token that does not answer is taken to be as it is known.
 * @throws Problem `invalid_config` for a token whose units are not micro-USD
 */
async function readToken(
  { chain, token: address, domain, rpcSetting }: NamedX402Network,
  log: Logger,
): Promise<{ name: string; version: string; decimals: number }> {
  const client = x402Client(chain);
  const read = await Promise.all([
    client.readContract({ address, abi: erc20Abi, functionName: 'name' }),
    client.readContract({ address, abi: VERSION_ABI, functionName: 'version' }),
    client.readContract({ address, abi: erc20Abi, functionName: 'decimals' }),
  ]).catch(() => undefined);
  if (!read) {
    log.warn({ chain: chain.name }, `the x402 network does not answer; check ${rpcSetting}`);
    return { ...domain, decimals: 6 };
  }
  const [name, version, decimals] = read;
  if (decimals !== 6)
    throw new Problem(
      'invalid_config',
      `payments: the token ${address} on ${chain.name} has ${decimals} decimals; it takes one with 6.`,
    );
  return { name, version, decimals };
}
