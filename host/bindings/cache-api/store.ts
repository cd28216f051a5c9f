/**
 * What one tenant's caches hold: a libSQL file, with larger bodies as files beside it. The quota is never passed: what was
 * used longest ago leaves first. An entry is there whole or not at all, as its row is written after its body is safe.
 */
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { Clock } from '../../shared/clock.ts';
import type { Bytes } from '../store-process/blobs/backend.ts';
import { BLOB_SCHEMA, Blobs } from '../store-process/blobs/blobs.ts';
import { DiskBlobs } from '../store-process/blobs/disk.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { Fields } from '../store-process/calls/call.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import { Database, type Reader, type Writer } from '../store-process/database.ts';
import { Refusal } from '../store-process/refusal.ts';
import { TOTALS_SCHEMA, Totals } from '../store-process/totals.ts';
import type { KeptHead } from './freshness.ts';
import { INLINE_BYTES, MAX_BODY_BYTES } from './limits.ts';

const SCHEMA = `
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, born INTEGER NOT NULL,
    until INTEGER NOT NULL, status INTEGER NOT NULL, fields TEXT NOT NULL, size INTEGER NOT NULL,
    charge INTEGER NOT NULL, blob TEXT, value BLOB);
  CREATE INDEX entries_used ON entries (used);
  CREATE INDEX entries_until ON entries (until);
  CREATE INDEX entries_blob ON entries (blob) WHERE blob IS NOT NULL;
  ${BLOB_SCHEMA}; ${TOTALS_SCHEMA}`;

/** What an entry weighs without its fields and its body: it bounds how many there are. */
const ROW_BYTES = 1_024;
/** Entries that one transaction removes; others are served before the next one. */
const BATCH = 100;
/** Uses that are remembered before they are written down. */
const MOST_USES = 512;

export interface Entry extends KeptHead {
  /** Bytes of the body. */
  size: number;
  /** The body itself, or the name of the blob that holds it. */
  value: Buffer | null;
  blob: string | null;
}

export interface CacheStoreOptions {
  folder: string;
  quota: () => number;
  clock: Clock;
  /** Entries by the store and the key. */
  memory: ByteCache<Entry>;
  checkpoints: Checkpoints;
  log: Logger;
}

/** It is too large for this cache, or too much is on its way. */
export class NoRoom extends Refusal {
  constructor() {
    super('There is no room for this answer in the cache.');
    this.name = 'NoRoom';
  }
}

let nextId = 0;

export class CacheStore {
  readonly database: Database;
  readonly blobs: Blobs;
  readonly totals: Totals;
  readonly inlineBytes = 0;
  readonly #options: CacheStoreOptions;
  readonly #get: Reader;
  readonly #old: Reader;
  readonly #oldest: Reader;
  readonly #expired: Reader;
  readonly #put: Writer;
  readonly #use: Writer;
  readonly #delete: Writer;
  /** Bytes of bodies on their way in, and of those that are removed and still read: together not more than the quota. */
  #incoming = 0;
  #lingering = 0;
  /** Bodies that are being sent, by their blobs. */
  readonly #sending = new Map<string, { readers: number; bytes: number; removed: boolean }>();
  /** Key -> its place in the order of use, where the index does not know it yet. */
  readonly #uses = new Map<string, number>();
  #lastUse: number;
  /** Tells this opening of this store from all others in the shared memory. */
  readonly #id = `${nextId++}:`;

