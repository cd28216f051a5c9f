/**
 * Time that only goes on, ms: CLOCK_MONOTONIC, the same for all processes of the machine. For durations and deadlines: a
 * step of the machine's clock (NTP, a resumed virtual machine) must not end a query or a process as late.
 * `performance.now()` does within one process.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}
