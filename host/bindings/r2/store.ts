/**
 * One tenant's bucket: objects under keys, their bytes in blobs on disk or S3, or in the index, or in extents. A put first makes its bytes safe, then
 * names them in one transaction that also decides its condition; readers see the old object or the new one.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { Clock } from '../../shared/clock.ts';
import type { BlobBackend, KnownBytes } from '../store-process/blobs/backend.ts';
import { Blobs } from '../store-process/blobs/blobs.ts';
import { type Extent, Extents, SMALLEST_EXTENT } from '../store-process/blobs/extents.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { Checkpoints } from '../store-process/checkpoints.ts';
import type { Database } from '../store-process/database.ts';
import type { Totals } from '../store-process/totals.ts';
import { holds } from './conditions.ts';
import { Digests, type Given } from './digests.ts';
import { r2Errors } from './errors.ts';
import type { Gathered, Hashing } from './hashing.ts';
import { MAX_DELETE_KEYS, MAX_VALUE_BYTES } from './limits.ts';
import { Uploads } from './multipart.ts';
import { NAMED_BLOB, ObjectIndex } from './object-index.ts';
import { chargeOf, checkedKey, describe, type ObjectRow } from './objects.ts';
import { type Range, resolveRange } from './ranges.ts';
import type { GetRequest, PutRequest } from './requests.ts';

export interface R2StoreOptions {
  /** Folder of the index. */
  folder: string;
  backend: BlobBackend;
  quota: () => number;
  clock: Clock;
  /** Rows of the index. */
  rows: ByteCache<ObjectRow>;
  /** KnownBytes of small objects by their version. */
  cache: ByteCache<Buffer>;
  hashing: Hashing;
  checkpoints: Checkpoints;
  log: Logger;
}

/** A value that was stored and is not named yet. */
export interface StoredValue {
  /** Name of the bytes; null for an empty value, and for one that goes into the index */
  blob: string | null;
  /** The bytes of a small value, which go into the index; `name` releases them */
  value: Gathered | null;
  md5: Buffer;
  checksums: string;
}

export class R2Store {
  readonly index: ObjectIndex;
  readonly blobs: Blobs;
  readonly uploads: Uploads;
  readonly clock: Clock;
  readonly #quota: () => number;
  /** KnownBytes on their way in: counted, so that many large puts at once cannot pass the quota together. */
  #reserved = 0;
  readonly #cache: ByteCache<Buffer>;
  readonly #hashing: Hashing;
  readonly #inlineBytes: number;
  readonly #extents: Extents;

  constructor(options: R2StoreOptions) {
    this.clock = options.clock;
    this.#quota = options.quota;
    this.#cache = options.cache;
    this.#hashing = options.hashing;
    this.#inlineBytes = options.backend.inlineBytes;
    this.index = new ObjectIndex(options.folder, options.rows, options.checkpoints);
    this.#extents = new Extents(join(options.folder, 'r2.extents'), this.index.extents());
    this.blobs = new Blobs({
      backend: options.backend,
      database: this.index.database,
      log: options.log,
      named: NAMED_BLOB,
      extents: this.#extents,
    });
    this.uploads = new Uploads(this);
  }

  get database(): Database {
    return this.index.database;
  }

  get totals(): Totals {
    return this.index.totals;
  }

  get busy(): boolean {
    return this.index.database.busy || this.blobs.busy;
  }

  head(object: string): ObjectRow {
    const row = this.index.get(checkedKey(object));
    if (!row) throw r2Errors.noSuchKey();
    return row;
  }

  /** The object and the bytes to answer with. Throws 10031 with the object where the condition does not hold. */
  get(request: GetRequest): { row: ObjectRow; range: Range } {
    const row = this.head(request.object);
    if (request.ssec !== undefined) throw r2Errors.ssec();
    if (request.onlyIf && !holds(request.onlyIf, row)) throw r2Errors.preconditionFailed(row);
    return { row, range: resolveRange(request, row.size) };
  }

