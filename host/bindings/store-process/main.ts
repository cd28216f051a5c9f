/**
 * Entry of the storage process: the stores of all tenants. Everything it needs comes by the `init` call; it ends with
 * the supervisor's channel.
 */
import { flushCompileCache } from 'node:module';
import pino from 'pino';
import { Channel } from '../../shared/channel.ts';
import type { StorageMethods } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { CACHE } from '../cache-api/caches.ts';
import { BINDINGS } from '../index.ts';
import type { StorageService } from './service.ts';

// Syncs of files wait in libuv's threads, whose number is fixed with the first use: many writers share few disks.
process.env.UV_THREADPOOL_SIZE ??= '16';
const [{ StorageService: Service }, { cacheKind }, ...loaded] = await Promise.all([
  import('./service.ts'),
  import('../cache-api/kind.ts'),
  ...BINDINGS.map(async ({ key, store }) => [key, await store?.()] as const),
]);
const kinds = new Map([
  ...loaded.flatMap(([key, make]) => (make ? [[key, make] as const] : [])),
  [CACHE, cacheKind] as const,
]);

const log = pino({ name: 'storage' }, pino.destination(2));
let service: StorageService | undefined;

function started(): StorageService {
  if (!service) throw new Problem('not_ready', 'The storage process has not been initialised yet.');
  return service;
}

/** The contract's methods, each of which may answer later. */
type Served = {
  [Name in keyof StorageMethods as string extends Name ? never : Name]: (
    argument: Parameters<StorageMethods[Name]>[0],
  ) => ReturnType<StorageMethods[Name]> | Promise<ReturnType<StorageMethods[Name]>>;
};

const methods: Served = {
  async init(init) {
    if (service) throw new Problem('conflict', 'The storage process is initialised already.');
    const { root, objects, cluster: shared, clockOffsetMs } = init;
    // Loaded where it is needed only: the S3 client is a fifth of this process's memory.
    const s3 = shared?.storage ?? (objects.kind === 's3' ? objects : undefined);
    const bucket = s3 && new (await import('./blobs/s3.ts')).S3Bucket(s3);
    const cluster = shared && bucket && new (await import('./cluster/cluster.ts')).Cluster(shared, bucket, root, log);
    const made = new Service({ root, kinds, bucket, cluster, clockOffsetMs, log });
    await made.prepare();
    service = made;
  },
  open: (call) => started().open(call),
  close: (call) => started().close(call),
  usage: (call) => started().usage(call),
  purge: (call) => started().purge(call),
  backup: (call) => started().backup(call),
  setClock: (call) => started().setClock(call),
  metrics: () => started().metrics(),
};

new Channel(process, methods);

let ending = false;
async function end(): Promise<void> {
  if (ending) return;
  ending = true;
  await service?.stop();
  process.exit(0);
}
process.on('disconnect', () => void end());
process.on('SIGTERM', () => void end());
process.on('SIGINT', () => {});

// For the next start: all code is loaded by now.
flushCompileCache();
