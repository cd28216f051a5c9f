/** How the instances of a slug ended: whether it may be started again now, and what its owner and its callers are told. */
import { Problem } from '../shared/problem.ts';
import { afterFailure, type FailureRecord, NO_FAILURES } from './back-off.ts';
import type { LastExit } from './contract.ts';

/** For how long somebody who was over a limit is expected to be so again, ms. */
const EXCEEDED_MS = 60_000;

export class TrackRecord {
  #failures: FailureRecord = NO_FAILURES;
  #lastExit: LastExit | undefined;
  #exceededAt = Number.NEGATIVE_INFINITY;

  get lastExit(): LastExit | undefined {
    return this.#lastExit;
  }

  /** Until it may be started again, ms; 0: now. */
  get pauseMs(): number {
    return Math.max(0, this.#failures.retryAt - performance.now());
  }

  /** An instance was over a limit not long ago. */
  get exceededLately(): boolean {
    return performance.now() - this.#exceededAt < EXCEEDED_MS;
  }

  /** A new revision deserves a new chance. */
  startAfresh(): void {
    this.#failures = NO_FAILURES;
  }

  /** It ended, and nobody is to blame. */
  stopped(exit: LastExit): void {
    this.#lastExit = exit;
  }

  /** @param ranMs how long the instance lived before it failed; 0 when it did not start */
  failed(exit: LastExit, ranMs: number): void {
    const now = performance.now();
    if (exit.reason === 'cpu_exceeded' || exit.reason === 'memory_exceeded') this.#exceededAt = now;
    this.#failures = afterFailure(this.#failures, now, ranMs);
    this.#lastExit = exit;
  }

  /** @throws Problem crash_loop, with what ended the last instance */
  refuseWhileBackingOff(): void {
    const { pauseMs } = this;
    if (pauseMs === 0) return;
    const { reason, detail } = this.#lastExit ?? { reason: 'crashed', detail: '' };
    throw new Problem(
      'crash_loop',
      `It failed ${this.#failures.count} times in a row, last with ${reason}: ${detail}`,
      {
        headers: { 'retry-after': String(Math.ceil(pauseMs / 1_000)) },
        extensions: { reason },
      },
    );
  }
}
