/** Time that never goes back, the same in all processes of a machine. */

/** ms */
export function monotonicNow(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}
