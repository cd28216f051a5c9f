/**
 * A TCP listener on the loopback of a sandbox's network namespace, which this process accepts from: the sandbox reaches
 * what answers there, and no network. A helper enters the namespace, listens, hands the socket over, and ends.
 */
import { spawn } from 'node:child_process';
import { createServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { findProgram } from './programs.ts';
import type { ConfinedProcess } from './spawn.ts';

const PROGRAM = fileURLToPath(new URL('inside-listener-program.ts', import.meta.url));
/** Until the sandbox stands, and how often it is looked at; until the helper has listened. ms */
const STANDS_MS = 5_000;
const RETRY_MS = 3;
const LISTENS_MS = 10_000;
/** Connections that may wait while this process does something else: workerd opens hundreds at once. */
const BACKLOG = 4_096;

/**
 * Listens on every address of the loopback (127.0.0.0/8): `localAddress` of a connection says which was called.
 * Connections are paused: nothing of them is read.
 * @throws Error where the namespace cannot be entered, or the sandbox has ended
 */
export async function listenInside(confined: ConfinedProcess, port: number): Promise<Server> {
  const pid = await standing(confined);
  const space = `/proc/${pid}/ns`;
  const asUser = process.getuid?.() === 0 ? [] : [`--user=${space}/user`, '--preserve-credentials'];
  const helper = spawn(
    findProgram('nsenter', 'util-linux'),
    [...asUser, `--net=${space}/net`, process.execPath, PROGRAM, String(port)],
    { stdio: ['ignore', 'ignore', 'pipe', 'ipc'], env: {}, timeout: LISTENS_MS, killSignal: 'SIGKILL' },
  );
  let said = '';
  helper.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, 2_000);
  });
  return await new Promise((resolve, reject) => {
    helper.once('error', reject);
    helper.once('message', (_message, handle) => {
      const server = createServer({ pauseOnConnect: true }).once('error', reject);
      server.listen(handle, BACKLOG, () => resolve(server));
    });
    helper.once('close', () => reject(new Error(`nothing listens in the sandbox: ${said.trim()}`)));
  });
}

async function standing(confined: ConfinedProcess): Promise<number> {
  const until = performance.now() + STANDS_MS;
  let ended = false;
  void confined.exited.then(() => {
    ended = true;
  });
  for (;;) {
    const pid = confined.pid();
    if (pid !== undefined) return pid;
    if (ended || performance.now() > until) throw new Error('the sandbox did not come to stand');
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