  constructor(options: CacheStoreOptions) {
    this.#options = options;
    const { folder, checkpoints, log } = options;
    const database = new Database({ path: join(folder, 'cache.db'), schema: SCHEMA, checkpoints });
    this.database = database;
    this.totals = new Totals(database, ROW_BYTES);
    this.blobs = new Blobs({
      backend: new DiskBlobs(join(folder, 'bodies')),
      database,
      log,
      named: 'SELECT 1 FROM entries WHERE blob = ?',
    });
    this.#get = database.reader('SELECT born, until, status, fields, size, value, blob FROM entries WHERE key = ?');
    this.#old = database.reader('SELECT charge, blob, until FROM entries WHERE key = ?');
    this.#oldest = database.reader('SELECT key FROM entries ORDER BY used LIMIT 1');
    this.#expired = database.reader('SELECT key FROM entries WHERE until <= ? LIMIT ?');
    this.#put = database.writer(
      `INSERT INTO entries (key, used, born, until, status, fields, size, charge, blob, value)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    );
    this.#use = database.writer('UPDATE entries SET used = ? WHERE key = ?');
    this.#delete = database.writer('DELETE FROM entries WHERE key = ?');
    this.#lastUse = Number(database.reader('SELECT max(used) FROM entries').get([])?.[0] ?? 0);
  }

  get busy(): boolean {
    return this.database.busy || this.blobs.busy;
  }

  now(): number {
    return this.#options.clock.now();
  }

  /** The entry under a key, unless its time is over. It counts as used. */
  match(key: Buffer): Entry | undefined {
    const text = key.toString('latin1');
    const entry = this.#options.memory.get(this.#id + text) ?? this.#read(key, text);
    if (!entry || entry.until <= this.now()) return undefined;
    this.#uses.set(text, ++this.#lastUse);
    if (this.#uses.size >= MOST_USES) void this.sweep().catch(() => {});
    return entry;
  }

  /** A part of a body. It stays until it was read, whatever happens to the entry meanwhile. */
  body({ value, blob, size }: Entry, from: number, length: number): Buffer | Promise<Readable> {
    if (value) return value.subarray(from, from + length);
    if (blob === null || length === 0) return Buffer.alloc(0);
    const bytes = this.blobs.read(blob, from, length);
    if (Buffer.isBuffer(bytes)) return bytes;
    const sending = this.#sending.get(blob) ?? { readers: 0, bytes: size, removed: false };
    this.#sending.set(blob, sending);
    sending.readers++;
    const done = () => {
      if (--sending.readers > 0) return;
      this.#sending.delete(blob);
      if (sending.removed) this.#lingering -= sending.bytes;
    };
    return bytes.then(
      (stream) => stream.once('close', done),
      (error) => {
        done();
        throw error;
      },
    );
  }

  /** Resolves once the entry is safe. @throws NoRoom */
  async put(key: Buffer, head: KeptHead, bytes: Bytes): Promise<void> {
    const fields = JSON.stringify(head.fields);
    let size = 0;
    const take = (more: number) => {
      size += more;
      this.#incoming += more;
      const beside = this.#incoming + this.#lingering;
      if (size > MAX_BODY_BYTES || beside > this.#options.quota()) throw new NoRoom();
    };
    try {
      take(bytes.length ?? 0);
      const small = 'chunks' in bytes && bytes.length <= INLINE_BYTES;
      const value = small ? Buffer.concat(bytes.chunks) : null;
      const stored = bytes.length === undefined ? { length: undefined, stream: counted(bytes.stream, take) } : bytes;
      const blob = small ? null : await this.blobs.write(stored);
      try {
        await this.#place(key, head, fields, size, blob, value);
      } catch (error) {
        if (blob !== null) this.blobs.drop([blob]);
        throw error;
      }
    } finally {
      this.#incoming -= size;
    }
  }

  /** Answers whether there was one that could have been given. */
  async delete(key: Buffer): Promise<boolean> {
    if (!this.#old.get([key])) return false;
    let existed = false;
    await this.#changing((dropped) => {
      const until = this.#remove(key, dropped);
      existed = until !== undefined && until > this.now();
      return true;
    });
    return existed;
  }

  /** Writes down what was used, and removes some of what has expired or is more than the quota; answers how much. */
  async sweep(): Promise<number> {
    const now = this.now();
    const hasExpired = this.#expired.get([now, 1]) !== undefined;
    if (!hasExpired && this.#uses.size === 0 && this.totals.charged <= this.#options.quota()) return 0;
    let count = 0;
    await this.#changing((dropped) => {
      this.#saveUses();
      const keys = this.#expired.all([now, BATCH]);
      for (const [expired] of keys) this.#remove(expired as Buffer, dropped);
      const before = this.totals.items;
      this.#makeRoom(0, dropped);
      count = keys.length + before - this.totals.items;
      return true;
    });
    return count;
  }

  /** Only when not busy. */
  close(): void {
    this.database.close(() => this.blobs.settle());
    this.blobs.close();
  }

  #read(key: Buffer, text: string): Entry | undefined {
    const row = this.#get.get([key]) as
      | [number, number, number, string, number, Buffer | null, string | null]
      | undefined;
    if (!row) return undefined;
    const [born, until, status, fields, size, value, blob] = row;
    const entry = { born, until, status, fields: JSON.parse(fields) as Fields, size, value, blob };
    this.#options.memory.set(this.#id + text, entry, fields.length + (value?.length ?? 0));
    return entry;
  }

  async #place(
    key: Buffer,
    { born, until, status }: KeptHead,
    fields: string,
    size: number,
    blob: string | null,
    value: Buffer | null,
  ): Promise<void> {
    const charge = key.length + fields.length + size;
    if (charge + ROW_BYTES > this.#options.quota()) throw new NoRoom();
    await this.#changing((dropped) => {
      this.#remove(key, dropped);
      if (!this.#makeRoom(charge + ROW_BYTES, dropped)) return false;
      this.#put.run([key, ++this.#lastUse, born, until, status, fields, size, charge, blob, value]);
      this.totals.add(charge, 1);
      return true;
    });
  }

  /** Transactions until `change` answers true. It adds the blobs that nothing names any more. */
  async #changing(change: (dropped: string[]) => boolean): Promise<void> {
    for (let done = false; !done; ) {
      const dropped: string[] = [];
      done = await this.database.commit(() => change(dropped));
      for (const blob of dropped) {
        const sending = this.#sending.get(blob);
        if (!sending) continue;
        sending.removed = true;
        this.#lingering += sending.bytes;
      }
      this.blobs.drop(dropped);
    }
  }

  /** Inside a transaction: removes what was used longest ago; false where there is more to remove. */
  #makeRoom(bytes: number, dropped: string[]): boolean {
    const quota = this.#options.quota();
    if (this.totals.charged + bytes <= quota) return true;
    this.#saveUses();
    for (let count = 0; count < BATCH; count++) {
      const [oldest] = this.#oldest.get([]) ?? [];
      if (!oldest) return true;
      this.#remove(oldest as Buffer, dropped);
      if (this.totals.charged + bytes <= quota) return true;
    }
    return false;
  }

  /** Inside a transaction. */
  #saveUses(): void {
    for (const [text, use] of this.#uses) this.#use.run([use, Buffer.from(text, 'latin1')]);
    this.#uses.clear();
  }

  /** Inside a transaction, which no read can interrupt. Answers until when the entry was good. */
  #remove(key: Buffer, dropped: string[]): number | undefined {
    const old = this.#old.get([key]) as [number, string | null, number] | undefined;
    if (!old) return undefined;
    const [charge, blob, until] = old;
    const text = key.toString('latin1');
    this.#options.memory.delete(this.#id + text);
    this.#uses.delete(text);
    this.#delete.run([key]);
    this.totals.add(-charge, -1);
    if (blob !== null) dropped.push(blob);
    return until;
  }
}

/** @param take told of bytes that are about to be kept */
async function* counted(stream: AsyncIterable<Buffer>, take: (more: number) => void): AsyncGenerator<Buffer> {
  for await (const chunk of stream) {
    take(chunk.length);
    yield chunk;
  }
}
