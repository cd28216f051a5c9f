/**
 * Remembers work that was done for nothing, by who asked for it. It is forgotten at a steady pace, so nobody gets more
 * than that part of a place for nothing, however often they ask.
 */

/** Of the time that passes, the part that is forgotten. */
const FORGOTTEN = 1 / 20;
/** No wait is longer, ms. */
const LONGEST_WAIT_MS = 10 * 60_000;
const MOST_KEYS = 20_000;

export class UnpaidWork {
  /** In the order in which they were added to last. */
  readonly #debts = new Map<string, { ms: number; at: number }>();
  readonly #now: () => number;

  /** @param now ms that only go up */
  constructor(now: () => number) {
    this.#now = now;
  }

  add(key: string, ms: number): void {
    const debt = Math.min(this.#debt(key) + ms, LONGEST_WAIT_MS * FORGOTTEN);
    this.#debts.delete(key);
    this.#debts.set(key, { ms: debt, at: this.#now() });
    for (const [oldest] of this.#debts) {
      if (this.#debts.size <= MOST_KEYS && this.#debt(oldest) > 0) break;
      this.#debts.delete(oldest);
    }
  }

  /** @returns how long the caller has to wait, ms; 0: not at all */
  waitMs(key: string, freeMs: number): number {
    return Math.max(0, this.#debt(key) - freeMs) / FORGOTTEN;
  }

  #debt(key: string): number {
    const known = this.#debts.get(key);
    return known ? Math.max(0, known.ms - (this.#now() - known.at) * FORGOTTEN) : 0;
  }
}
