/**
 * How much of a crowded machine a tenant's process gets. Linux weighs processes by session where `sched_autogroup` is
 * on, which takes a write to /proc, and by their nice value where it is not. A sandbox is a session of its own, while all
 * parts of the host share one: without this, edge, storage and supervisor together would count as much as one tenant.
 */
import { writeFileSync } from 'node:fs';
import os from 'node:os';

/** About a third of the weight of the host's own parts, which every tenant waits for. */
const TENANT = 5;
/** About a third of that of other tenants. */
const YIELDING = 10;

/** Makes a process yield to the host's own, and while it hangs to other tenants' too. Best effort. */
export function setTenantPriority(pid: number, yielding = false): void {
  const nice = yielding ? YIELDING : TENANT;
  try {
    os.setPriority(pid, nice);
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // It is gone, the kernel has no autogroups, or a host that is not root may not raise it again.
  }
}
