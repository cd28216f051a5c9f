/** workerd itself without any front: the limit; and the backend of the proxies that are peers. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { freePort } from '../../e2e/support/ports.ts';
import type { Starter, Subject } from '../subject.ts';
import { startProgram, stopProgram } from './programs.ts';

export const WORKERD = path.join(
  path.dirname(createRequire(import.meta.url).resolve('@cloudflare/workerd-linux-64/package.json')),
  'bin/workerd',
);

export interface BareWorkerd extends Subject {
  /** The same worker on a unix socket, for proxies. */
  socket: string;
}

export async function startWorkerd(code: string): Promise<BareWorkerd> {
  const folder = mkdtempSync(path.join(tmpdir(), 'bench-workerd-'));
  const port = await freePort();
  const socket = path.join(folder, 'http.sock');
  writeFileSync(path.join(folder, 'worker.js'), code);
  writeFileSync(
    path.join(folder, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (modules = [(name = "worker.js", esModule = embed "worker.js")], compatibilityDate = "2026-11-01"))],
  sockets = [(name = "tcp", address = "127.0.0.1:${port}", http = (), service = "main"),
             (name = "unix", address = "unix:${socket}", http = (), service = "main")]);
`,
  );
  const child = await startProgram(WORKERD, ['serve', path.join(folder, 'config.capnp')], port);
  return {
    name: 'bare workerd',
    origin: `http://127.0.0.1:${port}`,
    socket,
    pids: () => [child.pid ?? 0],
    async stop() {
      await stopProgram(child);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function bareWorkerd(code: string): Starter {
  return { name: 'bare workerd', missing: () => undefined, start: () => startWorkerd(code) };
}
