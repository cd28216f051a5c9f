/**
 * One tenant's key-value store: a libSQL file, with values over 64 KiB as files beside it. Expired keys are gone for
 * readers at once and swept later.
 */
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { Clock } from '../../shared/clock.ts';
import type { Bytes } from '../store-process/blobs/backend.ts';
import { BLOB_SCHEMA, Blobs } from '../store-process/blobs/blobs.ts';
import { DiskBlobs } from '../store-process/blobs/disk.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import { Database, type Reader, type Writer } from '../store-process/database.ts';
import { behindKey, later, prefixRange } from '../store-process/key-range.ts';
import { TOTALS_SCHEMA, Totals } from '../store-process/totals.ts';
import { kvErrors } from './errors.ts';
import { INLINE_BYTES, MAX_VALUE_BYTES } from './limits.ts';
import type { ListOptions } from './validate.ts';

const SCHEMA = `
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, expiration INTEGER, metadata BLOB,
    charge INTEGER NOT NULL, size INTEGER NOT NULL, blob TEXT, value BLOB);
  CREATE INDEX entries_expiration ON entries (expiration) WHERE expiration IS NOT NULL;
  CREATE INDEX entries_blob ON entries (blob) WHERE blob IS NOT NULL;
  ${BLOB_SCHEMA}; ${TOTALS_SCHEMA}`;

/** About what an entry weighs without its key, value and metadata. */
const ROW_BYTES = 64;
/** Expired keys that one sweep takes; the rest waits for the next. */
const SWEEP = 500;

export interface Entry {
  metadata: Buffer | null;
  /** Seconds since the epoch. */
  expiration: number | null;
  /** Bytes of the value. */
  size: number;
  /** The value itself, or the name of the blob that holds it. */
  value: Buffer | null;
  blob: string | null;
}

export interface ListedKey {
  key: Buffer;
  expiration: number | null;
  metadata: Buffer | null;
}

export interface KvStoreOptions {
  folder: string;
  quota: () => number;
  clock: Clock;
  /** Entries with small values, by the store and the key. */
  cache: ByteCache<Entry>;
  checkpoints: Checkpoints;
  log: Logger;
}

let nextId = 0;

export class KvStore {
  readonly database: Database;
  readonly blobs: Blobs;
  readonly totals: Totals;
  readonly #options: KvStoreOptions;
  readonly #get: Reader;
  readonly #list: Reader;
  readonly #old: Reader;
  readonly #put: Writer;
  readonly #delete: Writer;
  readonly #expired: Reader;
  /** Bytes of large values on their way in, so that many at once cannot pass the quota together. */
  #reserved = 0;
  /** Tells this opening of this store from all others in the shared cache. */
  readonly #id = `${nextId++}:`;

