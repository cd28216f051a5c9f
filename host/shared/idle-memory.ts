/**
 * Gives memory back to the system after a flood. V8 collects when more is asked for, and keeps the room that it had: a
 * process that is idle again would keep what its callers left for hours.
 */
import { performance } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const EVERY_MS = 10_000;
/** More than after the last collection, bytes: each stops the process for a tenth of a second. */
const WORTH_BYTES = 50_331_648;
/** A process that is busier than this is collected as it goes. */
const IDLE = 0.25;

export function giveMemoryBack(): void {
  let kept = process.memoryUsage.rss();
  let seen = performance.eventLoopUtilization();
  setInterval(() => {
    const busy = performance.eventLoopUtilization(seen).utilization;
    seen = performance.eventLoopUtilization();
    if (busy > IDLE || process.memoryUsage.rss() - kept < WORTH_BYTES) return;
    // Of the kinds of collection only the last resort also gives back the room for young objects.
    collectGarbage({ type: 'major', flavor: 'last-resort' });
    kept = process.memoryUsage.rss();
  }, EVERY_MS).unref();
}

/** As of V8's own `gc()`. */
export interface Collection {
  type: 'minor' | 'major';
  flavor?: 'regular' | 'last-resort';
}

let collect: ((how: Collection) => void) | undefined;

/** Stops the process: for 1 to 2 ms when minor, for some tens when major. */
export function collectGarbage(how: Collection): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as (how: Collection) => void;
  }
  collect(how);
}
