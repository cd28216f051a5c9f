/** When a certificate is due, and when to try again: pure decisions. */

export interface CertificateState {
  name: string;
  /** Of the certificate that is there, ms since the epoch. */
  validFrom: number | undefined;
  validTo: number | undefined;
  /** Attempts that failed in a row. */
  failures: number;
  /** Why the last one failed. */
  reason: string | undefined;
  /** Not before this, after a failure. */
  nextTryAt: number | undefined;
}

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const LONGEST_WAIT_MS = 7 * DAY_MS;
/** Of a certificate's life; after it the next one is obtained. */
const RENEW_AT = 2 / 3;

/** When to ask the authority, ms since the epoch. */
export function dueAt(state: CertificateState, now: number): number {
  const wanted =
    state.validFrom === undefined || state.validTo === undefined
      ? 0
      : state.validFrom + RENEW_AT * (state.validTo - state.validFrom);
  // A wait that is longer than any was planned while the clock was ahead.
  const { nextTryAt = 0 } = state;
  return Math.max(wanted, nextTryAt > now + LONGEST_WAIT_MS ? 0 : nextTryAt);
}

/** One minute after the first failure, then twice as long each time, at most a day; longer where the authority says so, up to a week. */
export function nextTry(failures: number, now: number, retryAfterMs: number): number {
  const backoff = Math.min(DAY_MS, MINUTE_MS * 2 ** Math.min(failures - 1, 20));
  return now + Math.min(Math.max(backoff, retryAfterMs), LONGEST_WAIT_MS);
}
