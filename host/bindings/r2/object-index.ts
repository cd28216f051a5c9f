/**
 * The index of one tenant's bucket: a libSQL file that says which objects there are and where their bytes lie. Whatever
 * must happen at once (condition, quota, replacement) happens in one of its transactions, on every backend alike.
 */
import { join } from 'node:path';
import { BLOB_SCHEMA } from '../store-process/blobs/blobs.ts';
import { extentCondition } from '../store-process/blobs/extents.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import { Database, type Reader, type Writer } from '../store-process/database.ts';
import { TOTALS_SCHEMA, Totals } from '../store-process/totals.ts';
import { OBJECT_COLUMNS, type ObjectRow, objectColumns, objectRow, READ_COLUMNS } from './objects.ts';

const SCHEMA = `
  CREATE TABLE objects (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, uploaded INTEGER NOT NULL, checksums TEXT NOT NULL, http TEXT, custom TEXT,
    storage_class TEXT NOT NULL, charge INTEGER NOT NULL, blob TEXT, value BLOB);
  CREATE INDEX objects_blob ON objects (blob) WHERE blob IS NOT NULL;
  CREATE TABLE uploads (
    id TEXT PRIMARY KEY, key BLOB NOT NULL, http TEXT, custom TEXT, storage_class TEXT NOT NULL,
    created INTEGER NOT NULL, state TEXT NOT NULL);
  CREATE TABLE parts (
    upload TEXT NOT NULL, number INTEGER NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL, md5 TEXT NOT NULL,
    version TEXT, PRIMARY KEY (upload, number));
  CREATE INDEX parts_blob ON parts (blob);
  CREATE INDEX parts_version ON parts (version) WHERE version IS NOT NULL;
  ${BLOB_SCHEMA}; ${TOTALS_SCHEMA}`;

/** SQL that finds a row naming the blob `?1`. */
export const NAMED_BLOB = 'SELECT 1 FROM objects WHERE blob = ?1 UNION ALL SELECT 1 FROM parts WHERE blob = ?1 LIMIT 1';

/** Bytes of an object that was put in parts. */
export interface Segment {
  blob: string;
  size: number;
}

let nextId = 0;

/**
 * Small objects lie in rows, in pages that are read and written one by one: with these a put of 100 KiB is 13 % quicker
 * than with 4 KiB, and one of 1 KiB as quick.
 */
const PAGE_BYTES = 16_384;

/** About what a row weighs without its key and its metadata. */
const ROW_BYTES = 400;

export class ObjectIndex {
  readonly database: Database;
  readonly totals: Totals;
  readonly #get: Reader;
  readonly #segments: Reader;
  readonly #extents: Reader;
  readonly #page: Reader;
  readonly #value: Reader;
  readonly #put: Writer;
  readonly #delete: Writer;
  readonly #deleteSegments: Writer;

  readonly #cache: ByteCache<ObjectRow>;
  /** Tells the rows of this index, since its last rollback, from all others in the shared cache. */
  #cacheId = `${nextId++}:`;

  /** @param cache rows by index and key */
  constructor(folder: string, cache: ByteCache<ObjectRow>, checkpoints: Checkpoints) {
    this.#cache = cache;
    const path = join(folder, 'r2.db');
    const database = new Database({ path, schema: SCHEMA, pageBytes: PAGE_BYTES, checkpoints });
    this.database = database;
    this.totals = new Totals(database, ROW_BYTES);
    // A row that was read inside the transaction may never have been.
    database.rollbackListeners.push(() => {
      this.#cacheId = `${nextId++}:`;
    });
    this.#get = database.reader(`SELECT ${READ_COLUMNS} FROM objects WHERE key = ?`);
    this.#segments = database.reader('SELECT blob, size FROM parts WHERE version = ? ORDER BY number');
    this.#extents = database.reader(`SELECT blob FROM objects WHERE ${extentCondition('blob')}`);
    this.#page = database.reader(`SELECT ${READ_COLUMNS} FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?`);
    this.#value = database.reader('SELECT value FROM objects WHERE key = ?');
    this.#put = database.writer(
      `INSERT INTO objects (${OBJECT_COLUMNS}, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET version = excluded.version, size = excluded.size, etag = excluded.etag,
       uploaded = excluded.uploaded, checksums = excluded.checksums, http = excluded.http, custom = excluded.custom,
       storage_class = excluded.storage_class, charge = excluded.charge, blob = excluded.blob, value = excluded.value`,
    );
    this.#delete = database.writer('DELETE FROM objects WHERE key = ?');
    this.#deleteSegments = database.writer('DELETE FROM parts WHERE version = ?');
  }

  get(key: Buffer): ObjectRow | undefined {
    const name = this.#cacheName(key);
    const known = this.#cache.get(name);
    if (known) return known;
    const columns = this.#get.get([key]);
    if (!columns) return undefined;
    const row = objectRow(columns);
    this.#remember(row);
    return row;
  }

  /** Bytes that the object under the key counts now. */
  charged(key: Buffer): number {
    return this.get(key)?.charge ?? 0;
  }

  /** Names of the extents that hold bytes. */
  extents(): string[] {
    return this.#extents.all([]).map(([name]) => name as string);
  }

  segments(version: string): Segment[] {
    return this.#segments.all([version]).map(([blob, size]) => ({ blob, size }) as Segment);
  }

  /** Objects in key order, from the first key (inclusive) to the end (exclusive). */
  page(from: Buffer, to: Buffer, limit: number): ObjectRow[] {
    return this.#page.all([from, to, limit]).map(objectRow);
  }

  /** The bytes of an object that has them in the index. */
  value(key: Buffer): Buffer {
    return this.#value.get([key])?.[0] as Buffer;
  }

  /**
   * Inside a transaction: the object under its key from now on. Answers the blobs that nothing names any more.
   * @param value the bytes of an inline object
   */
  replace(row: ObjectRow, value: Buffer | null): string[] {
    const dropped = this.#forget(row.key);
    this.#put.run([...objectColumns(row), value]);
    // The next put under this key asks for it, and so may a get.
    this.#remember(row);
    this.totals.add(row.charge - dropped.charge, dropped.existed ? 0 : 1);
    return dropped.blobs;
  }

  /** Inside a transaction. Answers the blobs that nothing names any more. */
  remove(key: Buffer): string[] {
    const dropped = this.#forget(key);
    if (!dropped.existed) return [];
    this.#delete.run([key]);
    this.totals.add(-dropped.charge, -1);
    return dropped.blobs;
  }

  #cacheName(key: Buffer): string {
    return this.#cacheId + key.toString('latin1');
  }

  #remember(row: ObjectRow): void {
    const { key, http, custom } = row;
    this.#cache.set(this.#cacheName(key), row, ROW_BYTES + key.length + (http?.length ?? 0) + (custom?.length ?? 0));
  }

  #forget(key: Buffer): { existed: boolean; charge: number; blobs: string[] } {
    const old = this.get(key);
    this.#cache.delete(this.#cacheName(key));
    if (!old) return { existed: false, charge: 0, blobs: [] };
    const { charge, blob, version, inline } = old;
    if (blob !== null) return { existed: true, charge, blobs: [blob] };
    if (inline) return { existed: true, charge, blobs: [] };
    const segments = this.segments(version);
    if (segments.length > 0) this.#deleteSegments.run([version]);
    // An empty part has no blob.
    return { existed: true, charge, blobs: segments.flatMap((segment) => segment.blob || []) };
  }
}
