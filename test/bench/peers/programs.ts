/** Programs of others: found, started on a free port, ended by their pid. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { connect } from 'node:net';
import { until } from '../../e2e/support/until.ts';

export function installed(program: string): string | undefined {
  try {
    execFileSync('which', [program], { stdio: 'ignore' });
    return undefined;
  } catch {
    return `${program} is not installed`;
  }
}

export async function startProgram(
  program: string,
  args: string[],
  port: number,
  env: Record<string, string> = {},
): Promise<ChildProcess> {
  const child = spawn(program, args, { stdio: 'ignore', env: { PATH: process.env.PATH ?? '', ...env } });
  await until(
    () =>
      child.exitCode !== null
        ? Promise.reject(new Error(`${program} ended with ${child.exitCode}`))
        : new Promise<true | undefined>((resolve) => {
            const socket = connect(port, '127.0.0.1', () => {
              socket.destroy();
              resolve(true);
            });
            socket.on('error', () => resolve(undefined));
          }),
    () => `${program} does not listen on ${port}`,
  );
  return child;
}

export async function stopProgram(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const slow = setTimeout(() => child.kill('SIGKILL'), 3_000);
  await exited;
  clearTimeout(slow);
}
