/** The Cache API as the storage process keeps it. */
import { ByteCache } from '../store-process/cache.ts';
import type { ProcessParts, StoreKind } from '../store-process/kind.ts';
import { cacheHandler } from './protocol.ts';
import { CacheStore, type Entry } from './store.ts';

/** Memory for entries that are read often, shared by all tenants. */
const CACHE_BYTES = 32 * 1024 * 1024;

export function cacheKind({ clock, checkpoints, log }: ProcessParts): StoreKind<CacheStore> {
  const memory = new ByteCache<Entry>(CACHE_BYTES);
  return {
    quota: 'cacheBytes',
    // Each node has a cache of its own.
    isShared: false,
    blobs: 'bodies',
    // A cache may forget at any time.
    namedBlobs: undefined,
    open: ({ folder, quota }) => new CacheStore({ folder, quota, clock, memory, checkpoints, log }),
    handler: cacheHandler,
    usage: ({ bytes }) => ({ cacheBytes: bytes }),
  };
}
