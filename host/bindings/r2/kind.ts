/** R2 as the store process keeps it. */
import { join } from 'node:path';
import { DiskBlobs } from '../store-process/blobs/disk.ts';
import { ByteCache } from '../store-process/cache.ts';
import type { ProcessParts, StoreKind } from '../store-process/kind.ts';
import type { StoreTable } from '../store-process/transfer.ts';
import { Hashing } from './hashing.ts';
import { ObjectIndex, ROW_BYTES } from './object-index.ts';
import type { ObjectRow } from './objects.ts';
import { openR2OnDisk } from './on-disk.ts';
import { r2Handler } from './protocol.ts';
import { R2Store } from './store.ts';

/** Memory for what is read often, shared by all tenants. */
const ROW_CACHE_BYTES = 8 * 1024 * 1024;
const OBJECT_CACHE_BYTES = 32 * 1024 * 1024;
const BLOBS = 'objects';

/** Uploads come in the order in which they were begun: of those that ended, the oldest are forgotten first. */
const TABLES: StoreTable[] = [
  {
    name: 'objects',
    key: ['key'],
    columns: ['version', 'size', 'etag', 'uploaded', 'checksums', 'http', 'custom', 'storage_class', 'charge'],
    bytes: 'value and blob',
    version: 'version',
    size: 'size',
  },
  {
    name: 'uploads',
    key: ['created', 'id'],
    columns: ['key', 'http', 'custom', 'storage_class', 'state'],
    bytes: 'none',
  },
  {
    name: 'parts',
    key: ['upload', 'number'],
    columns: ['size', 'md5', 'version'],
    bytes: 'blob',
    version: 'md5',
    size: 'size',
  },
];

export function r2Kind({ bucket, cluster, clock, checkpoints, log }: ProcessParts): StoreKind<R2Store> {
  const rows = new ByteCache<ObjectRow>(ROW_CACHE_BYTES);
  const cache = new ByteCache<Buffer>(OBJECT_CACHE_BYTES);
  const hashing = new Hashing();
  return {
    quota: 'objectBytes',
    blobs: BLOBS,
    namedBlobs: "SELECT blob FROM objects WHERE blob IS NOT NULL UNION ALL SELECT blob FROM parts WHERE blob <> ''",
    tables: TABLES,
    isShared: cluster !== undefined,
    open({ tenant, name, place, folder, quota }) {
      if (cluster) {
        const { database, blobs } = cluster.open(tenant, name, ROW_BYTES);
        const index = new ObjectIndex(database, database.totals, undefined);
        return new R2Store({ index, blobs, inlineBytes: 0, quota, clock, cache, hashing });
      }
      const backend = bucket?.blobs(place) ?? new DiskBlobs(join(folder, BLOBS));
      return openR2OnDisk({ folder, backend, quota, clock, rows, cache, hashing, checkpoints, log });
    },
    handler: r2Handler,
    usage: ({ bytes, items }) => ({ objectBytes: bytes, objects: items }),
    async purge(place) {
      const blobs = bucket?.blobs(place);
      await blobs?.destroy().finally(() => blobs.close());
    },
    close: () => hashing.close(),
  };
}
