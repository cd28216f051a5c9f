/** What the kernel says about processes: children, CPU time, private memory. Everything is read from /proc. */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux reports CPU time in this unit to user space on every architecture Node runs on. */
const TICKS_PER_SECOND = 100;

export interface ProcessUsage {
  /** User and system time since the start of all threads, and of children that have ended, ms. */
  cpuMs: number;
  /** Anonymous and shared-memory pages, resident or swapped, bytes: what the process costs by itself. */
  privateBytes: number;
}

/** @returns undefined when the process is gone */
export function usageOf(pid: number): ProcessUsage | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may hold anything, parentheses too.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    return {
      cpuMs: (ticks * 1_000) / TICKS_PER_SECOND,
      privateBytes: kilobytes(status, 'RssAnon') + kilobytes(status, 'RssShmem') + kilobytes(status, 'VmSwap'),
    };
  } catch {
    return undefined;
  }
}

/** Changes whenever the process' first thread has run, however shortly: its time on a processor in ns (proc_pid_schedstat). */
export function workOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/schedstat`, 'latin1').split(' ', 1)[0];
  } catch {
    // It is gone, or the kernel has no CONFIG_SCHED_INFO.
    return undefined;
  }
}

/**
 * How long the process' first thread has run, and has waited for a core, ms (proc_pid_schedstat).
 * @returns undefined when the process is gone, or the kernel has no CONFIG_SCHED_INFO
 */
export function scheduleOf(pid: number): { ranMs: number; waitedMs: number } | undefined {
  try {
    const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/schedstat`, 'latin1').split(' ').map(Number);
    return { ranMs: ran / 1e6, waitedMs: waited / 1e6 };
  } catch {
    return undefined;
  }
}

/** How long the process' first thread has not slept so far: it ran, or waited for a core, ms; undefined as of `scheduleOf`. */
export function wantedMsOf(pid: number): number | undefined {
  const schedule = scheduleOf(pid);
  return schedule && schedule.ranMs + schedule.waitedMs;
}

/** Direct children, oldest first. */
export function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number);
  } catch {
    return childrenByScan(pid);
  }
}

/** The process itself and all below it. */
export function treeOf(pid: number): number[] {
  const found = [pid];
  for (const parent of found) found.push(...childrenOf(parent));
  return found;
}

/** The program behind `depth` helper processes; undefined while it is not there yet. */
export function descend(pid: number, depth: number): number | undefined {
  let found: number | undefined = pid;
  for (let level = 0; level < depth && found !== undefined; level++) found = childrenOf(found)[0];
  return found;
}

/** Memory that programs may still take, bytes. */
export function availableMemory(): number {
  return kilobytes(readFileSync('/proc/meminfo', 'latin1'), 'MemAvailable');
}

/** For kernels without CONFIG_PROC_CHILDREN. */
function childrenByScan(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
        return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
      } catch {
        return false;
      }
    });
}

function kilobytes(text: string, name: string): number {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text);
  return Number(match?.[1] ?? 0) * 1_024;
}
