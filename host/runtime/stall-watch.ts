/**
 * Tells a busy loop from busy work: while an instance burns CPU its event loop is pinged, and one that does not answer
 * while it uses up its CPU allowance is reported. Time that it merely waits (for a pipe, for the scheduler) is not held
 * against it, and neither is a loop that turns without looking for new connections: KJ's does so only when nothing is
 * left to do (kj/async.h, `WaitScope::setBusyPollInterval`), which many large answers to quick readers can put off for
 * seconds. Code that does not end makes no more of an answer, so much of one counts as an answered ping.
 */

export interface StallWatchOptions {
  /** CPU that may be used without an answer, ms. */
  limitMs: number;
  /** Whether the event loop turned within the time. */
  ping(timeoutMs: number): Promise<boolean>;
  onStall(): void;
}

/** Below this share of a core the instance is not pinged: on a crowded machine a busy loop may get no more. */
const BUSY_SHARE = 0.03;
/** Pings are this share of the limit apart: each costs the instance a connection, and others some CPU of the supervisor. */
const PAUSE_LIMITS = 0.1;
/**
 * So much of its answers in a second, bytes, and the loop turns. Not any piece: what lay in the buffers of its sockets
 * (200 KB each) when it came to stand still goes out as slowly as callers please to read it.
 */
const TURNING_BYTES = 4 * 1_048_576;
/** After this many limits of wall time it ends with a tenth of the CPU: it may just not have got more. */
const WALL_LIMITS = 3;

export class StallWatch {
  readonly #options: StallWatchOptions;
  #last: { at: number; cpuMs: number } | undefined;
  #waiting: { at: number; cpuMs: number } | undefined;
  #pingedAt = Number.NEGATIVE_INFINITY;

  constructor(options: StallWatchOptions) {
    this.#options = options;
  }

  /** Call several times a second. @param cpuMs CPU time of the process so far */
  sample(at: number, cpuMs: number): void {
    const last = this.#last;
    this.#last = { at, cpuMs };
    if (this.#waiting) {
      const used = cpuMs - this.#waiting.cpuMs;
      const waited = at - this.#waiting.at;
      const { limitMs, onStall } = this.#options;
      // Threads of the garbage collector burn beside the loop: neither may count for more than time that passed.
      if (Math.min(used, waited) >= limitMs || (waited >= limitMs * WALL_LIMITS && used >= limitMs / 10)) onStall();
      return;
    }
    if (!last || at - this.#pingedAt < this.#options.limitMs * PAUSE_LIMITS) return;
    if (cpuMs - last.cpuMs < (at - last.at) * BUSY_SHARE) return;
    this.#pingedAt = at;
    this.#ping(last);
  }

  /** @param bytes of its answers that came out in about the last second */
  answered(bytes: number): void {
    if (bytes >= TURNING_BYTES && this.#waiting && this.#last) this.#waiting = this.#last;
  }

  #ping(since: { at: number; cpuMs: number }): void {
    this.#waiting = since;
    const { limitMs, ping } = this.#options;
    // The ping also ends, unanswered, when the process goes away; by its own timeout the stall was reported, or pieces
    // of answers came, and the next sample asks again.
    void ping(limitMs * (WALL_LIMITS + 1)).then(() => {
      this.#waiting = undefined;
    });
  }
}
