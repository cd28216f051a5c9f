/**
 * The days of a watch: which period is due, from when it counts, and under which key it is charged. Creation pays for
 * the first 24 hours; each further period of 24 hours is charged in advance.
 */

export const PERIOD_MS = 86_400_000;
/** A charge that comes later than this starts its period now: downtime and suspension are never billed back. */
export const LATE_MS = 15 * 60_000;
/** Longest time between taking a period and its charge being done or void, ms of real time; see `CLAIM_MS`. */
export const CHARGE_MS = 20_000;
/** A run has a period to itself for this long, ms of real time. It is over long after any charge that the run made. */
export const CLAIM_MS = 2 * CHARGE_MS;

/** Start of the period that is charged at `now`, ms; undefined while the watch is paid. UTC seconds, no pro-rata. */
export function duePeriod(paidThrough: number, now: number): number | undefined {
  if (now < paidThrough) return undefined;
  return now - paidThrough > LATE_MS ? wholeSecond(now) : paidThrough;
}

/** One key a period: a repeated charge is a duplicate, never a second charge. */
export function chargeKey(watch: string, periodStart: number): string {
  return `watch_day:${watch}:${new Date(periodStart).toISOString().replace('.000Z', 'Z')}`;
}

export function wholeSecond(ms: number): number {
  return Math.floor(ms / 1_000) * 1_000;
}
