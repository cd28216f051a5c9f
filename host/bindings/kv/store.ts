/**
 * One tenant's key-value store: rows of a database, with values over 64 KiB as blobs beside it. Expired keys are gone for
 * readers at once and swept later.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../../shared/clock.ts';
import type { Bytes, StoreBlobs } from '../store-process/blobs/backend.ts';
import type { ByteCache } from '../store-process/cache.ts';
import { behindKey, later, prefixRange } from '../store-process/key-range.ts';
import type { Query, StoreDatabase, StoreTotals, Value, Work } from '../store-process/work.ts';
import { KvError, kvErrors } from './errors.ts';
import { INLINE_BYTES, MAX_VALUE_BYTES } from './limits.ts';
import type { ListOptions } from './validate.ts';

/** About what an entry weighs without its key, value and metadata. */
export const ROW_BYTES = 64;
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
  database: StoreDatabase;
  totals: StoreTotals;
  blobs: StoreBlobs;
  quota: () => number;
  clock: Clock;
  /** Entries with small values, by the store and the key. */
  cache: ByteCache<CachedEntry>;
  /** Others write this store, too: what is in the cache may be old. */
  isShared: boolean;
}

export interface CachedEntry extends Entry {
  /** When it was asked for, ms of `performance.now()`. */
  readAt: number;
}

let nextId = 0;

export class KvStore {
  readonly database: StoreDatabase;
  readonly blobs: StoreBlobs;
  readonly totals: StoreTotals;
  readonly inlineBytes = INLINE_BYTES;
  readonly #options: KvStoreOptions;
  readonly #get: Query;
  readonly #list: Query;
  readonly #old: Query;
  readonly #put: Query;
  readonly #delete: Query;
  readonly #expired: Query;
  /** Bytes of large values on their way in, so that many at once cannot pass the quota together. */
  #reserved = 0;
  /** Tells this opening of this store from all others in the shared cache. */
  readonly #id = `${nextId++}:`;

