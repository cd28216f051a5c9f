/**
 * Limits that the kernel keeps by itself: one cgroup (version 2) per instance, where the host was given a subtree of its
 * own, as systemd does with `Delegate=yes`. Elsewhere the watchdog of the runtime stands alone.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { treeOf } from '../sandbox/process-tree.ts';
import { HOST_WEIGHT, type Standing, WEIGHTS } from '../shared/priority.ts';

export interface CgroupLimits {
  /** Above what the watchdog allows: this is the hard stop for what is quicker than it. */
  memoryBytes: number;
  processes: number;
}

export interface Cgroup {
  /** Best effort: the group may be gone. */
  weigh(standing: Standing): void;
  /** Best effort, as above. @param bytes of memory that it may take from now on */
  allow(bytes: number): void;
  /** Whether the kernel killed something in it for want of memory. */
  ranOutOfMemory(): boolean;
  /** Removes it once its processes are gone. */
  remove(): void;
}

const NEEDED = ['cpu', 'memory', 'pids'];
const HOST_GROUP = 'turnpike-host';

export class Cgroups {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * @param selfCgroup content of /proc/self/cgroup
   * @param mounts content of /proc/self/mountinfo
   * @returns undefined, or why there are none
   */
  static open(
    selfCgroup = readFileSync('/proc/self/cgroup', 'utf8'),
    mounts = readFileSync('/proc/self/mountinfo', 'utf8'),
  ): { cgroups: Cgroups } | { reason: string } {
    const mount = mounts.split('\n').find((line) => line.includes(' - cgroup2 '));
    const own = /^0::(.*)$/m.exec(selfCgroup)?.[1];
    if (mount === undefined || own === undefined) return { reason: 'there is no cgroup v2' };
    // Whoever starts the host again may have been moved together with the one before.
    const given = path.basename(own) === HOST_GROUP ? path.dirname(own) : own;
    const folder = path.join(mount.split(' ')[4] ?? '', given);
    const missing = NEEDED.filter((name) => !read(folder, 'cgroup.controllers').split(/\s/).includes(name));
    if (missing.length > 0) return { reason: `cgroup v2 lacks ${missing.join(', ')} here` };
    try {
      // Only groups without processes of their own may divide what they have.
      mkdirSync(path.join(folder, HOST_GROUP), { recursive: true });
      for (const pid of read(folder, 'cgroup.procs').split('\n').filter(Boolean)) {
        writeFileSync(path.join(folder, HOST_GROUP, 'cgroup.procs'), pid);
      }
      writeFileSync(path.join(folder, 'cgroup.subtree_control'), NEEDED.map((name) => `+${name}`).join(' '));
      // The shared processes serve everybody: they come first when tenants fight for the CPU.
      writeFileSync(path.join(folder, HOST_GROUP, 'cpu.weight'), String(HOST_WEIGHT));
      sweep(folder);
    } catch (error) {
      return { reason: `cgroup v2 is not delegated to this user (${(error as Error).message})` };
    }
    return { cgroups: new Cgroups(folder) };
  }

  /** Puts a process and all below it into a group of their own. @returns undefined where that fails */
  confine(name: string, pid: number, { memoryBytes, processes }: CgroupLimits): Cgroup | undefined {
    const folder = path.join(this.#folder, name);
    try {
      mkdirSync(folder, { recursive: true });
      writeFileSync(path.join(folder, 'memory.max'), String(memoryBytes));
      if (existsSync(path.join(folder, 'memory.swap.max'))) writeFileSync(path.join(folder, 'memory.swap.max'), '0');
      writeFileSync(path.join(folder, 'pids.max'), String(processes));
      writeFileSync(path.join(folder, 'cpu.weight'), String(WEIGHTS.steady));
      for (const member of treeOf(pid)) writeFileSync(path.join(folder, 'cgroup.procs'), String(member));
    } catch {
      remove(folder);
      return undefined;
    }
    return {
      weigh: (standing) => write(folder, 'cpu.weight', WEIGHTS[standing]),
      allow: (bytes) => write(folder, 'memory.max', bytes),
      ranOutOfMemory: () => /^oom_kill [1-9]/m.test(read(folder, 'memory.events')),
      remove: () => remove(folder),
    };
  }
}

function write(folder: string, name: string, value: number): void {
  try {
    writeFileSync(path.join(folder, name), String(value));
  } catch {
    // Its processes have ended, and it was removed.
  }
}

function read(folder: string, name: string): string {
  try {
    return readFileSync(path.join(folder, name), 'utf8');
  } catch {
    return '';
  }
}

/** Groups of what runs. Others, of a host that was killed, are removed. */
const GROUP_OF_A_SANDBOX = /^cell-\d+$/;

/** How long after its end the kernel may still count a process, and how often it is tried meanwhile, ms. */
const GONE_MS = 30_000;
const RETRY_MS = 200;

function sweep(folder: string): void {
  for (const name of readdirSync(folder)) if (GROUP_OF_A_SANDBOX.test(name)) remove(path.join(folder, name));
}

/** An empty group costs the kernel some memory: none must stay behind. */
function remove(folder: string, triedMs = 0): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    const counted = (error as NodeJS.ErrnoException).code === 'EBUSY';
    if (counted && triedMs < GONE_MS) setTimeout(remove, RETRY_MS, folder, triedMs + RETRY_MS).unref();
  }
}
