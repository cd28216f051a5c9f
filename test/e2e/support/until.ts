/** Waits for what announces itself in no other way. */
import { setTimeout as delay } from 'node:timers/promises';

/** No promise of the host's: long enough for a machine that does much else. A limit that is one is named where it is used. */
const PATIENCE_MS = 120_000;
/** What comes at once is not waited for, and what takes its time is not asked for all the time. */
const PAUSE_MS = { least: 10, most: 200, ofWait: 0.05 };

type Nothing = undefined | null | false | 0 | '';

/**
 * Asks until there is an answer.
 * @param what is waited for, for the error
 * @throws Error when it did not come in time
 */
export async function until<T>(
  find: () => T | Nothing | Promise<T | Nothing>,
  what: string | (() => string) = 'a condition',
  withinMs = PATIENCE_MS,
): Promise<Exclude<T, Nothing>> {
  const from = performance.now();
  for (;;) {
    const found = await find();
    if (found) return found as Exclude<T, Nothing>;
    const waitedMs = performance.now() - from;
    if (waitedMs > withinMs)
      throw new Error(`waited ${withinMs} ms in vain for ${typeof what === 'string' ? what : what()}`);
    await delay(Math.min(PAUSE_MS.most, Math.max(PAUSE_MS.least, waitedMs * PAUSE_MS.ofWait)));
  }
}
