/** Waits for what announces itself in no other way. */
import { setTimeout as delay } from 'node:timers/promises';

/** No promise of the host's: long enough for a machine that does much else. A limit that is one is named where it is used. */
const PATIENCE_MS = 120_000;
const PAUSE_MS = 10;

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
  const end = performance.now() + withinMs;
  for (;;) {
    const found = await find();
    if (found) return found as Exclude<T, Nothing>;
    if (performance.now() > end)
      throw new Error(`waited ${withinMs} ms in vain for ${typeof what === 'string' ? what : what()}`);
    await delay(PAUSE_MS);
  }
}
