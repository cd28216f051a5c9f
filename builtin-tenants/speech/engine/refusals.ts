/**
 * Who sends audio that is refused after it was decoded, which costs work and no money, waits ever longer. A few are
 * anybody's mistakes; a job that is done clears them.
 */
import { EngineFailure } from './failure.ts';

const FREE = 3;
const LONGEST_WAIT_MS = 60_000;
const FORGET_MS = 600_000;
const MOST_NAMES = 10_000;

interface Record {
  refused: number;
  last: number;
}

export class Refusals {
  readonly #records = new Map<string, Record>();
  readonly #now: () => number;

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws EngineFailure queue_full with `retryAfter` */
  check(names: readonly string[]): void {
    const wait = Math.max(0, ...names.map((name) => this.#wait(name)));
    if (wait === 0) return;
    const retryAfter = Math.ceil(wait / 1000);
    throw new EngineFailure('queue_full', `Too much of your audio was refused; try again in ${retryAfter} s.`, {
      retryAfter,
    });
  }

  refused(names: readonly string[]): void {
    for (const name of names) {
      const refused = (this.#known(name)?.refused ?? 0) + 1;
      this.#records.delete(name);
      this.#records.set(name, { refused, last: this.#now() });
    }
    for (const [oldest] of this.#records) {
      if (this.#records.size <= MOST_NAMES) break;
      this.#records.delete(oldest);
    }
  }

  /** A paid job was done: it clears its payer, not everybody at its address. */
  done([payer]: readonly string[]): void {
    if (payer !== undefined) this.#records.delete(payer);
  }

  #wait(name: string): number {
    const known = this.#known(name);
    if (known === undefined || known.refused < FREE) return 0;
    const pause = Math.min(LONGEST_WAIT_MS, 1000 * 2 ** (known.refused - FREE));
    return Math.max(0, known.last + pause - this.#now());
  }

  #known(name: string): Record | undefined {
    const known = this.#records.get(name);
    return known !== undefined && this.#now() - known.last < FORGET_MS ? known : undefined;
  }
}
