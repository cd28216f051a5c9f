/**
 * What a price is measured against: the lowest price of the 30 days before the drop, as the service itself observed
 * it (Directive 98/6/EC, article 6a). A shop's own list price is reported, never used.
 */

export interface PricePoint {
  /** ms */
  at: number;
  minor: number;
}

export interface Reference {
  kind: 'min_30d_before_drop';
  minor: number;
  /** Window, ms. */
  from: number;
  to: number;
  /** UTC days of the window with an observation. */
  days_observed: number;
}

export interface PriceHistory {
  minor: number;
  /** When the present price was first seen after a higher one; the first observation where there was none. */
  since: number;
  /** Undefined under 14 observed days, or where the price did not drop. */
  reference: Reference | undefined;
  /** Days observed in the window before `since`. */
  days_observed: number;
  discount_bps: number;
  /** Nothing cheaper was seen in all of the history. */
  at_low: boolean;
}

const DAY_MS = 86_400_000;
const WINDOW_MS = 30 * DAY_MS;
const FEWEST_DAYS = 14;

/**
 * @param points successful observations, oldest first
 * @returns undefined for an empty history
 */
export function readHistory(points: readonly PricePoint[]): PriceHistory | undefined {
  const last = points.at(-1);
  if (!last) return undefined;
  let start = points.length - 1;
  while (start > 0 && points[start - 1]?.minor === last.minor) start -= 1;
  const since = points[start]?.at ?? last.at;
  const from = since - WINDOW_MS;
  const before = points.slice(0, start);
  const inside = before.filter(({ at }) => at >= from);
  // The price in force when the window began counts too, if it was seen before.
  const carried = before.filter(({ at }) => at < from).at(-1);
  const days_observed = new Set(inside.map(({ at }) => Math.floor(at / DAY_MS))).size;
  const lowest = Math.min(...inside.map(({ minor }) => minor), carried?.minor ?? Number.POSITIVE_INFINITY);
  const known = days_observed >= FEWEST_DAYS && Number.isFinite(lowest);
  const reference: Reference | undefined = known
    ? { kind: 'min_30d_before_drop', minor: lowest, from, to: since, days_observed }
    : undefined;
  return {
    minor: last.minor,
    since,
    reference,
    days_observed,
    discount_bps: reference && last.minor < lowest ? Math.floor(((lowest - last.minor) * 10_000) / lowest) : 0,
    at_low: points.every(({ minor }) => minor >= last.minor),
  };
}

/** The observation that a reference stands on: the latest at its price, before the drop. */
export function referencePoint<Point extends PricePoint>(
  points: readonly Point[],
  reference: Reference,
): Point | undefined {
  return points.findLast(({ at, minor }) => at < reference.to && minor === reference.minor);
}

/** How far a shop says its price is below its own list price, 1/100 %; 0 where it says nothing. */
export function claimedDiscount(minor: number, listMinor: number | null): number {
  if (listMinor === null || listMinor <= minor) return 0;
  return Math.floor(((listMinor - minor) * 10_000) / listMinor);
}
