/**
 * Monotonic time, ms (CLOCK_MONOTONIC), shared by all processes of the machine. Use it for durations and deadlines: a step
 * of the system clock (NTP, a resumed virtual machine) must not make a query or a process time out. Within one process,
 * `performance.now()` is enough.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}
