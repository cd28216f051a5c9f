/** Runs the real `turnpike` command in a process of its own. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { onSmallDisk } from './small-disk.ts';

const ENTRY = fileURLToPath(new URL('../../../scripts/turnpike.mjs', import.meta.url));

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
  /** stdout as the one JSON document that it must be with `--json`. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any document
  json(): any;
}

export interface CommandOptions {
  cwd: string;
  env?: Record<string, string>;
  input?: string;
  /** Ends the command (as Ctrl-C does) once this is true of what it wrote to stdout. */
  stopWhen?: (stdout: string) => boolean;
  /** Makes this folder a disk of this size, as mount takes it, for the command alone. */
  smallDisk?: { folder: string; size: string };
}

export function turnpike(args: string[], options: CommandOptions): Promise<CommandResult> {
  const { cwd, env = {}, input, stopWhen, smallDisk } = options;
  const command: [string, ...string[]] = [process.execPath, ENTRY, ...args];
  const [program, ...rest] = smallDisk ? onSmallDisk(smallDisk.folder, smallDisk.size, command) : command;
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, {
      cwd,
      env: { PATH: process.env.PATH ?? '', HOME: cwd, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    let stopped = false;
    child.stdout.setEncoding('utf8').on('data', (piece: string) => {
      stdout += piece;
      // Once: a second Ctrl-C ends it at once.
      if (!stopped && stopWhen?.(stdout)) stopped = child.kill('SIGINT');
    });
    child.stderr.setEncoding('utf8').on('data', (piece: string) => {
      stderr += piece;
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr, json: () => JSON.parse(stdout) }));
    child.stdin.end(input ?? '');
  });
}
