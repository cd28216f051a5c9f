/**
 * Whether what is signed to be valid until a moment can still be taken by a chain. The chain's own time decides: this
 * machine's clock may be set, and what is said to have failed too early is signed, or asked of its payer, once more.
 */
import type { Client } from 'viem';
import { getBlock } from 'viem/actions';

/** The nodes behind one address may be so far behind each other, ms. */
const LAG_MS = 15_000;

/**
 * To be asked before the chain is asked for what was signed: what is not found afterwards was never taken.
 * @param until ms since the Unix epoch
 * @returns false too when the network does not answer
 */
export async function isExpired(client: Client, until: number): Promise<boolean> {
  try {
    const { timestamp } = await getBlock(client);
    return Number(timestamp) * 1000 > until + LAG_MS;
  } catch {
    return false;
  }
}
