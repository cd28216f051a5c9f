/** Starts a confined process and ends it; knows about the helper processes in between and nothing about its purpose. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { type Confinement, type Sandbox, SECCOMP_FD } from './confinement.ts';
import { endOrphans, endTree } from './leftovers.ts';
import { descend } from './process-tree.ts';
import type { SeccompProfile } from './seccomp.ts';

export interface ProcessEnd {
  /** Exit code, or undefined when a signal ended it. Helpers report a signal as 128 + its number. */
  code: number | undefined;
  signal: NodeJS.Signals | undefined;
}

export interface ConfinedProcess {
  stdin: Writable;
  stdout: Readable;
  stderr: Readable;
  /** What the program writes to file descriptor 3. */
  control: Readable;
  /** Resolves as soon as the process is gone; its last output may still be on the way. */
  exited: Promise<unknown>;
  /** Resolves when nothing of it runs and all output was read. Never rejects. */
  ended: Promise<ProcessEnd>;
  /** The outermost process; undefined when it could not be started. */
  helper: number | undefined;
  /** The program's own process; undefined until it runs. */
  pid(): number | undefined;
  /** Asks the program to end. */
  terminate(): void;
  /** Ends everything at once. */
  kill(): void;
}

/** How long a start may take before it is killed half done, and how often it is looked at, ms. */
const WHOLE_MS = 2_000;
const RETRY_MS = 5;
/**
 * A write past the limit of file size sends SIGXFSZ, which ends a process. If the process ignores it, the write fails
 * instead. Node resets all signals of a process that it spawns, so a shell ignores this one and becomes the program.
 */
const FILE_SIZE_FAILS = ['/bin/sh', '-c', 'trap "" XFSZ; exec "$@"', 'sh'] as const;
const WRITES_OBJECTS = new Set<SeccompProfile>(['objects', 'member']);
/** What lives on for so long behind its outermost process was left behind by it, ms. */
const ORPHANED_MS = 1_000;

export async function spawnConfined(sandbox: Sandbox, confinement: Confinement): Promise<ConfinedProcess> {
  const { file, args, seccomp } = await sandbox.command(confinement);
  const [first, ...rest] = [
    ...(WRITES_OBJECTS.has(confinement.profile) ? FILE_SIZE_FAILS : []),
    file,
    ...args,
  ] as const;
  const child: ChildProcess = spawn(first ?? file, rest, {
    stdio: ['pipe', 'pipe', 'pipe', 'pipe', ...(seccomp ? (['pipe'] as const) : [])],
    // Nothing of the host's environment, where secrets may be; helpers are named by full paths.
    env: { ...confinement.environment },
    cwd: '/',
  });
  const ended = new Promise<ProcessEnd>((resolve) => {
    child.once('error', () => resolve({ code: 127, signal: undefined }));
    // `close` comes after the last output was read.
    child.once('close', (code, signal) => resolve({ code: code ?? undefined, signal: signal ?? undefined }));
  });
  const exited = new Promise((resolve) => {
    child.once('error', resolve);
    child.once('exit', resolve);
  });
  // Somebody else may kill it half done, such as the kernel where memory runs out: then output would never end.
  child.once('exit', () => {
    const timer = setTimeout(() => endOrphans([file, ...args]), ORPHANED_MS);
    void ended.then(() => clearTimeout(timer));
  });
  for (const stream of child.stdio) stream?.on('error', () => undefined);
  if (seccomp) (child.stdio[SECCOMP_FD] as Writable).end(seccomp);
  await Promise.race([once(child, 'spawn'), ended]);

  let program: number | undefined;
  const pid = (): number | undefined => {
    if (program === undefined && child.pid !== undefined) program = descend(child.pid, sandbox.depth);
    return program;
  };
  /**
   * Once the program is there, the helpers' death signals are set, too. One that dies earlier leaves a child behind that
   * waits for it for ever (bwrap 0.8.0), so this waits for the program, a few milliseconds at most.
   */
  const killWhenWhole = (deadline: number): void => {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const target = pid();
    if (target === undefined && performance.now() < deadline) {
      setTimeout(killWhenWhole, RETRY_MS, deadline);
      return;
    }
    endTree(child.pid);
  };
  return {
    stdin: child.stdio[0] as Writable,
    stdout: child.stdio[1] as Readable,
    stderr: child.stdio[2] as Readable,
    control: child.stdio[3] as Readable,
    helper: child.pid,
    exited,
    ended,
    pid,
    terminate() {
      // The helpers do not pass signals on.
      const target = pid() ?? child.pid;
      if (target !== undefined && child.exitCode === null && child.signalCode === null) askToEnd(target);
    },
    kill() {
      killWhenWhole(performance.now() + WHOLE_MS);
    },
  };
}

function askToEnd(pid: number): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch {
    // It ended in the meantime.
  }
}
