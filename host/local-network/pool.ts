/** anvil's pool of transactions, where one stays for a moment after its block. */
import type { Hex } from 'viem';
import type { JsonRpcSocket } from './json-rpc-socket.ts';

const TIMEOUT_MS = 10_000;

/**
 * Waits until a transaction has its block and has left the pool. Before that, `anvil_setNonce` may make it valid once
 * more, and the next block executes it again. anvil looks for a transaction in the pool first, and gives no block then.
 * @throws Error when that takes more than ten seconds
 */
export async function leftPool(chain: JsonRpcSocket, hash: Hex): Promise<void> {
  const sentAt = performance.now();
  for (;;) {
    const sent = await chain.request<{ blockNumber: Hex | null } | null>('eth_getTransactionByHash', [hash]);
    if (sent?.blockNumber != null) return;
    if (performance.now() > sentAt + TIMEOUT_MS) throw new Error(`the local chain did not mine transaction ${hash}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
