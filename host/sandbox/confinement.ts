/** What a sandbox is asked for, and what it answers: a program with its files, and the command line that starts it. */
import type { SeccompProfile } from './seccomp.ts';

export type SandboxLevel = 'bwrap' | 'unshare' | 'none';

/** A file or folder of the host that is visible inside, read-only unless `writable`. */
export interface Bind {
  from: string;
  to: string;
  writable?: boolean;
}

/**
 * Threads of one user. The kernel counts those of all its sandboxes together: the instances of a tenant, old and new, and
 * its databases. workerd (1.20261117.1) has up to 512 for work that blocks while its objects are a cluster's, and ends where
 * it cannot start one; so this is out of their reach, and bounds only what has broken out. A control group bounds each.
 */
export const USER_THREADS = 4_096;

export interface Confinement {
  /** The executable, as a path of the host. */
  program: string;
  args: string[];
  binds: Bind[];
  /** Programs and libraries whose shared libraries must be there too, as paths of the host. */
  needs?: string[];
  /** The user that the process runs as; undefined: the host's own, in a user namespace. See users.ts. */
  uid: number | undefined;
  profile: SeccompProfile;
  limits: { openFiles: number /** Largest file that can be written, bytes. */; fileBytes: number };
  environment?: Record<string, string>;
}

/** What to spawn. When `seccomp` is set, the child must find its bytes at file descriptor `SECCOMP_FD`. */
export interface Command {
  file: string;
  args: string[];
  seccomp: Uint8Array | undefined;
}

/** File descriptor at which bwrap reads the filter; 3 is workerd's control channel. */
export const SECCOMP_FD = 4;

export interface Sandbox {
  readonly level: SandboxLevel;
  /** One sentence for the operator. */
  readonly detail: string;
  /** How many helper processes stand between the one that is spawned and the program. */
  readonly depth: number;
  /** The path under which the process sees a bind. */
  inside(bind: Bind): string;
  command(confinement: Confinement): Promise<Command>;
  /** Looks up what these programs need, ahead of the first start. */
  prepare(programs: string[]): Promise<unknown>;
}
