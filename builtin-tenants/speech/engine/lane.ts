/**
 * A bounded queue: so many jobs run, so many wait, the next is refused with the time after which it may come again.
 * A job holds its place from before its upload starts, so that memory and disk are bounded by the same number.
 */
import { EngineFailure } from './failure.ts';

export interface LaneLimits {
  jobs: number;
  waiting: number;
}

export interface LaneState {
  running: number;
  /** Admitted and not running: uploading, or waiting for a turn. */
  waiting: number;
  limits: LaneLimits;
}

/** A place in the lane. `run` may be called once; `leave` must be called in the end and may be called twice. */
export interface Place {
  /** Waits for a turn, then works. Rejects with the signal's reason if it is aborted while waiting. */
  run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T>;
  leave(): void;
}

/** What a job is taken to last before any was measured, ms. */
const FIRST_GUESS_MS = 5000;
const LONGEST_RETRY_SECONDS = 60;

export class Lane {
  readonly #name: string;
  readonly #limits: LaneLimits;
  readonly #now: () => number;
  readonly #turns: (() => void)[] = [];
  #running = 0;
  #admitted = 0;
  #typicalMs = FIRST_GUESS_MS;

  /** @param now monotonic milliseconds */
  constructor(name: string, limits: LaneLimits, now: () => number = () => performance.now()) {
    this.#name = name;
    this.#limits = { jobs: limits.jobs, waiting: limits.waiting };
    this.#now = now;
  }

  get state(): LaneState {
    return { running: this.#running, waiting: this.#admitted - this.#running, limits: this.#limits };
  }

  /** @throws EngineFailure queue_full with `retryAfter` */
  admit(): Place {
    if (this.#admitted >= this.#limits.jobs + this.#limits.waiting) {
      const retryAfter = this.#secondsUntilFree();
      throw new EngineFailure(
        'queue_full',
        `The ${this.#name} queue is full (${this.#limits.jobs} running, ${this.#limits.waiting} waiting); try again in ${retryAfter} s.`,
        { retryAfter },
      );
    }
    this.#admitted++;
    let here = true;
    const leave = () => {
      if (!here) return;
      here = false;
      this.#admitted--;
    };
    return { leave, run: (work, signal) => this.#run(work, signal).finally(leave) };
  }

  async #run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#turn(signal);
    const started = this.#now();
    try {
      return await work();
    } finally {
      this.#typicalMs = 0.7 * this.#typicalMs + 0.3 * (this.#now() - started);
      this.#running--;
      this.#turns.shift()?.();
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#running < this.#limits.jobs) {
      this.#running++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const start = () => {
        signal.removeEventListener('abort', giveUp);
        this.#running++;
        resolve();
      };
      const giveUp = () => {
        this.#turns.splice(this.#turns.indexOf(start), 1);
        reject(signal.reason);
      };
      this.#turns.push(start);
      signal.addEventListener('abort', giveUp, { once: true });
    });
  }

  /** A place is free when one job of those admitted ends; with many waiting, the wait for a turn counts more. */
  #secondsUntilFree(): number {
    const ms = (this.#typicalMs * Math.max(1, this.#admitted / 2)) / this.#limits.jobs;
    return Math.min(LONGEST_RETRY_SECONDS, Math.max(1, Math.ceil(ms / 1000)));
  }
}
