/**
 * How much of a crowded machine each process gets. Linux weighs processes by session where `sched_autogroup` is on,
 * which takes a write to /proc, by their nice value where it is not, and instances by their cgroups where those are
 * delegated.
 *
 * Who wakes up goes first only where it weighs about three times as much as those who run; among equals it waits for a
 * tick of the scheduler now and then (measured on Linux 6.18 with three busy loops on two cores: p99 of a wakeup 3.5 ms
 * among equals, 0.06 ms five steps of nice above), and so it does where it wakes up on another core than it ran on,
 * unless its time slice is shorter. Hence the order: first the edge, which everybody's requests cross twice; then
 * tenants that want little; the host's other parts, which a tenant can keep busy, only then; and last who wants a core
 * all the time, for as long as others are served, too. The supervisor is left as whoever starts the host made it.
 */
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import { setTimeSlice } from './time-slice.ts';

/** How much of a core a process has wanted lately. */
export type Appetite = 'light' | 'steady' | 'hungry';

/** What a tenant's process counts for: by its appetite, or `alone`: it wants more than little, and no other is served. */
export type Standing = Appetite | 'alone';

/** Nice values; five steps are about a factor of three. */
export interface Levels extends Record<Standing, number> {
  edge: number;
  process: number;
}

/**
 * As root. Other programs of the machine stand between tenants that want little and those that want more. A tenant that
 * is alone is what all parts work for: with the weight of other programs 10 MB answers flowed by a fifth more slowly.
 */
export const RAISED: Levels = { edge: -12, light: -8, process: -3, alone: -3, steady: 4, hungry: 19 };
/** Who may not raise anything can only lower: what is not the edge yields to other programs, too. */
export const LOWERED: Levels = { edge: 0, light: 3, process: 7, alone: 7, steady: 9, hungry: 19 };

/**
 * Time slices for the same order, microseconds; 0: the kernel's, 1,400 on two cores. All are shorter than that, and long
 * enough for a piece of work: who has used up a slice may have to wait for a tick again (with 100 for the edge it took
 * 4 % more CPU a request).
 */
const SLICES: Levels = { edge: 600, light: 800, process: 1_000, alone: 0, steady: 0, hungry: 0 };

/** `cpu.weight` of cgroup v2 for the same order, 1 to 10,000; all parts together have {@link HOST_WEIGHT}. */
export const WEIGHTS: Record<Standing, number> = { light: 300, alone: 300, steady: 100, hungry: 2 };
export const HOST_WEIGHT = 1_000;

/** Until a part could be raised. */
let levels = LOWERED;

/** For a part that leads a session of its own. Best effort. */
export function setProcessPriority(pid: number, process: string): void {
  const kind = process === 'edge' ? 'edge' : 'process';
  if (renice(pid, RAISED[kind])) levels = RAISED;
  else renice(pid, LOWERED[kind]);
  setSessionPriority(pid, levels[kind]);
  setTimeSlice(pid, SLICES[kind]);
}

/**
 * For processes of a tenant.
 * @param pids all of the same session
 * @returns false: not now; the kernel lets who is not root change a session ten times a second, of all sessions
 */
export function setTenantPriority(pids: number[], standing: Standing): boolean {
  // Who is not root can lower the nice value of a process, and never raise it again; a session's goes both ways.
  if (levels === RAISED) for (const pid of pids) renice(pid, levels[standing]);
  for (const pid of pids) setTimeSlice(pid, SLICES[standing]);
  const [leader] = pids;
  return leader === undefined || setSessionPriority(leader, levels[standing]);
}

/**
 * For the edge itself: as heavy as the other parts, and back. Only where it could be raised: nobody else can go back.
 * @param light for as long as nobody has to be protected from anybody
 */
export function setOwnPriority(light: boolean): void {
  if (![RAISED.edge, RAISED.process].includes(os.getPriority())) return;
  const nice = light ? RAISED.process : RAISED.edge;
  renice(process.pid, nice);
  setSessionPriority(process.pid, nice);
}

function renice(pid: number, nice: number): boolean {
  try {
    os.setPriority(pid, nice);
  } catch {
    // It is gone, or this host may not.
    return false;
  }
  return true;
}

function setSessionPriority(pid: number, nice: number): boolean {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch (error) {
    // Anything else: the kernel has no autogroups, or the process is gone.
    return (error as NodeJS.ErrnoException).code !== 'EAGAIN';
  }
  return true;
}
