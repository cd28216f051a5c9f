/**
 * The time by which data is removed. A system clock that leaps ahead is believed when it has stood so for half a day of
 * running: what it makes expire comes back when the clock is set right, what it makes removed does not.
 */

import type { Clock } from '../shared/clock.ts';
import type { Database } from './index.ts';
import { readSetting, savedSetting } from './settings.ts';

const NAME = 'believed-time';
/** Leaps up to this are believed at once: those of a restart, and of a clock that is set now and then. */
const LEAP_MS = 3_600_000;
const DOUBT_MS = 12 * 3_600_000;
/** Written at least when it has moved so far, ms. */
const SAVE_MS = 600_000;
/** The operator's moves of business time are followed up to this: a longer one is a mistake, and doubted like one, ms. */
const LONGEST_MOVE_MS = 400 * 24 * 3_600_000;

export interface Belief {
  /** ms since the Unix epoch. */
  at: number;
  /** For how long the clock has been ahead of it, ms. */
  doubtedMs: number;
  /** The latest that was ever believed, ms since the Unix epoch: what is over by it stays over. */
  highest?: number;
}

/**
 * @param now what the clock says
 * @param elapsedMs what has passed since, whatever the clock says
 */
export function believe({ at, doubtedMs, highest = at }: Belief, now: number, elapsedMs: number): Required<Belief> {
  const expected = at + elapsedMs;
  const longer = doubtedMs + elapsedMs;
  const next =
    now <= expected + LEAP_MS || longer >= DOUBT_MS ? { at: now, doubtedMs: 0 } : { at: expected, doubtedMs: longer };
  return { ...next, highest: Math.max(highest, next.at) };
}

/** As it was kept last, ten minutes ago at most on a running host; undefined on a new one. */
export async function savedBelief(db: Database): Promise<Belief | undefined> {
  const kept = await readSetting(db, NAME);
  return kept === undefined ? undefined : (JSON.parse(kept) as Belief);
}

export class BelievedTime {
  readonly #db: Database;
  readonly #clock: Clock;
  #belief: Belief | undefined;
  #elapsed: number;
  #offset: number;
  /** Moves of the operator that are followed, in all, ms. */
  #moved = 0;
  #saved = Number.NEGATIVE_INFINITY;

  constructor(db: Database, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
    this.#offset = clock.offsetMs;
    this.#elapsed = this.#monotonic();
  }

  /** @returns ms since the Unix epoch */
  async now(): Promise<number> {
    this.#belief ??= await this.#read();
    const at = this.latest();
    if (Math.abs(at - this.#saved) >= SAVE_MS) await this.#save(this.#belief);
    return at;
  }

  /** The same without waiting; before the first `now()` it is the clock's. */
  latest(): number {
    const elapsed = this.#monotonic();
    const since = elapsed - this.#elapsed;
    this.#elapsed = elapsed;
    if (this.#belief === undefined) return this.#clock.now();
    this.#belief = believe(this.#belief, this.#clock.now(), since);
    return this.#belief.at;
  }

  /** The latest that was ever believed; never goes back, not over restarts either. @returns ms since the Unix epoch */
  async highest(): Promise<number> {
    const now = await this.now();
    return Math.max(now, this.#belief?.highest ?? now);
  }

  /** Runs on while the system clock is set, and follows the operator who moves business time. */
  #monotonic(): number {
    const { offsetMs } = this.#clock;
    if (Math.abs(offsetMs - this.#offset) <= LONGEST_MOVE_MS) this.#moved += offsetMs - this.#offset;
    this.#offset = offsetMs;
    return performance.now() + this.#moved;
  }

  async #read(): Promise<Belief> {
    return (await savedBelief(this.#db)) ?? { at: this.#clock.now(), doubtedMs: 0 };
  }

  async #save(belief: Belief): Promise<void> {
    await savedSetting(this.#db, NAME, JSON.stringify(belief));
    this.#saved = belief.at;
  }
}
