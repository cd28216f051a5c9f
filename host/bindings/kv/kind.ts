/** KV as the store process keeps it. */
import { ByteCache } from '../store-process/cache.ts';
import type { ProcessParts, StoreKind } from '../store-process/kind.ts';
import type { StoreTable } from '../store-process/transfer.ts';
import { openKvOnDisk } from './on-disk.ts';
import { kvHandler } from './protocol.ts';
import { type CachedEntry, KvStore, ROW_BYTES } from './store.ts';

/** Memory for values that are read often, shared by all tenants. */
const CACHE_BYTES = 32 * 1024 * 1024;

const TABLES: StoreTable[] = [
  {
    name: 'entries',
    key: ['key'],
    columns: ['expiration', 'metadata', 'charge', 'size'],
    bytes: 'value and blob',
    size: 'size',
  },
];

export function kvKind({ cluster, clock, checkpoints, log }: ProcessParts): StoreKind<KvStore> {
  const cache = new ByteCache<CachedEntry>(CACHE_BYTES);
  return {
    quota: 'kvBytes',
    blobs: 'values',
    namedBlobs: 'SELECT blob FROM entries WHERE blob IS NOT NULL',
    tables: TABLES,
    isShared: cluster !== undefined,
    open({ tenant, name, folder, quota }) {
      if (!cluster) return openKvOnDisk({ folder, quota, clock, cache, checkpoints, log });
      const { database, blobs } = cluster.open(tenant, name, ROW_BYTES);
      return new KvStore({ database, totals: database.totals, blobs, quota, clock, cache, isShared: true });
    },
    handler: kvHandler,
    usage: ({ bytes, items }) => ({ kvBytes: bytes, kvKeys: items }),
  };
}
