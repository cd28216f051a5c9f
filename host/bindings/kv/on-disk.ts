/** A key-value store in a folder: a libSQL file, with values over 64 KiB as files beside it. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import { BLOB_SCHEMA, Blobs } from '../store-process/blobs/blobs.ts';
import { DiskBlobs } from '../store-process/blobs/disk.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import { Database } from '../store-process/database.ts';
import { TOTALS_SCHEMA, Totals } from '../store-process/totals.ts';
import { KvStore, type KvStoreOptions, ROW_BYTES } from './store.ts';

const SCHEMA = `
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, expiration INTEGER, metadata BLOB,
    charge INTEGER NOT NULL, size INTEGER NOT NULL, blob TEXT, value BLOB);
  CREATE INDEX entries_expiration ON entries (expiration) WHERE expiration IS NOT NULL;
  CREATE INDEX entries_blob ON entries (blob) WHERE blob IS NOT NULL;
  ${BLOB_SCHEMA}; ${TOTALS_SCHEMA}`;

export interface KvOnDisk extends Pick<KvStoreOptions, 'quota' | 'clock' | 'cache'> {
  folder: string;
  checkpoints: Checkpoints;
  log: Logger;
}

export function openKvOnDisk({ folder, checkpoints, log, ...options }: KvOnDisk): KvStore {
  const database = new Database({ path: join(folder, 'kv.db'), schema: SCHEMA, checkpoints });
  const blobs = new Blobs({
    backend: new DiskBlobs(join(folder, 'values')),
    database,
    log,
    named: 'SELECT 1 FROM entries WHERE blob = ?',
  });
  return new KvStore({ ...options, database, totals: new Totals(database, ROW_BYTES), blobs, isShared: false });
}
