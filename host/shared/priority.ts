/**
 * How much of a crowded machine each process gets. Linux weighs processes by session where `sched_autogroup` is on,
 * which takes a write to /proc, and by their nice value where it is not. The host's parts, which every tenant waits
 * for, weigh three times as much as a tenant. As root they are raised, so that tenants keep their weight beside other
 * programs of the machine; else tenants are lowered. Who wants a core all the time yields to those who want one for a
 * moment: beside two busy loops on two cores, p99 of another tenant was 4.3 ms without that and is 2.0 with it. Where
 * cgroups are delegated their weights count instead, and all tenants' are alike.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';

/** Five steps of nice are about a factor of three. */
const STEP = 5;

/** About a seventieth of a tenant's weight. */
const YIELDING = 19;

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

export function setTenantPriority(pid: number): void {
  setPriority(pid, tenantNice());
}

/** @param yielding it wants a core all the time: others go first */
export function setTenantYielding(pid: number, yielding: boolean): void {
  const nice = yielding ? YIELDING : tenantNice();
  // Who is not root can lower the nice value of a process, and never raise it again; a session's goes both ways.
  if (raised) setPriority(pid, nice);
  else setSessionPriority(pid, nice);
}

function tenantNice(): number {
  return raised ? 0 : STEP;
}

function setPriority(pid: number, nice: number): boolean {
  try {
    os.setPriority(pid, nice);
  } catch {
    // It is gone, or a host that is not root may not raise it.
    return false;
  }
  setSessionPriority(pid, nice);
  return true;
}

function setSessionPriority(pid: number, nice: number): void {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // The kernel has no autogroups.
  }
}
