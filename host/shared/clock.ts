/**
 * Business time: expiry, cron, charges, retention. Tests of the running program move it.
 * Protocol times (challenge expiry, signatures, chain) are the real ones and use Date.now() directly.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** How far it is ahead of the real time, ms. */
  readonly offsetMs: number;
  /** Calls `listener` after the clock was stepped, so that timers are computed anew. Returns the unsubscriber. */
  onStep(listener: () => void): () => void;
}

export class AdjustableClock implements Clock {
  #offsetMs: number;
  readonly #listeners = new Set<() => void>();

  constructor(offsetMs = 0) {
    this.#offsetMs = offsetMs;
  }

  now(): number {
    return Date.now() + this.#offsetMs;
  }

  get offsetMs(): number {
    return this.#offsetMs;
  }

  setOffset(offsetMs: number): void {
    this.#offsetMs = offsetMs;
    for (const listener of this.#listeners) listener();
  }

  onStep(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** A clock that stands still until a test moves it. */
export class ManualClock implements Clock {
  #now: number;
  readonly #listeners = new Set<() => void>();

  constructor(now: number) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  get offsetMs(): number {
    return this.#now - Date.now();
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const listener of this.#listeners) listener();
  }

  onStep(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/**
 * Monotonic time, ms (CLOCK_MONOTONIC), shared by all processes of the machine. Use it for durations and deadlines: a step
 * of the system clock (NTP, a resumed virtual machine) must not make a query or a process time out. Within one process,
 * `performance.now()` is enough.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}
