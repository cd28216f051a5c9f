/**
 * What one tenant may still use: requests in flight (more wait their turn, as on Cloudflare), and bytes in a
 * rolling hour. Also its counters.
 */
import type { EgressCounters, EgressLimits } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';

const MINUTE_MS = 60_000;
const MINUTES = 60;
/** Requests that may wait for each one in flight before more are refused. */
const WAITING_PER_SLOT = 10;

export class Allowance {
  limits: EgressLimits;
  readonly counters: EgressCounters = { requests: 0, refused: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 };
  readonly #now: () => number;
  readonly #waiting: (() => void)[] = [];
  /** Ring of bytes per minute; `#minute` is the minute that the newest slot stands for. */
  readonly #ring = new Float64Array(MINUTES);
  #minute = 0;
  #inHour = 0;

  /** @param now milliseconds of a clock that never steps back, such as `performance.now` */
  constructor(limits: EgressLimits, now: () => number) {
    this.limits = limits;
    this.#now = now;
  }

  /**
   * Waits for a slot. Answers the function that frees it, which may be called more than once.
   * @throws Problem egress_limit when too many wait or the hour's bytes are used up
   */
  async enter(signal: AbortSignal): Promise<() => void> {
    this.assertBytesLeft();
    if (this.counters.inFlight >= this.limits.inFlight) await this.#queue(signal);
    else this.counters.inFlight++;
    let entered = true;
    return () => {
      if (!entered) return;
      entered = false;
      const next = this.#waiting.shift();
      if (next) next();
      else this.counters.inFlight--;
    };
  }

  /** Counts bytes that passed. Answers false when the hour's allowance is used up: cut the transfer then. */
  count(direction: 'in' | 'out', bytes: number): boolean {
    if (direction === 'in') this.counters.bytesIn += bytes;
    else this.counters.bytesOut += bytes;
    this.#advance();
    const slot = this.#minute % MINUTES;
    this.#ring[slot] = (this.#ring[slot] ?? 0) + bytes;
    this.#inHour += bytes;
    return this.#inHour < this.limits.bytesPerHour;
  }

  /** @throws Problem egress_limit */
  assertBytesLeft(): void {
    this.#advance();
    if (this.#inHour < this.limits.bytesPerHour) return;
    throw new Problem('egress_limit', 'The hourly allowance of outbound bytes is used up; try again later.', {
      headers: { 'retry-after': '60' },
    });
  }

  #queue(signal: AbortSignal): Promise<void> {
    if (this.#waiting.length >= this.limits.inFlight * WAITING_PER_SLOT) {
      return Promise.reject(
        new Problem(
          'egress_limit',
          `${this.limits.inFlight} requests are in flight and the queue is full; await some before sending more.`,
          { headers: { 'retry-after': '1' } },
        ),
      );
    }
    return new Promise((resolve, reject) => {
      const start = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(start), 1);
        reject(signal.reason);
      };
      this.#waiting.push(start);
      signal.addEventListener('abort', leave, { once: true });
      if (signal.aborted) leave();
    });
  }

  /** Forgets the minutes that left the hour. */
  #advance(): void {
    const minute = Math.floor(this.#now() / MINUTE_MS);
    if (minute - this.#minute >= MINUTES) {
      this.#ring.fill(0);
      this.#inHour = 0;
      this.#minute = minute;
      return;
    }
    while (this.#minute < minute) {
      this.#minute++;
      const slot = this.#minute % MINUTES;
      this.#inHour -= this.#ring[slot] ?? 0;
      this.#ring[slot] = 0;
    }
  }
}
