/**
 * How much of a crowded machine each process gets. Linux weighs processes by session where `sched_autogroup` is on,
 * which takes a write to /proc, and by their nice value where it is not. The host's parts, which every tenant waits
 * for, weigh three times as much as a tenant. As root they are raised, so that tenants keep their weight beside other
 * programs of the machine; else tenants are lowered.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';

/** Five steps of nice are about a factor of three. */
const STEP = 5;

/** Whether a part could be raised. */
let raised = false;

/**
 * Makes this process' session weigh more, where it leads one, as under systemd; a shell's session holds other programs,
 * too. The process itself stays as it is: what it starts would inherit that. Best effort.
 */
export function setSupervisorPriority(): void {
  try {
    // Field 6 of stat, proc_pid_stat(5).
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const session = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[3]);
    if (session === process.pid) writeFileSync('/proc/self/autogroup', String(-STEP));
  } catch {
    // Not root, or the kernel has no autogroups.
  }
}

/** For a process that leads a session of its own. */
export function setPartPriority(pid: number): void {
  raised = setPriority(pid, -STEP);
}

/** @param yielding as long as it hangs: other tenants go first */
export function setTenantPriority(pid: number, yielding = false): void {
  setPriority(pid, (raised ? 0 : STEP) + (yielding ? STEP : 0));
}

function setPriority(pid: number, nice: number): boolean {
  try {
    os.setPriority(pid, nice);
  } catch {
    // It is gone, or a host that is not root may not raise it.
    return false;
  }
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // The kernel has no autogroups.
  }
  return true;
}
