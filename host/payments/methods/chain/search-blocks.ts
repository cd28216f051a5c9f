/** Searches a chain for what happened since a moment, in steps that public nodes answer. */
import type { Client } from 'viem';
import { getBlock, getBlockNumber } from 'viem/actions';

/** Blocks that are searched with one question; below the limits of public nodes. */
const STEP = 5_000n;
/** A block's time and ours may differ so much, ms. */
const CLOCK_SKEW_MS = 60_000;

export interface BlockRange {
  fromBlock: bigint;
  toBlock: bigint;
}

/**
 * Asks `find` of newer blocks before older ones.
 * @param since ms; what is older is not searched
 */
export async function searchBlocks<T>(
  client: Client,
  since: number,
  find: (blocks: BlockRange) => Promise<T | undefined>,
): Promise<T | undefined> {
  let toBlock = await getBlockNumber(client, { cacheTime: 0 });
  for (;;) {
    const fromBlock = toBlock < STEP ? 0n : toBlock - STEP + 1n;
    const found = await find({ fromBlock, toBlock });
    if (found !== undefined || fromBlock === 0n) return found;
    const { timestamp } = await getBlock(client, { blockNumber: fromBlock });
    if (Number(timestamp) * 1000 < since - CLOCK_SKEW_MS) return undefined;
    toBlock = fromBlock - 1n;
  }
}
