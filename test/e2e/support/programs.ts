/** Programs of others that a test runs: whether they are here, and their life. */
import {
  type ChildProcess,
  type ChildProcessByStdio,
  execFileSync,
  type SpawnOptions,
  spawn,
} from 'node:child_process';
import { connect } from 'node:net';
import type { Readable } from 'node:stream';
import { until } from './until.ts';

/**
 * Whether programs are installed, to skip a suite without them on a developer's machine.
 * @throws Error in CI, where a suite that is skipped would be a suite that nobody runs
 */
export function available(...programs: string[]): boolean {
  const missing = programs.filter((program) => !onPath(program));
  if (missing.length > 0 && process.env.CI === 'true') {
    throw new Error(`${missing.join(', ')} must be installed here: see config/system-packages.json`);
  }
  return missing.length === 0;
}

function onPath(program: string): boolean {
  try {
    execFileSync('which', [program], { stdio: 'ignore', env: { PATH: searchPath() } });
    return true;
  } catch {
    return false;
  }
}

/** Debian keeps servers in /usr/sbin, which is not in everybody's path. */
function searchPath(): string {
  return `${process.env.PATH ?? ''}:/usr/sbin`;
}

export interface Program {
  pid: number;
  /** All that it wrote to stdout and stderr. */
  output(): string;
  stop(): Promise<void>;
}

/** Starts a server; resolves when it listens on the port. */
export async function startProgram(
  command: string,
  args: string[],
  port: number,
  env: Record<string, string> = {},
  as: Pick<SpawnOptions, 'cwd' | 'uid' | 'gid'> = {},
): Promise<Program> {
  const child: ChildProcessByStdio<null, Readable, Readable> = spawn(command, args, {
    ...as,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: searchPath(), ...env },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => {
      output += text;
    });
  }
  const program = { pid: child.pid ?? 0, output: () => output, stop: () => end(child) };
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`${command} ended with ${child.exitCode}: ${output}`);
      return listens(port);
    },
    () => `${command} does not listen on ${port}: ${output}`,
  ).catch(async (error) => {
    await end(child);
    throw error;
  });
  return program;
}

function listens(port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(undefined));
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const slow = setTimeout(() => child.kill('SIGKILL'), 3_000);
  await exited;
  clearTimeout(slow);
}
