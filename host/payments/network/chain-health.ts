/** Whether the RPC of a chain answers, and for that chain. */
import type { Chain } from 'viem';

const TIMEOUT_MS = 2_000;

export async function chainHealth(chain: Chain): Promise<{ ok: boolean; detail: string }> {
  try {
    const response = await fetch(rpcOf(chain), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const { result } = (await response.json()) as { result?: string };
    if (Number(result) === chain.id) return { ok: true, detail: `${chain.name} answers` };
    return { ok: false, detail: `${chain.name}: the RPC URL answers for chain ${Number(result)}, not ${chain.id}` };
  } catch {
    return { ok: false, detail: `${chain.name} does not answer` };
  }
}

export function rpcOf(chain: Chain): string {
  return chain.rpcUrls.default.http[0] ?? '';
}
