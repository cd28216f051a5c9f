/**
 * Room for descriptors, made before anybody waits. Linux doubles a process's table of descriptors when it is full, and
 * where the process has threads it first waits for every processor to have passed the kernel's grace period
 * (`synchronize_rcu` in `expand_files`, fs/file.c): 5 to 16 ms in the middle of accepting connections. A table never
 * shrinks, so having had that many descriptors once is enough.
 */
import { closeSync, openSync } from 'node:fs';

/** @param descriptors open at once; fewer where the limit of the process or the machine is lower */
export function growDescriptorTable(descriptors: number): void {
  const opened: number[] = [];
  try {
    while ((opened.at(-1) ?? 0) < descriptors - 1) opened.push(openSync('/dev/null', 'r'));
  } catch {
    // As many as there may be: it is only for speed.
  } finally {
    for (const descriptor of opened) closeSync(descriptor);
  }
}
