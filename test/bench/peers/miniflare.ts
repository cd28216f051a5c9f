/** Miniflare, in a process of its own so that its CPU can be told apart. */
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Starter } from '../subject.ts';
import { stopProgram } from './programs.ts';

const SELF = fileURLToPath(import.meta.url);

interface MiniflareOptions {
  code: string;
  bindings?: boolean;
  /** Those of the rows of rows/objects.ts. */
  objects?: boolean;
  /** Without Miniflare's entry worker: the worker and the storage modules alone, in one workerd. */
  direct?: boolean;
}

export function miniflare(options: MiniflareOptions): Starter {
  const name = options.direct ? "workerd's own module" : 'Miniflare';
  return {
    name,
    missing: () => undefined,
    async start() {
      const folder = mkdtempSync(path.join(tmpdir(), 'bench-miniflare-'));
      const child = fork(SELF, [], { execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
      child.send({ ...options, folder });
      const origin = await new Promise<string>((resolve, reject) => {
        child.once('message', (message) => resolve(String(message)));
        child.once('exit', (code) => reject(new Error(`Miniflare ended with ${code}`)));
      });
      return {
        name,
        origin,
        pids: () => [child.pid ?? 0],
        async stop() {
          await stopProgram(child);
          rmSync(folder, { recursive: true, force: true });
        },
      };
    },
  };
}

if (process.argv[1] === SELF) {
  // `on`, not `once`: a channel that somebody listens to keeps the process alive while Miniflare starts.
  process.on('message', async (message) => {
    const { Miniflare } = await import('miniflare');
    const { code, bindings, objects, direct, folder } = message as MiniflareOptions & { folder: string };
    const server = new Miniflare({
      modules: true,
      script: code,
      compatibilityDate: '2026-01-01',
      host: '127.0.0.1',
      port: 0,
      ...(bindings
        ? {
            kvNamespaces: ['STORE'],
            d1Databases: ['DB'],
            r2Buckets: ['BUCKET'],
            kvPersist: path.join(folder, 'kv'),
            d1Persist: path.join(folder, 'd1'),
            r2Persist: path.join(folder, 'r2'),
            cachePersist: path.join(folder, 'cache'),
          }
        : {}),
      ...(objects
        ? {
            durableObjects: { OBJECTS: { className: 'Counter', useSQLite: true } },
            durableObjectsPersist: path.join(folder, 'objects'),
            queueProducers: { JOBS: 'jobs' },
            queueConsumers: { jobs: { maxBatchSize: 100, maxBatchTimeout: 0 } },
            workflows: { FLOWS: { className: 'Flow', name: 'flow' } },
            workflowsPersist: path.join(folder, 'workflows'),
          }
        : {}),
      ...(direct ? { unsafeDirectSockets: [{ host: '127.0.0.1', port: 0 }] } : {}),
    });
    const entry = await server.ready;
    const url = direct ? await server.unsafeGetDirectURL() : entry;
    process.send?.(url.origin);
    const leave = async () => {
      await server.dispose();
      process.exit(0);
    };
    process.once('SIGTERM', leave);
    process.once('disconnect', leave);
  });
}
