/** Starts the local payment network in a folder of its own, for tests that pay. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import type { Account } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { Actions } from 'viem/tempo';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import { loadNetworkKeys } from '../../../host/payments/network/keys.ts';
import { type LocalPaymentNetwork, openLocal } from '../../../host/payments/network/local.ts';
import type { MppNetwork, X402Network } from '../../../host/payments/network/types.ts';
import type { Config } from '../../../host/shared/config.ts';

export type TestNetwork = LocalPaymentNetwork & { mpp: MppNetwork; x402: X402Network; folder: string };

export async function startTestNetwork(
  options: { folder?: string; payments?: Partial<Config['payments']> } = {},
): Promise<TestNetwork> {
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'turnpike-network-')));
  const network = await openLocal({
    config: { ...(defaults.payments as Config['payments']), ...options.payments },
    dataFolder: folder,
    keys: await loadNetworkKeys(folder),
    log: pino({ level: 'silent' }),
  });
  return Object.assign(network, { folder }) as TestNetwork;
}

export async function stopTestNetwork(network: TestNetwork | undefined): Promise<void> {
  await network?.close();
  if (network) await rm(network.folder, { recursive: true, force: true });
}

/** The account of test wallet `index`. */
export function walletOf(network: TestNetwork, index: number): ReturnType<typeof privateKeyToAccount> {
  return privateKeyToAccount(network.wallets![index]!.privateKey);
}

/** Balance of pathUSD, in micro-USD. */
export async function mppBalance(network: TestNetwork, account: Account | `0x${string}`): Promise<bigint> {
  const address = typeof account === 'string' ? account : account.address;
  const balance = await Actions.token.getBalance(network.mpp.getClient() as never, {
    token: network.mpp.currency,
    account: address,
  });
  return balance.amount;
}

/** Balance of the USDC stand-in, in micro-USD. */
export function x402Balance(network: TestNetwork, account: Account | `0x${string}`): Promise<bigint> {
  return network.x402.getClient().readContract({
    address: network.x402.token,
    abi: [
      {
        type: 'function',
        name: 'balanceOf',
        stateMutability: 'view',
        inputs: [{ type: 'address', name: 'owner' }],
        outputs: [{ type: 'uint256', name: '' }],
      },
    ] as const,
    functionName: 'balanceOf',
    args: [typeof account === 'string' ? account : account.address],
  }) as Promise<bigint>;
}

/** What the gateway answers; a batch is an array. */
// biome-ignore lint/suspicious/noExplicitAny: tests look at any answer
export type RpcBody = any;

/** One JSON-RPC call to the gateway, with the HTTP status. */
export async function rpc(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: RpcBody }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}
