/**
 * Makes a process yield to others while it hangs. Linux weighs processes by session where `sched_autogroup` is on, which
 * takes a write to /proc, and by their nice value where it is not.
 */
import { writeFileSync } from 'node:fs';
import os from 'node:os';

/** About a tenth of the weight of the others. */
const LOW = 10;

/** Best effort: raising again is refused to hosts that are not root, and the process has then ended or answered. */
export function setYielding(pid: number, yielding: boolean): void {
  const nice = yielding ? LOW : 0;
  try {
    os.setPriority(pid, nice);
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // It is gone, the kernel has no autogroups, or it may not be raised.
  }
}
