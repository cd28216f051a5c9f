/**
 * Opens the payment network that the configuration names: the embedded chain, Tempo, and Base beside it.
 * Nothing is started for public networks; they are reached by RPC.
 */
import type { Logger } from 'pino';
import { type Address, type Chain, erc20Abi, getAddress, parseAbi } from 'viem';
import type { KeyFiles } from '../../registry/key-file.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Config } from '../../shared/config.ts';
import { usesTestMoney } from '../../shared/config.ts';
import { Problem } from '../../shared/problem.ts';
import { TEMPO_NETWORKS, walletChain, withRpc, X402_NETWORKS } from './chains.ts';
import { tempoClient, x402Client } from './clients.ts';
import { loadNetworkKeys } from './keys.ts';
import { openLocal } from './local.ts';
import type { MppNetwork, Network, X402Network } from './types.ts';

export type { HostAccounts, MppNetwork, Network, NetworkHealth, TestWallet, X402Client, X402Network } from './types.ts';

const HEALTH_TIMEOUT_MS = 2_000;
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
  const payments = config.payments;
  const keys = await loadNetworkKeys(dataFolder, keyFiles);
  if (payments.network === 'local') {
    if (payments.x402.network !== '') {
      throw new Problem(
        'invalid_config',
        'payments.x402.network must be empty with payments.network = local, which has its own.',
      );
    }
    return openLocal({ config: payments, dataFolder, keys, log });
  }
  const mpp = payments.network === 'none' ? undefined : openTempo(payments.network, payments);
  const x402 = payments.x402.network === '' ? undefined : await openX402(payments.x402.network, payments, log);
  const chains = [mpp, x402].filter((one) => one !== undefined);
  return {
    name: payments.network,
    testMoney: usesTestMoney(payments),
    ...(mpp ? { mpp } : {}),
    ...(x402 ? { x402 } : {}),
    hostAccounts: keys.accounts,
    async healthy() {
      const details = await Promise.all(chains.map((one) => chainHealth(one.chain, one.rpcUrl)));
      return {
        ok: details.every((one) => one.ok),
        detail: details.map((one) => one.detail).join('; ') || 'payments are off',
      };
    },
    close: async () => undefined,
  };
}

function openTempo(name: keyof typeof TEMPO_NETWORKS, payments: Config['payments']): MppNetwork {
  if (payments.recipient === '') {
    throw new Problem('invalid_config', `Set payments.recipient to the wallet that receives payments on ${name}.`);
  }
  const chain = withRpc(TEMPO_NETWORKS[name].chain, payments.rpcUrl);
  return {
    chain,
    rpcUrl: rpcOf(chain),
    currency: getAddress(payments.currency || TEMPO_NETWORKS[name].currency),
    decimals: 6,
    recipient: getAddress(payments.recipient),
    voucherSignatures: 'primitive',
    getClient: (account) => tempoClient(chain, account),
  };
}

async function openX402(
  name: keyof typeof X402_NETWORKS,
  payments: Config['payments'],
  log: Logger,
): Promise<X402Network> {
  const recipient = payments.x402.recipient || payments.recipient;
  if (recipient === '') {
    throw new Problem('invalid_config', `Set payments.x402.recipient to the wallet that receives payments on ${name}.`);
  }
  const chain = withRpc(X402_NETWORKS[name].chain, payments.x402.rpcUrl);
  const token = getAddress(X402_NETWORKS[name].token);
  return {
    network: `eip155:${chain.id}`,
    chain,
    rpcUrl: rpcOf(chain),
    walletChain: walletChain(X402_NETWORKS[name].chain),
    token,
    ...(await readToken(chain, { ...X402_NETWORKS[name], token }, log)),
    recipient: getAddress(recipient),
    getClient: (account) => x402Client(chain, account),
  };
}

/** A host must start while its RPC is away, so a token that does not answer is taken to be as it is known. */
async function readToken(
  chain: Chain,
  known: { token: Address; name: string; version: string },
  log: Logger,
): Promise<{ name: string; version: string; decimals: number }> {
  const client = x402Client(chain);
  const address = known.token;
  try {
    const [name, version, decimals] = await Promise.all([
      client.readContract({ address, abi: erc20Abi, functionName: 'name' }),
      client.readContract({ address, abi: VERSION_ABI, functionName: 'version' }),
      client.readContract({ address, abi: erc20Abi, functionName: 'decimals' }),
    ]);
    return { name, version, decimals };
  } catch {
    log.warn({ chain: chain.name }, 'the x402 network does not answer; check payments.x402.rpcUrl');
    return { name: known.name, version: known.version, decimals: 6 };
  }
}

async function chainHealth(chain: Chain, rpcUrl: string): Promise<{ ok: boolean; detail: string }> {
  try {
    const response = await fetch(rpcUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] }),
      signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS),
    });
    const { result } = (await response.json()) as { result?: string };
    if (Number(result) === chain.id) return { ok: true, detail: `${chain.name} answers` };
    return { ok: false, detail: `${chain.name}: the RPC URL answers for chain ${Number(result)}, not ${chain.id}` };
  } catch {
    return { ok: false, detail: `${chain.name} does not answer` };
  }
}

function rpcOf(chain: Chain): string {
  return chain.rpcUrls.default.http[0] ?? '';
}
