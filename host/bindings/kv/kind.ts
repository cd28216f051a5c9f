/** KV as the store process keeps it. */
import { ByteCache } from '../store-process/cache.ts';
import type { ProcessParts, StoreKind } from '../store-process/kind.ts';
import { kvHandler } from './protocol.ts';
import { type Entry, KvStore } from './store.ts';

/** Memory for values that are read often, shared by all tenants. */
const CACHE_BYTES = 32 * 1024 * 1024;

export function kvKind({ clock, checkpoints, log }: ProcessParts): StoreKind<KvStore> {
  const cache = new ByteCache<Entry>(CACHE_BYTES);
  return {
    quota: 'kvBytes',
    blobs: 'values',
    namedBlobs: 'SELECT blob FROM entries WHERE blob IS NOT NULL',
    open: (_place, folder, quota) => new KvStore({ folder, quota, clock, cache, checkpoints, log }),
    handler: kvHandler,
    usage: ({ bytes, items }) => ({ kvBytes: bytes, kvKeys: items }),
  };
}
