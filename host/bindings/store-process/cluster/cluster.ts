/**
 * What the stores of all nodes have in common: the database, the bucket, which stores there are, and the removal of blobs
 * that nothing names, which any node does for all.
 */
import type { Logger } from 'pino';
import type { ClusterStores } from '../../../shared/contracts.ts';
import { objectPlace } from '../../stores.ts';
import type { BlobBackend, ObjectBucket } from '../blobs/backend.ts';
import { ClusterBlobs } from './blobs.ts';
import { ClusterDatabase, type Place } from './database.ts';
import { Pools } from './pools.ts';
import { TABLES_OF_STORES } from './schema.ts';

/** Blobs that a node takes for removal at a time, and how many it removes at once. */
const TAKEN = 200;
const REMOVERS = 4;
/** Taken by a node that ended, they are taken again after this. */
const TAKEN_FOR = "interval '10 minutes'";
/** Rows that one transaction removes. */
const ROWS = 5_000;

const TAKE = `UPDATE doomed SET claimed = true, due = now() + ${TAKEN_FOR} WHERE (store, name) IN
  (SELECT store, name FROM doomed WHERE due <= now() ORDER BY due LIMIT ${TAKEN} FOR UPDATE SKIP LOCKED)
  RETURNING store, name`;
const REMOVED = 'DELETE FROM doomed WHERE store = $1 AND name = $2';

export class Cluster {
  readonly #pools: Pools;
  readonly #bucket: ObjectBucket;
  readonly #spool: string;
  readonly #log: Logger;
  #collecting: Promise<void> | undefined;
  #isStopped = false;

  /** @param spool folder for bytes on their way to the bucket */
  constructor({ database }: Pick<ClusterStores, 'database'>, bucket: ObjectBucket, spool: string, log: Logger) {
    this.#pools = new Pools(database);
    this.#bucket = bucket;
    this.#spool = spool;
    this.#log = log;
  }

  /** Rejects where the database cannot be used. */
  prepare(): Promise<void> {
    return this.#pools.prepare();
  }

  /** What a store of one tenant is made of. @param itemBytes about what an item takes beside what it counts */
  open(tenant: string, name: string, itemBytes: number): { database: ClusterDatabase; blobs: ClusterBlobs } {
    const place = placeOf(tenant, name);
    return {
      database: new ClusterDatabase(this.#pools, place, itemBytes),
      blobs: new ClusterBlobs({
        pools: this.#pools,
        store: place.store,
        backend: this.#bucket.blobs(place.store),
        spool: this.#spool,
        log: this.#log,
      }),
    };
  }

  /** The tenant's stores of a kind, with what they hold. */
  async stores(tenant: string, kind: string): Promise<{ name: string; bytes: number; items: number }[]> {
    const rows = await this.#pools.read('SELECT name, bytes, items FROM stores WHERE tenant = $1 AND kind = $2', [
      tenant,
      kind,
    ]);
    return (rows as [string, number, number][]).map(([name, bytes, items]) => ({ name, bytes, items }));
  }

  /** The stores of all tenants. */
  async all(): Promise<{ tenant: string; name: string }[]> {
    const rows = await this.#pools.read('SELECT tenant, name FROM stores ORDER BY store', []);
    return (rows as [string, string][]).map(([tenant, name]) => ({ tenant, name }));
  }

  /** Removes a store with all it holds. Can be repeated after a failure. */
  async purge(tenant: string, name: string): Promise<void> {
    const { store } = placeOf(tenant, name);
    const blobs = this.#bucket.blobs(store);
    await blobs.destroy().finally(() => blobs.close());
    for (const table of TABLES_OF_STORES) {
      const rows = `SELECT ctid FROM ${table} WHERE store = $1 LIMIT ${ROWS}`;
      const remove = `WITH gone AS (DELETE FROM ${table} WHERE ctid = ANY (ARRAY(${rows})) RETURNING 1)
        SELECT count(*) FROM gone`;
      while (Number((await this.#pools.write(remove, [store]))[0]?.[0]) > 0);
    }
    // Last: what was not removed yet is found again by this row.
    await this.#pools.write('DELETE FROM stores WHERE store = $1', [store]);
  }

  /** Removes blobs whose time has come. */
  collect(): Promise<void> {
    this.#collecting ??= this.#collect()
      .catch((error) => this.#log.warn({ err: error }, 'blobs without a name could not be removed; tried again later'))
      .finally(() => {
        this.#collecting = undefined;
      });
    return this.#collecting;
  }

  async close(): Promise<void> {
    this.#isStopped = true;
    await this.#collecting;
    await this.#pools.close();
  }

  async #collect(): Promise<void> {
    for (let taken = TAKEN; taken === TAKEN && !this.#isStopped; ) {
      const blobs = (await this.#pools.write(TAKE, [])) as [string, string][];
      taken = blobs.length;
      const backends = new Map<string, BlobBackend>();
      for (const [store] of blobs) if (!backends.has(store)) backends.set(store, this.#bucket.blobs(store));
      const next = async () => {
        for (let blob = blobs.pop(); blob && !this.#isStopped; blob = blobs.pop()) {
          const [store, name] = blob;
          await backends.get(store)?.remove(name);
          await this.#pools.write(REMOVED, [store, name]);
        }
      };
      try {
        await Promise.all(Array.from({ length: REMOVERS }, next));
      } finally {
        for (const backend of backends.values()) backend.close();
      }
    }
  }
}

/** Objects of R2 are where they are on one box; all other kinds are below a name of their own. */
function placeOf(tenant: string, name: string): Place {
  const [kind = ''] = name.split('.', 1);
  const place = objectPlace(tenant, name);
  return { store: kind === 'r2' ? place : `${kind}/${place}`, tenant, kind, name };
}
