/**
 * The index of one tenant's bucket: a libSQL file that says which objects there are and where their bytes lie. Whatever
 * must happen at once (condition, quota, replacement) happens in one of its transactions, on every backend alike.
 */
import { join } from 'node:path';
import { BLOB_SCHEMA } from '../blobs/blobs.ts';
import { Database, type Reader, type Writer } from '../database.ts';
import { TOTALS_SCHEMA, Totals } from '../totals.ts';
import { OBJECT_COLUMNS, type ObjectRow, objectColumns, objectRow } from './objects.ts';

const SCHEMA = `
  CREATE TABLE objects (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, uploaded INTEGER NOT NULL, checksums TEXT NOT NULL, http TEXT, custom TEXT,
    storage_class TEXT NOT NULL, charge INTEGER NOT NULL, blob TEXT);
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

export class ObjectIndex {
  readonly database: Database;
  readonly totals: Totals;
  readonly #get: Reader;
  readonly #old: Reader;
  readonly #segments: Reader;
  readonly #page: Reader;
  readonly #put: Writer;
  readonly #delete: Writer;
  readonly #deleteSegments: Writer;

  constructor(folder: string) {
    const database = new Database({ path: join(folder, 'r2.db'), schema: SCHEMA });
    this.database = database;
    this.totals = new Totals(database);
    this.#get = database.reader(`SELECT ${OBJECT_COLUMNS} FROM objects WHERE key = ?`);
    this.#old = database.reader('SELECT charge, blob, version FROM objects WHERE key = ?');
    this.#segments = database.reader('SELECT blob, size FROM parts WHERE version = ? ORDER BY number');
    this.#page = database.reader(
      `SELECT ${OBJECT_COLUMNS} FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?`,
    );
    this.#put = database.writer(
      `INSERT INTO objects (${OBJECT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET version = excluded.version, size = excluded.size, etag = excluded.etag,
       uploaded = excluded.uploaded, checksums = excluded.checksums, http = excluded.http, custom = excluded.custom,
       storage_class = excluded.storage_class, charge = excluded.charge, blob = excluded.blob`,
    );
    this.#delete = database.writer('DELETE FROM objects WHERE key = ?');
    this.#deleteSegments = database.writer('DELETE FROM parts WHERE version = ?');
  }

  get(key: Buffer): ObjectRow | undefined {
    const columns = this.#get.get([key]);
    return columns && objectRow(columns);
  }

  /** Bytes that the object under the key counts now. */
  charged(key: Buffer): number {
    return (this.#old.get([key])?.[0] as number | undefined) ?? 0;
  }

  segments(version: string): Segment[] {
    return this.#segments.all([version]).map(([blob, size]) => ({ blob, size }) as Segment);
  }

  /** Objects in key order, from the first key (inclusive) to the end (exclusive). */
  page(from: Buffer, to: Buffer, limit: number): ObjectRow[] {
    return this.#page.all([from, to, limit]).map(objectRow);
  }

  /** Inside a transaction: the object under its key from now on. Answers the blobs that nothing names any more. */
  replace(row: ObjectRow): string[] {
    const dropped = this.#forget(row.key);
    this.#put.run(objectColumns(row));
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

  #forget(key: Buffer): { existed: boolean; charge: number; blobs: string[] } {
    const old = this.#old.get([key]) as [number, string | null, string] | undefined;
    if (!old) return { existed: false, charge: 0, blobs: [] };
    const [charge, blob, version] = old;
    if (blob !== null) return { existed: true, charge, blobs: [blob] };
    const segments = this.segments(version);
    if (segments.length > 0) this.#deleteSegments.run([version]);
    // An empty part has no blob.
    return { existed: true, charge, blobs: segments.flatMap((segment) => segment.blob || []) };
  }
}
