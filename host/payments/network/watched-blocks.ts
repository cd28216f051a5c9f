/**
 * Each who waits for a block asks for its number alone, and is told it again from time to time. viem lets all waits of a
 * client watch one number: a wait for a receipt that begins just after a change, while another is still being answered,
 * hears of no block until the next one. And a wait that still looks at one block overhears the next. A chain that makes
 * blocks only for transactions may have no further one, and the wait goes on until its time is over.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Client, WatchBlockNumberParameters } from 'viem';
import { getBlockNumber } from 'viem/actions';

const AGAIN_MS = 1_000;

/** In place of viem's own, for what it and others build on it. */
export function watchedBlocks(client: Client) {
  return {
    watchBlockNumber({ onBlockNumber, pollingInterval = client.pollingInterval }: WatchBlockNumberParameters) {
      let isWatched = true;
      const watch = async () => {
        let last: bigint | undefined;
        for (let told = 0; isWatched; await delay(pollingInterval)) {
          // A failure is no end: the caller has a timeout of its own.
          const number = await getBlockNumber(client, { cacheTime: 0 }).catch(() => last);
          const isDue = number !== last || performance.now() - told >= AGAIN_MS;
          if (!isWatched || number === undefined || !isDue) continue;
          told = performance.now();
          onBlockNumber(number, last);
          last = number;
        }
      };
      void watch();
      return () => {
        isWatched = false;
      };
    },
  };
}
