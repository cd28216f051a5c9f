/**
 * The time by which data is removed. A system clock that leaps ahead is believed when it has stood so for half a day of
 * running: what it makes expire comes back when the clock is set right, what it makes removed does not.
 */
import { eq } from '../registry/drizzle.ts';
import type { Database } from '../registry/index.ts';
import { settings } from '../registry/schema/deployments.ts';
import type { Clock } from '../shared/clock.ts';

const NAME = 'believed-time';
/** Leaps up to this are believed at once: those of a restart, and of a clock that is set now and then. */
const LEAP_MS = 3_600_000;
const DOUBT_MS = 12 * 3_600_000;
/** Written at least when it has moved so far, ms. */
const SAVE_MS = 600_000;

export interface Belief {
  /** ms since the Unix epoch. */
  at: number;
  /** For how long the clock has been ahead of it, ms. */
  doubtedMs: number;
}

/**
 * @param now what the clock says
 * @param elapsedMs what has passed since, whatever the clock says
 */
export function believe({ at, doubtedMs }: Belief, now: number, elapsedMs: number): Belief {
  const expected = at + elapsedMs;
  const longer = doubtedMs + elapsedMs;
  return now <= expected + LEAP_MS || longer >= DOUBT_MS
    ? { at: now, doubtedMs: 0 }
    : { at: expected, doubtedMs: longer };
}

export class BelievedTime {
  readonly #db: Database;
  readonly #clock: Clock;
  #belief: Belief | undefined;
  #elapsed: number;
  #saved = Number.NEGATIVE_INFINITY;

  constructor(db: Database, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
    this.#elapsed = this.#monotonic();
  }

  /** @returns ms since the Unix epoch */
  async now(): Promise<number> {
    this.#belief ??= await this.#read();
    const elapsed = this.#monotonic();
    this.#belief = believe(this.#belief, this.#clock.now(), elapsed - this.#elapsed);
    this.#elapsed = elapsed;
    if (Math.abs(this.#belief.at - this.#saved) >= SAVE_MS) await this.#save(this.#belief);
    return this.#belief.at;
  }

  /** Runs on while the system clock is set, and follows the operator who moves business time. */
  #monotonic(): number {
    return performance.now() + this.#clock.offsetMs;
  }

  async #read(): Promise<Belief> {
    const [row] = await this.#db.select().from(settings).where(eq(settings.name, NAME));
    return row ? (JSON.parse(row.value) as Belief) : { at: this.#clock.now(), doubtedMs: 0 };
  }

  async #save(belief: Belief): Promise<void> {
    const value = JSON.stringify(belief);
    await this.#db
      .insert(settings)
      .values({ name: NAME, value })
      .onConflictDoUpdate({ target: settings.name, set: { value } });
    this.#saved = belief.at;
  }
}