  constructor(options: KvStoreOptions) {
    this.#options = options;
    const { database } = options;
    this.database = database;
    this.totals = options.totals;
    this.blobs = options.blobs;
    this.#get = database.query('SELECT expiration, metadata, size, blob, value FROM entries WHERE key = ?');
    this.#list = database.query(
      `SELECT key, expiration, metadata FROM entries
       WHERE key >= ? AND key < ? AND (expiration IS NULL OR expiration > ?) ORDER BY key LIMIT ?`,
    );
    this.#old = database.query('SELECT charge, blob FROM entries WHERE key = ?');
    this.#put = database.query(
      `INSERT INTO entries (key, expiration, metadata, charge, size, blob, value) VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET expiration = excluded.expiration, metadata = excluded.metadata,
       charge = excluded.charge, size = excluded.size, blob = excluded.blob, value = excluded.value`,
    );
    this.#delete = database.query('DELETE FROM entries WHERE key = ?');
    this.#expired = database.query('SELECT key FROM entries WHERE expiration <= ? LIMIT ?');
  }

  get busy(): boolean {
    return this.database.busy || this.blobs.busy;
  }

  /**
   * @param key checked with checkedKey
   * @param maxAge seconds for which the caller takes what was true before, where others write this store, too
   */
  get(key: Buffer, maxAge = 0): Entry | undefined | Promise<Entry | undefined> {
    const { cache, isShared } = this.#options;
    const name = this.#cacheName(key);
    const known = cache.get(name);
    if (known && (!isShared || performance.now() - known.readAt < maxAge * 1000)) return this.#living(known);
    const now = performance.now();
    const found = this.database.read(() => this.#load(key));
    const taken = (entry: Entry | undefined) => this.#living(entry && this.#remember(name, entry, now, maxAge));
    return found instanceof Promise ? found.then(taken) : taken(found);
  }

  #living(entry: Entry | undefined): Entry | undefined {
    return entry && (entry.expiration === null || entry.expiration > this.seconds()) ? entry : undefined;
  }

  #remember(name: string, entry: Entry, readAt: number, maxAge: number): Entry {
    if (!entry.value || (this.#options.isShared && maxAge === 0)) return entry;
    this.#options.cache.set(name, { ...entry, readAt }, entry.size + (entry.metadata?.length ?? 0));
    return entry;
  }

  *#load(key: Buffer): Work<Entry | undefined> {
    const row = (yield* this.#get.get([key])) as
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
    if (this.totals.exceeds(this.#options.quota(), around + (bytes.length ?? 0))) await this.#makeRoom();
    if ('chunks' in bytes && bytes.length <= INLINE_BYTES) {
      const { chunks, length } = bytes;
      const value = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
      await this.#write(key, expiration, metadata, around + length, length, null, value);
      return;
    }
    const expected = bytes.length ?? 0;
    this.#checkQuota(around + expected + this.#reserved - (await this.database.read(() => this.#charged(key))));
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
      this.blobs.abandon(blob);
      throw error;
    }
  }

  /** A key that is not there is no error. */
  async delete(key: Buffer): Promise<void> {
    this.blobs.drop(await this.database.write(() => this.#remove([key]), key));
  }

  /** One more than `limit` keys when there are more. */
  list({ prefix, after, limit }: ListOptions): ListedKey[] | Promise<ListedKey[]> {
    const { from, to } = prefixRange(prefix);
    const start = after ? later(from, behindKey(after)) : from;
    const rows = this.database.read(() => this.#list.all([start, to, this.seconds(), limit + 1]));
    return rows instanceof Promise ? rows.then(listedKeys) : listedKeys(rows);
  }

  /** Removes expired keys; answers how many. */
  async sweep(): Promise<number> {
    const now = this.seconds();
    const some = await this.database.read(() => this.#expired.get([now, 1]));
    if (some === undefined) return 0;
    let count = 0;
    const remove = function* (this: KvStore): Work<string[]> {
      const keys = yield* this.#expired.all([now, SWEEP]);
      count = keys.length;
      return yield* this.#remove(keys.map(([key]) => key as Buffer));
    };
    this.blobs.drop(await this.database.write(() => remove.call(this)));
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

  *#charged(key: Buffer): Work<number> {
    return ((yield* this.#old.get([key]))?.[0] as number | undefined) ?? 0;
  }

  /** What has expired must not stand in the way of what is new. */
  async #makeRoom(): Promise<number> {
    await this.totals.refresh();
    let swept = 0;
    for (let count = await this.sweep(); count > 0; count = await this.sweep()) swept += count;
    return swept;
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
    const row = [key, expiration, metadata, charge, size, blob, value];
    const write = () => this.database.write(() => this.#replace(key, charge, blob, row), key);
    const dropped = await write().catch(async (error) => {
      // Another node may have written what has expired.
      if (error instanceof KvError && error.status === kvErrors.quota(0).status && (await this.#makeRoom()) > 0)
        return write();
      throw error;
    });
    this.blobs.drop(dropped);
  }

  /** Inside a transaction; answers the blobs that nothing names any more. */
  *#replace(key: Buffer, charge: number, blob: string | null, row: Value[]): Work<string[]> {
    const old = (yield* this.#old.get([key])) as [number, string | null] | undefined;
    const more = charge - (old?.[0] ?? 0);
    this.#checkQuota(more);
    this.#forget(key);
    yield* this.#put.run(row);
    this.totals.add(more, old ? 0 : 1);
    const unnamed = old?.[1] ? [old[1]] : [];
    yield* this.blobs.change(blob, unnamed);
    return unnamed;
  }

  /** Likewise. */
  *#remove(keys: Buffer[]): Work<string[]> {
    const unnamed: string[] = [];
    for (const key of keys) {
      const old = (yield* this.#old.get([key])) as [number, string | null] | undefined;
      if (!old) continue;
      this.#forget(key);
      yield* this.#delete.run([key]);
      this.totals.add(-old[0], -1);
      if (old[1]) unnamed.push(old[1]);
    }
    yield* this.blobs.change(null, unnamed);
    return unnamed;
  }
}

function listedKeys(rows: Value[][]): ListedKey[] {
  return rows.map(([key, expiration, metadata]) => ({ key, expiration, metadata }) as ListedKey);
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
