/**
 * Room for descriptors in a child, made before anybody waits. Linux doubles a process's table of descriptors when it is
 * full, and where the process has threads it first waits for every processor to have passed the kernel's grace period
 * (`synchronize_rcu` in `expand_files`, fs/file.c): 5 to 16 ms in the middle of accepting connections. A table never
 * shrinks, and between fork and exec there is one thread: a child that is given a high descriptor has a large table, at
 * no cost.
 */
import type { StdioOptions } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';

type Stdio = Exclude<StdioOptions, string>;

/** Below the limit of the process. */
const SPARE = 64;

/**
 * Calls `spawn` with stdio that makes room.
 * @param descriptors open at once; fewer where the limit of the process is lower
 */
export function withDescriptorTable<T>(stdio: Stdio, descriptors: number, spawn: (stdio: Stdio) => T): T {
  // libuv moves descriptors above the list's end for a moment.
  const highest = Math.min(descriptors, openFilesLimit() - SPARE) - 1;
  if (highest <= stdio.length) return spawn(stdio);
  const nothing = openSync('/dev/null', 'r');
  try {
    const unused = new Array<'ignore'>(highest - stdio.length).fill('ignore');
    return spawn([...stdio, ...unused, nothing]);
  } finally {
    closeSync(nothing);
  }
}

/** 0 where the system does not say. */
function openFilesLimit(): number {
  try {
    return Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}
