/** The stores of all tenants, on a box or in a cluster, without a storage process: to bring them from one to the other. */
import { existsSync, readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { AdjustableClock } from '../../shared/clock.ts';
import type { ClusterStores, S3Settings } from '../../shared/contracts.ts';
import { BINDINGS } from '../index.ts';
import { kindOfStore, objectPlace, storesOf } from '../stores.ts';
import { S3Bucket } from './blobs/s3.ts';
import { Checkpoints } from './checkpoints.ts';
import { Cluster } from './cluster/cluster.ts';
import type { StoreKind } from './kind.ts';
import { OpenStores, type Store } from './open-stores.ts';
import { type Transferred, transferStore } from './transfer.ts';

export interface StorePlace {
  tenant: string;
  /** `kv.sessions` */
  name: string;
}

/** One of both. */
export interface AllStores {
  all(): Promise<StorePlace[]>;
  /** Works on a store, which is made where there is none. */
  using<T>(place: StorePlace, work: (store: Store, kind: StoreKind) => Promise<T>): Promise<T>;
  /** Removes a store with all it holds. */
  purge(place: StorePlace): Promise<void>;
  close(): Promise<void>;
}

/** Databases that are open at once. */
const OPEN_STORES = 4;

/** @param root folder of all tenants @param s3 where objects live; undefined: in files below the root */
export async function storesOfBox(root: string, s3: S3Settings | undefined, log: Logger): Promise<AllStores> {
  const bucket = s3 && new S3Bucket(s3);
  await bucket?.prepare();
  const checkpoints = new Checkpoints(log);
  const kinds = await loadKinds({ bucket, cluster: undefined, checkpoints, log });
  const stores = new OpenStores(OPEN_STORES);
  return {
    async all() {
      const tenants = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory());
      return tenants.flatMap(({ name: tenant }) => {
        const folders = readdirSync(join(root, tenant));
        const names = [...kinds.keys()].flatMap((key) => storesOf(key, folders));
        const kept = names.filter((name) => existsSync(join(root, tenant, name, `${kindOfStore(name)}.db`)));
        return kept.map((name) => ({ tenant, name }));
      });
    },
    async using(place, work) {
      const kind = kindOf(kinds, place);
      const lease = stores.acquire(`${place.tenant}/${place.name}`, () => openedBy(kind, place, root));
      try {
        return await work(lease.store, kind);
      } finally {
        stores.release(lease);
        await stores.close(`${place.tenant}/${place.name}`);
      }
    },
    purge: ({ tenant, name }) => rm(join(root, tenant, name), { recursive: true, force: true }),
    async close() {
      await stores.closeAll();
      await Promise.all([...kinds.values()].map((kind) => kind.close?.()));
      await checkpoints.close();
    },
  };
}

/** @param spool folder for bytes on their way */
export async function storesOfCluster(settings: ClusterStores, spool: string, log: Logger): Promise<AllStores> {
  const bucket = new S3Bucket(settings.storage);
  const cluster = new Cluster(settings, bucket, spool, log);
  const checkpoints = new Checkpoints(log);
  try {
    await cluster.prepare();
  } catch (error) {
    await Promise.all([cluster.close(), checkpoints.close()]);
    throw error;
  }
  const kinds = await loadKinds({ bucket, cluster, checkpoints, log });
  return {
    all: () => cluster.all(),
    async using(place, work) {
      const kind = kindOf(kinds, place);
      const store = openedBy(kind, place, spool);
      try {
        return await work(store, kind);
      } finally {
        store.close();
      }
    },
    purge: ({ tenant, name }) => cluster.purge(tenant, name),
    async close() {
      await Promise.all([...kinds.values()].map((kind) => kind.close?.()));
      await cluster.close();
      await checkpoints.close();
    },
  };
}

/**
 * Brings all stores over. What the other side has of an earlier time, and this one has no longer, goes.
 * @param onProgress what is over there, and bytes that were sent, since the last time
 */
export async function transferStores(
  from: AllStores,
  to: AllStores,
  onProgress: (place: StorePlace, more: Transferred) => void,
): Promise<{ stores: number } & Transferred> {
  const wanted = await from.all();
  const sum = { stores: wanted.length, rows: 0, bytes: 0 };
  const isWanted = (place: StorePlace) => wanted.some((one) => one.tenant === place.tenant && one.name === place.name);
  for (const place of await to.all()) if (!isWanted(place)) await to.purge(place);
  for (const place of wanted) {
    const { rows, bytes } = await from.using(place, (source, { tables = [] }) =>
      to.using(place, (target) => transferStore(tables, source, target, (more) => onProgress(place, more))),
    );
    sum.rows += rows;
    sum.bytes += bytes;
  }
  return sum;
}

async function loadKinds(parts: {
  bucket: S3Bucket | undefined;
  cluster: Cluster | undefined;
  checkpoints: Checkpoints;
  log: Logger;
}): Promise<Map<string, StoreKind>> {
  const kinds = new Map<string, StoreKind>();
  for (const { key, store } of BINDINGS) {
    const make = await store?.();
    if (make) kinds.set(key, make({ ...parts, clock: new AdjustableClock() }));
  }
  return kinds;
}

function kindOf(kinds: ReadonlyMap<string, StoreKind>, { name }: StorePlace): StoreKind {
  const kind = kinds.get(kindOfStore(name));
  if (!kind) throw new Error(`there is no kind of store named ${name}`);
  return kind;
}

/** Its quota is not looked at: what was taken once is taken. */
function openedBy(kind: StoreKind, { tenant, name }: StorePlace, root: string): Store {
  const place = objectPlace(tenant, name);
  return kind.open({ tenant, name, place, folder: join(root, tenant, name), quota: () => Number.MAX_SAFE_INTEGER });
}
