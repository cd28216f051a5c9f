/**
 * Gives memory back to the system after a flood. V8 collects when more is asked for, and keeps the room that it had: a
 * process that is idle again would keep what its callers left for hours.
 */
import { performance } from 'node:perf_hooks';
import { collectGarbage } from './garbage.ts';

const EVERY_MS = 10_000;
/** Periods to wait after a collection that gave little back: each stops the process for a tenth of a second. */
const PAUSE = 3;
/** More than the least that it ever took, bytes. */
const WORTH_BYTES = 50_331_648;
/** A process that is busier than this is collected as it goes. */
const IDLE = 0.25;

export function giveMemoryBack(): void {
  let least = Number.POSITIVE_INFINITY;
  let pause = 0;
  let seen = performance.eventLoopUtilization();
  setInterval(() => {
    const busy = performance.eventLoopUtilization(seen).utilization;
    seen = performance.eventLoopUtilization();
    const resident = process.memoryUsage.rss();
    least = Math.min(least, resident);
    if (pause > 0) pause -= 1;
    else if (busy < IDLE && resident - least > WORTH_BYTES) {
      // Of the kinds of collection only the last resort also gives back the room for young objects.
      collectGarbage({ type: 'major', flavor: 'last-resort' });
      pause = resident - process.memoryUsage.rss() < WORTH_BYTES / 2 ? PAUSE : 0;
    }
  }, EVERY_MS).unref();
}
