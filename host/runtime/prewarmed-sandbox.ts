/**
 * Starts a sandbox with a workerd in it that waits for its configuration. The slow steps that do not depend on a tenant
 * (namespaces, mounts, loading the program) are done before a tenant needs it.
 */
import { chownSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { rootCertificates } from 'node:tls';
import type { Bind, Sandbox } from '../sandbox/confinement.ts';
import { type ConfinedProcess, spawnConfined } from '../sandbox/spawn.ts';
import { randomUser } from '../sandbox/users.ts';
import type { Cgroup, Cgroups } from './cgroups.ts';
import { workerdBinary } from './workerd-binary.ts';

export interface PrewarmedSandbox {
  /** Holds `http.sock` and `system.sock` once it is configured. */
  listenFolder: string;
  /** Holds the sockets that the instance may use; other modules create them there at any time. */
  servicesFolder: string;
  /** The user of the process; undefined: the host's own. */
  uid: number | undefined;
  /** The folders as the process sees them. */
  inside: { listen: string; services: string; objects?: string };
  process: ConfinedProcess;
  /** Set if cgroups enforce the limits. */
  cgroup: Cgroup | undefined;
  /** It refuses experimental compatibility flags, and cannot have static files. */
  judging: boolean;
}

export interface PrewarmedSandboxOptions {
  sandbox: Sandbox;
  /** Created for this sandbox; whoever ends the sandbox removes it. */
  listenFolder: string;
  servicesFolder: string;
  /** Default: a user of its own. A second sandbox on the same services needs the first one's. */
  uid?: number | undefined;
  /** A probe refuses experimental compatibility flags; an instance needs the option that allows them for static files. */
  judging?: boolean;
  /** It may write to this folder of Durable Objects. */
  objects?: { folder: string /** Largest file, bytes. */; fileBytes: number; clustered?: boolean } | undefined;
  cgroups?: { groups: Cgroups; memoryBytes: number } | undefined;
}

/** workerd ends when it cannot accept a connection: room for all callers that the edge lets in, and two calls of each. */
const OPEN_FILES = 16_384;
/** Threads of one sandbox, where it has a control group: more than workerd starts. */
const THREADS = 1_024;
/**
 * workerd's allocator, TCMalloc, keeps a cache for each CPU by restartable sequences (rseq). A thread can register one
 * user of them, and glibc 2.35 and later is first unless it is told not to; TCMalloc then falls back to a cache for each
 * thread, whose every call takes a longer way: 16 % more instructions for a small request.
 * https://github.com/google/tcmalloc/blob/master/docs/design.md#per-cpu-mode
 */
const ENVIRONMENT = { GLIBC_TUNABLES: 'glibc.pthread.rseq=0' };
/** Number of processors: TCMalloc keeps per-CPU caches only if it can read this file. */
const PROCESSORS: Bind[] = ['/sys/devices/system/cpu/possible']
  .filter((file) => existsSync(file))
  .map((file) => ({ from: file, to: file }));
const AUTHORITIES = 'authorities.pem';
/** The kernel's limit over the watchdog's: page cache and socket buffers count only there. */
export const HARD_LIMIT = 1.5;

export async function startPrewarmedSandbox({
  sandbox,
  listenFolder,
  servicesFolder,
  cgroups,
  uid = randomUser(),
  judging = false,
  objects,
}: PrewarmedSandboxOptions): Promise<PrewarmedSandbox> {
  rmSync(listenFolder, { recursive: true, force: true });
  mkdirSync(listenFolder, { recursive: true, mode: 0o700 });
  mkdirSync(servicesFolder, { recursive: true, mode: 0o755 });
  if (uid !== undefined) chownSync(listenFolder, uid, uid);
  const listen: Bind = { from: listenFolder, to: '/run/listen', writable: true };
  const services: Bind = { from: servicesFolder, to: '/run/services' };
  const disk: Bind | undefined = objects && { from: objects.folder, to: '/run/objects', writable: true };
  const process = await spawnConfined(sandbox, {
    program: workerdBinary(),
    // Verbose: only then are uncaught exceptions reported with their stacks.
    args: ['serve', '--binary', '-', '--control-fd=3', '--verbose', ...(judging ? [] : ['--experimental'])],
    binds: [listen, services, ...(disk ? [disk] : []), ...PROCESSORS],
    uid,
    profile: objects?.clustered ? 'member' : objects ? 'objects' : 'worker',
    limits: { openFiles: openFiles(), fileBytes: objects?.fileBytes ?? 0 },
    environment: objects?.clustered ? { ...ENVIRONMENT, ...authorities(sandbox, services) } : ENVIRONMENT,
  });
  const cgroup =
    process.helper === undefined
      ? undefined
      : cgroups?.groups.confine(`cell-${process.helper}`, process.helper, {
          memoryBytes: cgroups.memoryBytes * HARD_LIMIT,
          processes: THREADS,
        });
  // Later, because why the process ended is read from the group.
  if (cgroup) void process.ended.then(() => setImmediate(() => cgroup.remove()));
  return {
    listenFolder,
    servicesFolder,
    uid,
    inside: {
      listen: sandbox.inside(listen),
      services: sandbox.inside(services),
      ...(disk ? { objects: sandbox.inside(disk) } : {}),
    },
    process,
    cgroup,
    judging,
  };
}

/**
 * A member of a cluster does not start without certificates of authorities, though it speaks to its bucket without TLS
 * (1.20261117.1). Any one will do.
 */
function authorities(sandbox: Sandbox, services: Bind): Record<string, string> {
  writeFileSync(path.join(services.from, AUTHORITIES), rootCertificates[0] ?? '', { mode: 0o644 });
  return { SSL_CERT_FILE: path.join(sandbox.inside(services), AUTHORITIES) };
}

/** The folders of a sandbox that stands alone: `<folder>/l` and `<folder>/s`. */
export function sandboxFolders(folder: string): Pick<PrewarmedSandboxOptions, 'listenFolder' | 'servicesFolder'> {
  return { listenFolder: path.join(folder, 'l'), servicesFolder: path.join(folder, 's') };
}

/** At most the host's own hard limit (`Max open files` in proc_pid_limits(5)), because a limit cannot be raised. */
function openFiles(): number {
  const limits = /^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'));
  return Math.min(OPEN_FILES, Number(limits?.[1] ?? OPEN_FILES));
}
