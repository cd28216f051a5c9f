/**
 * Gives memory back to the system after a flood. V8 collects when more is asked for: a process that is idle again would
 * keep what its callers left for hours.
 */
import { performance } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const EVERY_MS = 20_000;
/** More than the least that it ever took, bytes. */
const WORTH_BYTES = 33_554_432;
/** A process that is busier than this is collected as it goes. */
const IDLE = 0.25;

export function giveMemoryBack(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let least = Number.POSITIVE_INFINITY;
  let seen = performance.eventLoopUtilization();
  setInterval(() => {
    const busy = performance.eventLoopUtilization(seen).utilization;
    seen = performance.eventLoopUtilization();
    const resident = process.memoryUsage.rss();
    least = Math.min(least, resident);
    if (busy < IDLE && resident - least > WORTH_BYTES) collect();
  }, EVERY_MS).unref();
}
