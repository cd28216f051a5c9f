/**
 * The clock that decides when data is deleted. It follows a system clock that jumps ahead only after 12 hours of running
 * time: an expiry caused by a wrong clock can be undone when the clock is corrected, a deletion cannot.
 */
import type { Clock } from '../shared/clock.ts';
import type { Transaction } from './deployment-memory.ts';
import type { Database } from './index.ts';
import { readSetting, savedSetting } from './settings.ts';

/** Name of the row in the registry's `settings`. Stored in existing registries, so it cannot change. */
const NAME = 'believed-time';
/** Jumps up to this long are trusted at once: they come from a restart or from setting the clock, ms. */
const LEAP_MS = 3_600_000;
/** A longer jump is trusted after the host ran this long with it, ms. */
const DOUBT_MS = 12 * 3_600_000;
/** The trusted time is saved whenever it has moved this far, ms. */
const SAVE_MS = 600_000;
/** The operator's moves of the clock are followed up to this length; a longer one is treated like a jump, ms. */
const LONGEST_MOVE_MS = 400 * 24 * 3_600_000;

type Reader = Database | Transaction;

export interface TrustedTime {
  /** ms since the Unix epoch. */
  at: number;
  /** For how long the clock has been ahead of it, ms. */
  doubtedMs: number;
  /** The latest time that was ever trusted, ms since the Unix epoch. What has expired by this time stays expired. */
  highest?: number;
}

/**
 * Computes the next trusted time.
 * @param now time of the system clock, ms since the Unix epoch
 * @param elapsedMs monotonic time since the last call, ms
 */
export function advance(
  { at, doubtedMs, highest = at }: TrustedTime,
  now: number,
  elapsedMs: number,
): Required<TrustedTime> {
  const expected = at + elapsedMs;
  const longer = doubtedMs + elapsedMs;
  const next =
    now <= expected + LEAP_MS || longer >= DOUBT_MS ? { at: now, doubtedMs: 0 } : { at: expected, doubtedMs: longer };
  return { ...next, highest: Math.max(highest, next.at) };
}

function highestOf({ at, highest = at }: TrustedTime): number {
  return Math.max(at, highest);
}

/** As it was kept last, ten minutes ago at most on a running host; undefined on a new one. */
export async function savedTrustedTime(db: Reader): Promise<TrustedTime | undefined> {
  const kept = await readSetting(db, NAME);
  return kept === undefined ? undefined : (JSON.parse(kept) as TrustedTime);
}

export class TrustedClock {
  readonly #db: Database;
  readonly #clock: Clock;
  #trusted: TrustedTime | undefined;
  #elapsed: number;
  #offset: number;
  /** Sum of the operator's moves that were followed, ms. */
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
    this.#trusted ??= await this.#read();
    const at = this.latest();
    if (Math.abs(at - this.#saved) >= SAVE_MS) await this.#save(this.#trusted);
    return at;
  }

  /** As `now()`, but synchronous. Before the first `now()` it returns the system clock's time. */
  latest(): number {
    const elapsed = this.#monotonic();
    const since = elapsed - this.#elapsed;
    this.#elapsed = elapsed;
    if (this.#trusted === undefined) return this.#clock.now();
    this.#trusted = advance(this.#trusted, this.#clock.now(), since);
    // While it runs on its own it counts parts of milliseconds, which the registry takes nowhere.
    return Math.floor(this.#trusted.at);
  }

  /** The latest time that was ever trusted, across restarts too; it never goes back. @returns ms since the Unix epoch */
  async highest(): Promise<number> {
    const now = await this.now();
    return Math.max(now, Math.floor(this.#trusted?.highest ?? now));
  }

  /** Monotonic time plus the operator's moves of the clock; setting the system clock does not change it. */
  #monotonic(): number {
    const { offsetMs } = this.#clock;
    if (Math.abs(offsetMs - this.#offset) <= LONGEST_MOVE_MS) this.#moved += offsetMs - this.#offset;
    this.#offset = offsetMs;
    return performance.now() + this.#moved;
  }

  async #read(): Promise<TrustedTime> {
    return (await savedTrustedTime(this.#db)) ?? { at: this.#clock.now(), doubtedMs: 0 };
  }

  /** Other nodes save theirs: the latest of all stays. */
  async #save(trusted: TrustedTime): Promise<void> {
    const highest = await this.#db.transaction(async (tx) => {
      const kept = await savedTrustedTime(tx);
      const latest = Math.max(highestOf(trusted), kept ? highestOf(kept) : 0);
      await savedSetting(tx, NAME, JSON.stringify({ ...trusted, highest: latest }));
      return latest;
    });
    if (this.#trusted) this.#trusted = { ...this.#trusted, highest: Math.max(highestOf(this.#trusted), highest) };
    this.#saved = trusted.at;
  }
}
