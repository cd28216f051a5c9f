/**
 * The index of one tenant's bucket: rows that say which objects there are and where their bytes lie. Whatever must
 * happen at once (condition, quota, replacement) happens in one of its transactions, on every backend alike.
 */
import type { ByteCache } from '../store-process/cache.ts';
import type { Query, StoreDatabase, StoreTotals, Work } from '../store-process/work.ts';
import { OBJECT_COLUMNS, type ObjectRow, objectColumns, objectRow, READ_COLUMNS } from './objects.ts';

/** Bytes of an object that was put in parts. */
export interface Segment {
  blob: string;
  size: number;
  md5: string;
}

let nextId = 0;

/** About what a row weighs without its key and its metadata. */
export const ROW_BYTES = 400;

export class ObjectIndex {
  readonly database: StoreDatabase;
  readonly totals: StoreTotals;
  readonly #get: Query;
  readonly #segments: Query;
  readonly #page: Query;
  readonly #value: Query;
  readonly #put: Query;
  readonly #delete: Query;
  readonly #deleteSegments: Query;

  readonly #cache: ByteCache<ObjectRow> | undefined;
  /** Tells the rows of this index, since its last rollback, from all others in the shared cache. */
  #cacheId = `${nextId++}:`;

  /** @param cache rows by index and key; none where others write this index, too */
  constructor(database: StoreDatabase, totals: StoreTotals, cache: ByteCache<ObjectRow> | undefined) {
    this.#cache = cache;
    this.database = database;
    this.totals = totals;
    this.#get = database.query(`SELECT ${READ_COLUMNS} FROM objects WHERE key = ?`);
    this.#segments = database.query('SELECT blob, size, md5 FROM parts WHERE version = ? ORDER BY number');
    this.#page = database.query(`SELECT ${READ_COLUMNS} FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?`);
    this.#value = database.query('SELECT value FROM objects WHERE key = ?');
    this.#put = database.query(
      `INSERT INTO objects (${OBJECT_COLUMNS}, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET version = excluded.version, size = excluded.size, etag = excluded.etag,
       uploaded = excluded.uploaded, checksums = excluded.checksums, http = excluded.http, custom = excluded.custom,
       storage_class = excluded.storage_class, charge = excluded.charge, blob = excluded.blob, value = excluded.value`,
    );
    this.#delete = database.query('DELETE FROM objects WHERE key = ?');
    this.#deleteSegments = database.query('DELETE FROM parts WHERE version = ?');
  }

  /** A row that was read inside a transaction that was rolled back may never have been. */
  forgetAll(): void {
    this.#cacheId = `${nextId++}:`;
  }

  known(key: Buffer): ObjectRow | undefined {
    return this.#cache?.get(this.#cacheName(key));
  }

  *get(key: Buffer): Work<ObjectRow | undefined> {
    const known = this.known(key);
    if (known) return known;
    const columns = yield* this.#get.get([key]);
    if (!columns) return undefined;
    const row = objectRow(columns);
    this.#remember(row);
    return row;
  }

  /** Bytes that the object under the key counts now. */
  *charged(key: Buffer): Work<number> {
    return (yield* this.get(key))?.charge ?? 0;
  }

  *segments(version: string): Work<Segment[]> {
    return (yield* this.#segments.all([version])).map(([blob, size, md5]) => ({ blob, size, md5 }) as Segment);
  }

  /** Objects in key order, from the first key (inclusive) to the end (exclusive). */
  *page(from: Buffer, to: Buffer, limit: number): Work<ObjectRow[]> {
    return (yield* this.#page.all([from, to, limit])).map(objectRow);
  }

  /** The bytes of an object that has them in the index. */
  *value(key: Buffer): Work<Buffer> {
    return (yield* this.#value.get([key]))?.[0] as Buffer;
  }

  /**
   * Inside a transaction: the object under its key from now on. Answers the blobs that nothing names any more.
   * @param value the bytes of an inline object
   */
  *replace(row: ObjectRow, value: Buffer | null): Work<string[]> {
    const dropped = yield* this.#forget(row.key);
    yield* this.#put.run([...objectColumns(row), value]);
    // The next put under this key asks for it, and so may a get.
    this.#remember(row);
    this.totals.add(row.charge - dropped.charge, dropped.existed ? 0 : 1);
    return dropped.blobs;
  }

  /** Inside a transaction. Answers the blobs that nothing names any more. */
  *remove(key: Buffer): Work<string[]> {
    const dropped = yield* this.#forget(key);
    if (!dropped.existed) return [];
    yield* this.#delete.run([key]);
    this.totals.add(-dropped.charge, -1);
    return dropped.blobs;
  }

  #cacheName(key: Buffer): string {
    return this.#cacheId + key.toString('latin1');
  }

  #remember(row: ObjectRow): void {
    const { key, http, custom } = row;
    this.#cache?.set(this.#cacheName(key), row, ROW_BYTES + key.length + (http?.length ?? 0) + (custom?.length ?? 0));
  }

  *#forget(key: Buffer): Work<{ existed: boolean; charge: number; blobs: string[] }> {
    const old = yield* this.get(key);
    this.#cache?.delete(this.#cacheName(key));
    if (!old) return { existed: false, charge: 0, blobs: [] };
    const { charge, blob, version, inline } = old;
    if (blob !== null) return { existed: true, charge, blobs: [blob] };
    if (inline) return { existed: true, charge, blobs: [] };
    const segments = yield* this.segments(version);
    if (segments.length > 0) yield* this.#deleteSegments.run([version]);
    // An empty part has no blob.
    return { existed: true, charge, blobs: segments.flatMap((segment) => segment.blob || []) };
  }
}
