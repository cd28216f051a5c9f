/** When a deployment that keeps failing may be started again. Pure: the caller keeps the record and the time. */

export interface FailureRecord {
  /** Failures in a row, without a long enough good run between them. */
  count: number;
  /** Time before which no start is allowed, ms of `performance.now()`. */
  retryAt: number;
}

export const NO_FAILURES: FailureRecord = { count: 0, retryAt: 0 };

/** The first failure costs nothing: it may have been one bad request. */
const FREE_FAILURES = 1;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** An instance that lived this long was good. */
const GOOD_RUN_MS = 60_000;

/** @param ranMs how long the instance lived before it failed; 0 when it did not start */
export function afterFailure(record: FailureRecord, now: number, ranMs: number): FailureRecord {
  const count = (ranMs >= GOOD_RUN_MS ? 0 : record.count) + 1;
  const doublings = count - FREE_FAILURES - 1;
  const pause = doublings < 0 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** doublings);
  return { count, retryAt: now + pause };
}