  constructor(options: KvStoreOptions) {
    this.#options = options;
    const { checkpoints } = options;
    const database = new Database({ path: join(options.folder, 'kv.db'), schema: SCHEMA, checkpoints });
    this.database = database;
    this.totals = new Totals(database, ROW_BYTES);
    this.blobs = new Blobs({
      backend: new DiskBlobs(join(options.folder, 'values')),
      database,
      log: options.log,
      named: 'SELECT 1 FROM entries WHERE blob = ?',
    });
    this.#get = database.reader('SELECT expiration, metadata, size, blob, value FROM entries WHERE key = ?');
    this.#list = database.reader(
      `SELECT key, expiration, metadata FROM entries
       WHERE key >= ? AND key < ? AND (expiration IS NULL OR expiration > ?) ORDER BY key LIMIT ?`,
    );
    this.#old = database.reader('SELECT charge, blob FROM entries WHERE key = ?');
    this.#put = database.writer(
      `INSERT INTO entries (key, expiration, metadata, charge, size, blob, value) VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET expiration = excluded.expiration, metadata = excluded.metadata,
       charge = excluded.charge, size = excluded.size, blob = excluded.blob, value = excluded.value`,
    );
    this.#delete = database.writer('DELETE FROM entries WHERE key = ?');
    this.#expired = database.reader('SELECT key FROM entries WHERE expiration <= ? LIMIT ?');
  }

  get busy(): boolean {
    return this.database.busy || this.blobs.busy;
  }

  /** @param key checked with checkedKey */
  get(key: Buffer): Entry | undefined {
    const name = this.#cacheName(key);
    const known = this.#options.cache.get(name);
    const entry = known ?? this.#load(key);
    if (!entry || (entry.expiration !== null && entry.expiration <= this.seconds())) return undefined;
    if (!known && entry.value) this.#options.cache.set(name, entry, entry.size + (entry.metadata?.length ?? 0));
    return entry;
  }

  #load(key: Buffer): Entry | undefined {
    const row = this.#get.get([key]) as
      | [number | null, Buffer | null, number, string | null, Buffer | null]
      | undefined;
    if (!row) return undefined;
    const [expiration, metadata, size, blob, value] = row;
    return { expiration, metadata, size, blob, value };
  }

  /** The value of an entry that is not inline. */
  read(entry: Entry): Buffer | Promise<Readable> {
    return this.blobs.read(entry.blob ?? '', 0, entry.size);
  }

  /** Resolves once the value is safe. Rejects with the quota's KvError before anything was changed. */
  async put(key: Buffer, bytes: Bytes, expiration: number | null, metadata: Buffer | null): Promise<void> {
    const around = key.length + (metadata?.length ?? 0);
    // What has expired must not stand in the way of what is new.
    if (this.totals.exceeds(this.#options.quota(), around + (bytes.length ?? 0))) while ((await this.sweep()) > 0);
    if ('chunks' in bytes && bytes.length <= INLINE_BYTES) {
      const { chunks, length } = bytes;
      const value = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
      await this.#write(key, expiration, metadata, around + length, length, null, value);
      return;
    }
    const expected = bytes.length ?? 0;
    this.#checkQuota(around + expected + this.#reserved - this.#charged(key));
    const counter = { size: expected };
    this.#reserved += expected;
    const blob = await this.blobs
      .write(bytes.length === undefined ? { length: undefined, stream: counted(bytes.stream, counter) } : bytes)
      .finally(() => {
        this.#reserved -= expected;
      });
    try {
      await this.#write(key, expiration, metadata, around + counter.size, counter.size, blob, null);
    } catch (error) {
      this.blobs.drop([blob]);
      throw error;
    }
  }

  /** A key that is not there is no error. */
  async delete(key: Buffer): Promise<void> {
    const blob = await this.database.commit(() => this.#remove(key));
    if (blob) this.blobs.drop([blob]);
  }

  /** One more than `limit` keys when there are more. */
  list({ prefix, after, limit }: ListOptions): ListedKey[] {
    const { from, to } = prefixRange(prefix);
    const start = after ? later(from, behindKey(after)) : from;
    const rows = this.#list.all([start, to, this.seconds(), limit + 1]);
    return rows.map(([key, expiration, metadata]) => ({ key, expiration, metadata }) as ListedKey);
  }

  /** Removes expired keys; answers how many. */
  async sweep(): Promise<number> {
    const now = this.seconds();
    if (this.#expired.get([now, 1]) === undefined) return 0;
    const blobs: string[] = [];
    const count = await this.database.commit(() => {
      const keys = this.#expired.all([now, SWEEP]);
      for (const [key] of keys) {
        const blob = this.#remove(key as Buffer);
        if (blob) blobs.push(blob);
      }
      return keys.length;
    });
    this.blobs.drop(blobs);
    return count;
  }

  /** Only when not busy. */
  close(): void {
    this.database.close(() => this.blobs.settle());
    this.blobs.close();
  }

  seconds(): number {
    return Math.floor(this.#options.clock.now() / 1000);
  }

  /** Inside a transaction, which no read can interrupt: the next read loads what was written. */
  #forget(key: Buffer): void {
    this.#options.cache.delete(this.#cacheName(key));
  }

  #cacheName(key: Buffer): string {
    return this.#id + key.toString('latin1');
  }

  #charged(key: Buffer): number {
    return (this.#old.get([key])?.[0] as number | undefined) ?? 0;
  }

  #checkQuota(more: number): void {
    const quota = this.#options.quota();
    if (this.totals.exceeds(quota, more)) throw kvErrors.quota(quota);
  }

  async #write(
    key: Buffer,
    expiration: number | null,
    metadata: Buffer | null,
    charge: number,
    size: number,
    blob: string | null,
    value: Buffer | null,
  ): Promise<void> {
    const oldBlob = await this.database.commit(() => {
      const old = this.#old.get([key]) as [number, string | null] | undefined;
      const more = charge - (old?.[0] ?? 0);
      this.#checkQuota(more);
      this.#forget(key);
      this.#put.run([key, expiration, metadata, charge, size, blob, value]);
      this.totals.add(more, old ? 0 : 1);
      return old?.[1];
    });
    if (oldBlob) this.blobs.drop([oldBlob]);
  }

  #remove(key: Buffer): string | null {
    const old = this.#old.get([key]) as [number, string | null] | undefined;
    if (!old) return null;
    this.#forget(key);
    this.#delete.run([key]);
    this.totals.add(-old[0], -1);
    return old[1];
  }
}

/** Counts a stream of unknown length, up to the limit. */
async function* counted(stream: AsyncIterable<Buffer>, counter: { size: number }): AsyncGenerator<Buffer> {
  for await (const chunk of stream) {
    counter.size += chunk.length;
    // Beyond the limit only the count goes on, because the message names the length.
    if (counter.size <= MAX_VALUE_BYTES) yield chunk;
  }
  if (counter.size > MAX_VALUE_BYTES) throw kvErrors.valueTooLong(counter.size);
}