  /** The bytes of an object. The blobs stay until they were read, whatever happens to the object meanwhile. */
  read(row: ObjectRow, range: Range): Buffer | Promise<Readable> {
    if (range.length === 0) return Buffer.alloc(0);
    if (row.inline) return this.#whole(row, () => this.index.value(row.key)).subarray(...ends(range));
    if (row.blob !== null) {
      const { blob } = row;
      if (!this.blobs.isDirect(blob, row.size)) return this.blobs.read(blob, range.offset, range.length);
      return this.#whole(row, () => this.blobs.read(blob, 0, row.size) as Buffer).subarray(...ends(range));
    }
    return Promise.resolve(Readable.from(this.#readSegments(row, range), { objectMode: false }));
  }

  async put(request: PutRequest, bytes: KnownBytes): Promise<ObjectRow> {
    const described = describe(request);
    const { onlyIf } = request;
    // Decided again with the write; here it spares the transfer.
    if (onlyIf && !holds(onlyIf, this.index.get(described.key))) throw r2Errors.preconditionFailed();
    const charge = chargeOf(described, bytes.length);
    const stored = await this.store(bytes, request, charge - this.index.charged(described.key), 'inline');
    const row: ObjectRow = {
      ...described,
      version: newVersion(),
      size: bytes.length,
      etag: stored.md5.toString('hex'),
      uploaded: this.clock.now(),
      checksums: stored.checksums,
      charge,
      blob: stored.blob,
      inline: stored.value !== null,
    };
    await this.name(stored, () => {
      if (onlyIf && !holds(onlyIf, this.index.get(row.key))) throw r2Errors.preconditionFailed();
      this.checkQuota(charge - this.index.charged(row.key));
      return this.index.replace(row, stored.value?.bytes ?? null);
    });
    return row;
  }

  /** Keys that are not there are no error. All go in one transaction. */
  async delete(objects: string[]): Promise<void> {
    if (objects.length > MAX_DELETE_KEYS)
      throw r2Errors.badArgument(`You can delete a maximum of ${MAX_DELETE_KEYS} keys at once.`);
    const keys = objects.map(checkedKey);
    this.blobs.drop(await this.index.database.commit(() => keys.flatMap((key) => this.index.remove(key))));
  }

  /**
   * Makes a value's bytes safe and checks its checksums. `more`: bytes that it will add to what the tenant keeps.
   * `small`: may small values go into the index or an extent? In the index they are safe only once they are named.
   * Throws before the first byte is taken where the value is too large or passes the quota.
   */
  async store(bytes: KnownBytes, given: Given, more: number, small: 'inline' | 'blob'): Promise<StoredValue> {
    if (bytes.length > MAX_VALUE_BYTES) throw r2Errors.tooLarge();
    this.checkQuota(more + this.#reserved);
    this.#reserved += bytes.length;
    try {
      if (small === 'inline' && bytes.length <= this.#inlineBytes && 'chunks' in bytes)
        return await this.#gather(bytes.chunks, bytes.length, given);
      const { bytes: watched, finish } = new Digests(given).watch(bytes);
      if (bytes.length === 0) return { blob: null, value: null, ...finish() };
      const blob = await this.blobs.write(watched);
      try {
        return { blob, value: null, ...finish() };
      } catch (error) {
        this.blobs.drop([blob]);
        throw error;
      }
    } finally {
      this.#reserved -= bytes.length;
    }
  }

  async #gather(chunks: Buffer[], length: number, given: Given): Promise<StoredValue> {
    const gathered = this.#hashing.gather(chunks, length);
    if (gathered.onThread && length >= SMALLEST_EXTENT) return this.#place(gathered, length, given);
    try {
      const sums = await new Digests(given).check(gathered);
      if (length === 0) gathered.release();
      return { blob: null, value: length === 0 ? null : gathered, ...sums };
    } catch (error) {
      gathered.release();
      throw error;
    }
  }

  async #place(gathered: Gathered, length: number, given: Given): Promise<StoredValue> {
    let extent: Extent | undefined;
    try {
      extent = this.#extents.allocate(length);
      const sums = await new Digests(given).check(gathered, extent);
      await this.#extents.sync();
      return { blob: extent.name, value: null, ...sums };
    } catch (error) {
      if (extent) this.blobs.drop([extent.name]);
      throw error;
    } finally {
      gathered.release();
    }
  }

  /** Names a stored value in one transaction. `write` answers the blobs that it replaces. */
  async name(stored: StoredValue, write: () => string[]): Promise<void> {
    try {
      this.blobs.drop(await this.index.database.commit(write));
    } catch (error) {
      if (stored.blob !== null) this.blobs.drop([stored.blob]);
      throw error;
    } finally {
      stored.value?.release();
    }
  }

  checkQuota(more: number): void {
    const quota = this.#quota();
    if (this.index.totals.exceeds(quota, more)) throw r2Errors.quota(quota);
  }

  /** Aborts uploads that nobody completed; answers how many. */
  sweep(): Promise<number> {
    return this.uploads.sweep();
  }

  /** Only when not busy. */
  close(): void {
    this.index.database.close(() => this.blobs.settle());
    this.blobs.close();
  }

  /** All bytes of a small object. A version's bytes never change, so it is the cache's key. */
  #whole(row: ObjectRow, read: () => Buffer): Buffer {
    const known = this.#cache.get(row.version);
    if (known) return known;
    const bytes = read();
    this.#cache.set(row.version, bytes, bytes.length);
    return bytes;
  }

  async *#readSegments(row: ObjectRow, range: Range): AsyncGenerator<Buffer> {
    const wanted = cut(this.index.segments(row.version), range);
    for (const { blob } of wanted) this.blobs.hold(blob);
    try {
      for (const { blob, offset, length } of wanted) {
        const bytes = this.blobs.read(blob, offset, length);
        if (Buffer.isBuffer(bytes)) yield bytes;
        else yield* (await bytes) as AsyncIterable<Buffer>;
      }
    } finally {
      for (const { blob } of wanted) this.blobs.release(blob);
    }
  }
}

function ends({ offset, length }: Range): [number, number] {
  return [offset, offset + length];
}

/** The parts of the segments that a range covers. */
export function cut(
  segments: { blob: string; size: number }[],
  range: Range,
): { blob: string; offset: number; length: number }[] {
  const end = range.offset + range.length;
  const pieces: { blob: string; offset: number; length: number }[] = [];
  let start = 0;
  for (const { blob, size } of segments) {
    const from = Math.max(start, range.offset);
    const to = Math.min(start + size, end);
    if (from < to) pieces.push({ blob, offset: from - start, length: to - from });
    start += size;
  }
  return pieces;
}

const VERSION_BYTES = 16;
/** Random bytes of versions to come: fetched one by one they take ten times as long. */
let random = Buffer.alloc(0);

export function newVersion(): string {
  if (random.length === 0) random = randomBytes(256 * VERSION_BYTES);
  const version = random.toString('hex', 0, VERSION_BYTES);
  random = random.subarray(VERSION_BYTES);
  return version;
}
