/** Whether the RPC of a chain answers, and for that chain. */
import type { Chain } from 'viem';

const TIMEOUT_MS = 2_000;
/** A number in the words of JSON-RPC (ethereum/execution-apis). */
const QUANTITY = /^0x[0-9a-f]+$/i;

export async function chainHealth(chain: Chain): Promise<{ ok: boolean; detail: string }> {
  try {
    const response = await fetch(rpcOf(chain), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const result = resultOf(await response.text());
    if (typeof result !== 'string' || !QUANTITY.test(result))
      return { ok: false, detail: `${chain.name}: the RPC URL answers ${response.status} without a chain id` };
    const id = Number(result);
    if (id === chain.id) return { ok: true, detail: `${chain.name} answers` };
    return { ok: false, detail: `${chain.name}: the RPC URL answers for chain ${id}, not ${chain.id}` };
  } catch {
    return { ok: false, detail: `${chain.name} does not answer` };
  }
}

/** @param text what an RPC answered; it may be anything */
function resultOf(text: string): unknown {
  try {
    return JSON.parse(text)?.result;
  } catch {
    return undefined;
  }
}

export function rpcOf(chain: Chain): string {
  return chain.rpcUrls.default.http[0] ?? '';
}
