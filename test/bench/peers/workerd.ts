/** workerd itself without any front: the limit; and the backend of the proxies that are peers. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Message } from 'capnp-ts';
import { Config, HttpOptions_Style } from '../../../host/capnp/generated/workerd.cjs';
import { encodeConfig } from '../../../host/runtime/config.ts';
import type { BindingSet, InstanceSpec } from '../../../host/shared/contracts.ts';
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

/**
 * The configuration that an instance has, with Durable Objects, queues and workflows on the disk, without an edge and a
 * sandbox.
 */
export function bareObjects(code: string, bindings: BindingSet): Starter {
  const name = 'bare workerd';
  return {
    name,
    missing: () => undefined,
    async start() {
      const folder = mkdtempSync(path.join(tmpdir(), 'bench-objects-'));
      const objects = path.join(folder, 'objects');
      mkdirSync(objects);
      const spec: InstanceSpec = {
        slug: 'bench',
        tenant: 'bench',
        revision: '1',
        bundle: {
          modules: [{ name: 'worker.js', type: 'esModule', body: Buffer.from(code) }],
          sourceMap: undefined,
        },
        compatibilityDate: '2026-11-01',
        compatibilityFlags: [],
        secrets: {},
        vars: {},
        bindings,
        crons: [],
        egressAllow: [],
      };
      const port = await freePort();
      const message = new Message(encodeConfig(spec, { listen: folder, services: folder, objects }, 128), false);
      // Its own way to name paths, which wrk has, too.
      message.getRoot(Config).getSockets().get(0).getHttp().setStyle(HttpOptions_Style.HOST);
      const file = path.join(folder, 'config.bin');
      writeFileSync(file, new Uint8Array(message.toArrayBuffer()));
      const address = `--socket-addr=http=127.0.0.1:${port}`;
      const child = await startProgram(WORKERD, ['serve', '--binary', file, '--experimental', address], port);
      return {
        name,
        origin: `http://127.0.0.1:${port}`,
        pids: () => [child.pid ?? 0],
        async stop() {
          await stopProgram(child);
          rmSync(folder, { recursive: true, force: true });
        },
      };
    },
  };
}
