/**
 * Runs one program for one job: no shell, an empty environment, low priority, a deadline, bounded output.
 * The programs (decoders, recognizers, synthesizers) are ours or the distribution's, what they read is not.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { constants, setPriority } from 'node:os';
import { EngineFailure } from './failure.ts';

export interface ChildJob {
  program: string;
  args: string[];
  cwd: string;
  signal: AbortSignal;
  timeoutMs: number;
  /** Private memory after which the program is killed, bytes. */
  memoryBytes?: number;
  maxOutputBytes?: number;
}

export interface ChildResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

const MEMORY_CHECK_MS = 200;

/**
 * @throws EngineFailure timeout, unsupported_audio (memory), no_engine (not installed); the signal's reason when aborted
 */
export async function runChild(job: ChildJob): Promise<ChildResult> {
  job.signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<ChildResult>();
  const child = spawn(job.program, job.args, {
    cwd: job.cwd,
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: job.cwd, LC_ALL: 'C.UTF-8' },
    stdio: ['ignore', 'pipe', 'pipe'],
    // a session of its own, which is what Linux weighs
    detached: true,
  });
  const end = (failure: unknown) => {
    reject(failure);
    endProgram(child);
  };
  const onAbort = () => end(job.signal.reason);
  job.signal.addEventListener('abort', onAbort, { once: true });
  const deadline = setTimeout(
    () => end(new EngineFailure('timeout', 'The audio took too long to process; send a shorter part.')),
    job.timeoutMs,
  );
  const watch = job.memoryBytes === undefined ? undefined : watchMemory(child.pid, job.memoryBytes, end);
  const output = { stdout: '', stderr: '' };
  const limit = job.maxOutputBytes ?? 16 * 1024 * 1024;
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8');
    child[name].on('data', (text: string) => {
      if (name === 'stderr') output.stderr = (output.stderr + text).slice(-4096);
      else if (output.stdout.length + text.length > limit) end(new EngineFailure('internal', 'Too much output.'));
      else output.stdout += text;
    });
  }
  child.on('error', (error: NodeJS.ErrnoException) =>
    reject(error.code === 'ENOENT' ? new EngineFailure('no_engine', `${job.program} is not installed.`) : error),
  );
  child.on('close', (code) => resolve({ code, ...output }));
  lowerPriority(child.pid);
  try {
    return await promise;
  } finally {
    clearTimeout(deadline);
    clearInterval(watch);
    job.signal.removeEventListener('abort', onAbort);
  }
}

/**
 * Ends a program that was started with `detached`, and what confines it. bwrap is two processes: where the outer one is
 * killed while the inner one waits for it, before it has asked for its death signal, the inner one waits for ever (0.8.0).
 * Until the inner one makes a session of its own it is in the group; from its start on it is below the outer one.
 */
export function endProgram({ pid, exitCode, signalCode }: ChildProcess): void {
  // its number may be another's by then
  if (pid === undefined || exitCode !== null || signalCode !== null) return;
  for (const one of [...below(pid), -pid]) {
    try {
      process.kill(one, 'SIGKILL');
    } catch {
      // it ended already
    }
  }
}

/** All processes below one, the innermost first. */
function below(pid: number): number[] {
  let children = '';
  try {
    children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    // it ended already
  }
  return children
    .split(' ')
    .filter(Boolean)
    .flatMap((child) => [...below(Number(child)), Number(child)]);
}

/**
 * Whatever serves callers at once goes first; a job takes what is left. With `sched_autogroup` Linux weighs sessions,
 * and processes within one by their nice value (sched(7)): in the session of the host a job would weigh as much as it.
 */
export function lowerPriority(pid: number | undefined): void {
  if (pid === undefined) return;
  const nice = constants.priority.PRIORITY_BELOW_NORMAL;
  try {
    setPriority(pid, nice);
    writeFileSync(`/proc/${pid}/autogroup`, String(nice));
  } catch {
    // it ended already, or the kernel has no autogroups
  }
}

/** @param end called when the program takes more private memory than `limit`, bytes @returns the timer, to be cleared */
export function watchMemory(
  pid: number | undefined,
  limit: number,
  end: (failure: EngineFailure) => void,
): NodeJS.Timeout {
  return setInterval(async () => {
    if (pid !== undefined && (await privateMemory(pid)) > limit) {
      end(
        new EngineFailure('unsupported_audio', 'The audio needs too much memory to decode; send it in another format.'),
      );
    }
  }, MEMORY_CHECK_MS);
}

/** Of a process and all below it, bytes: a confined program is a grandchild. */
async function privateMemory(pid: number): Promise<number> {
  const [status, children] = await Promise.all([
    readFile(`/proc/${pid}/status`, 'utf8').catch(() => ''),
    readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => ''),
  ]);
  const own = Number(/^RssAnon:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1024;
  const below = await Promise.all(
    children
      .split(' ')
      .filter(Boolean)
      .map((child) => privateMemory(Number(child))),
  );
  return below.reduce((sum, bytes) => sum + bytes, own);
}
