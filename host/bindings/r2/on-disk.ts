/** A bucket whose index is a libSQL file. The bytes are in the index, in extents and in files, or on S3. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { BlobBackend } from '../store-process/blobs/backend.ts';
import { BLOB_SCHEMA, Blobs } from '../store-process/blobs/blobs.ts';
import { Extents, extentCondition } from '../store-process/blobs/extents.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import { Database } from '../store-process/database.ts';
import { TOTALS_SCHEMA, Totals } from '../store-process/totals.ts';
import { ObjectIndex, ROW_BYTES } from './object-index.ts';
import type { ObjectRow } from './objects.ts';
import { R2Store, type R2StoreOptions } from './store.ts';

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
const NAMED_BLOB = 'SELECT 1 FROM objects WHERE blob = ?1 UNION ALL SELECT 1 FROM parts WHERE blob = ?1 LIMIT 1';

/**
 * Small objects lie in rows, in pages that are read and written one by one: with these a put of 100 KiB is 13 % quicker
 * than with 4 KiB, and one of 1 KiB as quick.
 */
const PAGE_BYTES = 16_384;

export interface R2OnDisk extends Pick<R2StoreOptions, 'quota' | 'clock' | 'cache' | 'hashing'> {
  /** Folder of the index. */
  folder: string;
  backend: BlobBackend;
  rows: ByteCache<ObjectRow>;
  checkpoints: Checkpoints;
  log: Logger;
}

export function openR2OnDisk({ folder, backend, rows, checkpoints, log, ...options }: R2OnDisk): R2Store {
  const database = new Database({ path: join(folder, 'r2.db'), schema: SCHEMA, pageBytes: PAGE_BYTES, checkpoints });
  const index = new ObjectIndex(database, new Totals(database, ROW_BYTES), rows);
  database.rollbackListeners.push(() => index.forgetAll());
  const inUse = database.reader(`SELECT blob FROM objects WHERE ${extentCondition('blob')}`).all([]);
  const extents = new Extents(
    join(folder, 'r2.extents'),
    inUse.map(([name]) => name as string),
  );
  const blobs = new Blobs({ backend, database, log, named: NAMED_BLOB, extents });
  return new R2Store({ ...options, index, blobs, extents, inlineBytes: backend.inlineBytes });
}
