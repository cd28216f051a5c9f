/** A day in UTC, such as `2026-11-01`. @param time ms, or ISO 8601 */
export function dayOf(time: number | string): string {
  return new Date(time).toISOString().slice(0, 10);
}
