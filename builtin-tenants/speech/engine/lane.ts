/**
 * A bounded queue: so many jobs run, so many wait, the next is refused with the time after which it may come again.
 * Those who wait take turns by address and payer, and none of them holds more than half of the places.
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
/** Callers whose last turn is known. */
const MOST_NAMES = 10_000;

export class Lane {
  readonly #name: string;
  readonly #limits: LaneLimits;
  readonly #now: () => number;
  readonly #turns: { start: () => void; names: readonly string[] }[] = [];
  /** Name -> when it had its last turn, as a count of turns. */
  readonly #served = new Map<string, number>();
  readonly #held = new Map<string, number>();
  #turn = 0;
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

  /**
   * @param names of the caller: payer, address; none: no caller of its own
   * @throws EngineFailure queue_full with `retryAfter`
   */
  admit(names: readonly string[] = []): Place {
    const places = this.#limits.jobs + this.#limits.waiting;
    if (names.some((name) => (this.#held.get(name) ?? 0) >= Math.ceil(places / 2))) {
      const retryAfter = this.#secondsUntilFree();
      throw new EngineFailure('queue_full', `Your calls hold half of the queue; try again in ${retryAfter} s.`, {
        retryAfter,
      });
    }
    if (this.#admitted >= places) {
      const retryAfter = this.#secondsUntilFree();
      throw new EngineFailure(
        'queue_full',
        `The ${this.#name} queue is full (${this.#limits.jobs} running, ${this.#limits.waiting} waiting); try again in ${retryAfter} s.`,
        { retryAfter },
      );
    }
    this.#admitted++;
    for (const name of names) this.#held.set(name, (this.#held.get(name) ?? 0) + 1);
    let here = true;
    const leave = () => {
      if (!here) return;
      here = false;
      this.#admitted--;
      for (const name of names) {
        const held = (this.#held.get(name) ?? 0) - 1;
        if (held > 0) this.#held.set(name, held);
        else this.#held.delete(name);
      }
      // Nobody waits, so that there is no order to be kept; or there are too many to keep one.
      if (this.#admitted === 0 || this.#served.size > MOST_NAMES) this.#served.clear();
    };
    return { leave, run: (work, signal) => this.#run(work, names, signal).finally(leave) };
  }

  async #run<T>(work: () => Promise<T>, names: readonly string[], signal: AbortSignal): Promise<T> {
    await this.#wait(names, signal);
    this.#turn++;
    for (const name of names) this.#served.set(name, this.#turn);
    const started = this.#now();
    try {
      return await work();
    } finally {
      this.#typicalMs = 0.7 * this.#typicalMs + 0.3 * (this.#now() - started);
      this.#running--;
      this.#next()?.start();
    }
  }

  /** Of those whose address, then whose payer, was served longest ago, the first that came. */
  #next(): { start: () => void } | undefined {
    const order = ({ names }: { names: readonly string[] }) => {
      const [payer = 0, address = 0] = names.map((name) => this.#served.get(name) ?? 0);
      return { payer, address };
    };
    const [next] = this.#turns.toSorted((a, b) => {
      const [first, second] = [order(a), order(b)];
      return first.address - second.address || first.payer - second.payer;
    });
    if (next !== undefined) this.#turns.splice(this.#turns.indexOf(next), 1);
    return next;
  }

  async #wait(names: readonly string[], signal: AbortSignal): Promise<void> {
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
        this.#turns.splice(this.#turns.indexOf(waiting), 1);
        reject(signal.reason);
      };
      const waiting = { start, names };
      this.#turns.push(waiting);
      signal.addEventListener('abort', giveUp, { once: true });
    });
  }

  /** A place is free when one job of those admitted ends; with many waiting, the wait for a turn counts more. */
  #secondsUntilFree(): number {
    const ms = (this.#typicalMs * Math.max(1, this.#admitted / 2)) / this.#limits.jobs;
    return Math.min(LONGEST_RETRY_SECONDS, Math.max(1, Math.ceil(ms / 1000)));
  }
}
