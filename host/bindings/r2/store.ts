/**
 * One tenant's bucket: objects under keys, their bytes in blobs on disk or S3, or in the index, or in extents. A put first makes its bytes safe, then
 * names them in one transaction that also decides its condition; readers see the old object or the new one.
 */
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Clock } from '../../shared/clock.ts';
import type { KnownBytes, StoreBlobs } from '../store-process/blobs/backend.ts';
import { type Extent, type Extents, SMALLEST_EXTENT } from '../store-process/blobs/extents.ts';
import type { ByteCache } from '../store-process/cache.ts';
import type { StoreDatabase, StoreTotals, Work } from '../store-process/work.ts';
import { holds } from './conditions.ts';
import { Digests, type Given } from './digests.ts';
import { r2Errors } from './errors.ts';
import type { Gathered, Hashing } from './hashing.ts';
import { MAX_DELETE_KEYS, MAX_VALUE_BYTES } from './limits.ts';
import { Uploads } from './multipart.ts';
import type { ObjectIndex, Segment } from './object-index.ts';
import { chargeOf, checkedKey, describe, type ObjectRow } from './objects.ts';
import { type Range, resolveRange } from './ranges.ts';
import type { GetRequest, PutRequest } from './requests.ts';

export interface R2StoreOptions {
  index: ObjectIndex;
  blobs: StoreBlobs;
  /** Values up to here are kept in the index, or in extents where there are any. */
  inlineBytes: number;
  extents?: Extents;
  quota: () => number;
  clock: Clock;
  /** Bytes of small objects by their version. */
  cache: ByteCache<Buffer>;
  hashing: Hashing;
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
  readonly blobs: StoreBlobs;
  readonly uploads: Uploads;
  readonly clock: Clock;
  readonly inlineBytes: number;
  readonly #quota: () => number;
  /** Bytes on their way in: counted, so that many large puts at once cannot pass the quota together. */
  #reserved = 0;
  readonly #cache: ByteCache<Buffer>;
  readonly #hashing: Hashing;
  readonly #extents: Extents | undefined;

  constructor(options: R2StoreOptions) {
    this.clock = options.clock;
    this.#quota = options.quota;
    this.#cache = options.cache;
    this.#hashing = options.hashing;
    this.inlineBytes = options.inlineBytes;
    this.index = options.index;
    this.blobs = options.blobs;
    this.#extents = options.extents;
    this.uploads = new Uploads(this);
  }

  get database(): StoreDatabase {
    return this.index.database;
  }

  get totals(): StoreTotals {
    return this.index.totals;
  }

  get busy(): boolean {
    return this.index.database.busy || this.blobs.busy;
  }

  head(object: string): ObjectRow | Promise<ObjectRow> {
    const key = checkedKey(object);
    const found = this.index.known(key) ?? this.database.read(() => this.index.get(key));
    return found instanceof Promise ? found.then(present) : present(found);
  }

  /** The object and the bytes to answer with. Throws 10031 with the object where the condition does not hold. */
  get(request: GetRequest): Found | Promise<Found> {
    const decided = (row: ObjectRow): Found | Promise<Found> => {
      if (request.ssec !== undefined) throw r2Errors.ssec();
      if (request.onlyIf && !holds(request.onlyIf, row)) throw r2Errors.preconditionFailed(row);
      const range = resolveRange(request, row.size);
      if (row.blob !== null || row.inline || range.length === 0) return { row, range, segments: [] };
      const segments = this.database.read(() => this.index.segments(row.version));
      // Another node may have replaced the object since its row was read.
      if (segments instanceof Promise)
        return segments.then((found) =>
          sizeOf(found) === row.size ? { row, range, segments: found } : this.get(request),
        );
      return { row, range, segments };
    };
    const row = this.head(request.object);
    return row instanceof Promise ? row.then(decided) : decided(row);
  }

  /** The bytes of an object. The blobs stay until they were read, whatever happens to the object meanwhile. */
  read(row: ObjectRow, range: Range, segments: Segment[]): Buffer | Promise<Buffer | Readable> {
    if (range.length === 0) return Buffer.alloc(0);
    if (row.inline) return this.#whole(row, range, () => this.database.read(() => this.index.value(row.key)));
    if (row.blob !== null) {
      const { blob } = row;
      if (!this.blobs.isDirect(blob, row.size)) {
        const isAll = range.length === row.size;
        return this.blobs.read(blob, range.offset, range.length, isAll ? row.etag : undefined);
      }
      return this.#whole(row, range, () => this.blobs.read(blob, 0, row.size) as Buffer);
    }
    return Promise.resolve(Readable.from(this.#readSegments(segments, range), { objectMode: false }));
  }

  async put(request: PutRequest, bytes: KnownBytes): Promise<ObjectRow> {
    const described = describe(request);
    const { onlyIf } = request;
    // Decided again with the write; here it spares the transfer.
    const known = this.index.known(described.key);
    const now = known ?? (await this.database.read(() => this.index.get(described.key)));
    if (onlyIf && !holds(onlyIf, now)) throw r2Errors.preconditionFailed();
    const charge = chargeOf(described, bytes.length);
    const stored = await this.store(bytes, request, charge - (now?.charge ?? 0), 'inline');
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
    await this.name(stored, () => this.#replace(row, onlyIf, stored), row.key);
    return row;
  }

  *#replace(row: ObjectRow, onlyIf: PutRequest['onlyIf'], { value }: StoredValue): Work<string[]> {
    const now = yield* this.index.get(row.key);
    if (onlyIf && !holds(onlyIf, now)) throw r2Errors.preconditionFailed();
    this.checkQuota(row.charge - (now?.charge ?? 0));
    return yield* this.index.replace(row, value?.bytes ?? null);
  }

  /** Keys that are not there are no error. All go in one transaction. */
  async delete(objects: string[]): Promise<void> {
    if (objects.length > MAX_DELETE_KEYS)
      throw r2Errors.badArgument(`You can delete a maximum of ${MAX_DELETE_KEYS} keys at once.`);
    const keys = objects.map(checkedKey);
    await this.change(() => this.#remove(keys));
  }

  *#remove(keys: Buffer[]): Work<string[]> {
    const unnamed: string[] = [];
    for (const key of keys) unnamed.push(...(yield* this.index.remove(key)));
    return unnamed;
  }

  /**
   * Makes a value's bytes safe and checks its checksums. `more`: bytes that it will add to what the tenant keeps.
   * `small`: may small values go into the index or an extent? In the index they are safe only once they are named.
   * Throws before the first byte is taken where the value is too large or passes the quota.
   */
  async store(bytes: KnownBytes, given: Given, more: number, small: 'inline' | 'blob'): Promise<StoredValue> {
    if (bytes.length > MAX_VALUE_BYTES) throw r2Errors.tooLarge();
    if (this.totals.exceeds(this.#quota(), more + this.#reserved)) await this.totals.refresh();
    this.checkQuota(more + this.#reserved);
    this.#reserved += bytes.length;
    try {
      if (small === 'inline' && bytes.length <= this.inlineBytes && 'chunks' in bytes)
        return await this.#gather(bytes.chunks, bytes.length, given);
      const { bytes: watched, finish } = new Digests(given).watch(bytes);
      if (bytes.length === 0) return { blob: null, value: null, ...finish() };
      const blob = await this.blobs.write(watched);
      try {
        return { blob, value: null, ...finish() };
      } catch (error) {
        this.blobs.abandon(blob);
        throw error;
      }
    } finally {
      this.#reserved -= bytes.length;
    }
  }

  async #gather(chunks: Buffer[], length: number, given: Given): Promise<StoredValue> {
    const gathered = this.#hashing.gather(chunks, length);
    if (this.#extents && gathered.onThread && length >= SMALLEST_EXTENT)
      return this.#place(this.#extents, gathered, length, given);
    try {
      const sums = await new Digests(given).check(gathered);
      if (length === 0) gathered.release();
      return { blob: null, value: length === 0 ? null : gathered, ...sums };
    } catch (error) {
      gathered.release();
      throw error;
    }
  }

  async #place(extents: Extents, gathered: Gathered, length: number, given: Given): Promise<StoredValue> {
    let extent: Extent | undefined;
    try {
      extent = extents.allocate(length);
      const sums = await new Digests(given).check(gathered, extent);
      await extents.sync();
      return { blob: extent.name, value: null, ...sums };
    } catch (error) {
      if (extent) this.blobs.abandon(extent.name);
      throw error;
    } finally {
      gathered.release();
    }
  }

  /** Names a stored value in one transaction. `write` answers the blobs that it replaces. */
  async name(stored: StoredValue, write: () => Work<string[]>, key?: Buffer): Promise<void> {
    try {
      await this.change(write, stored.blob, key);
    } catch (error) {
      if (stored.blob !== null) this.blobs.abandon(stored.blob);
      throw error;
    } finally {
      stored.value?.release();
    }
  }

  /**
   * One transaction. `write` answers the blobs that nothing names any more.
   * @param named a blob that it names
   * @param key as in `StoreDatabase.write`
   */
  async change(write: () => Work<string[]>, named: string | null = null, key?: Buffer): Promise<void> {
    this.blobs.drop(await this.database.write(() => this.#changed(write(), named), key));
  }

  *#changed(write: Work<string[]>, named: string | null): Work<string[]> {
    const unnamed = yield* write;
    yield* this.blobs.change(named, unnamed);
    return unnamed;
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

  /** A part of a small object. A version's bytes never change, so it is the cache's key. */
  #whole(row: ObjectRow, { offset, length }: Range, read: () => Buffer | Promise<Buffer>): Buffer | Promise<Buffer> {
    const part = (bytes: Buffer) => {
      this.#cache.set(row.version, bytes, bytes.length);
      return bytes.subarray(offset, offset + length);
    };
    const known = this.#cache.get(row.version);
    if (known) return known.subarray(offset, offset + length);
    const bytes = read();
    return bytes instanceof Promise ? bytes.then(part) : part(bytes);
  }

  async *#readSegments(segments: Segment[], range: Range): AsyncGenerator<Buffer> {
    const wanted = cut(segments, range);
    for (const { blob } of wanted) this.blobs.hold(blob);
    try {
      for (const { blob, offset, length, md5 } of wanted) {
        const bytes = this.blobs.read(blob, offset, length, md5);
        if (Buffer.isBuffer(bytes)) yield bytes;
        else yield* (await bytes) as AsyncIterable<Buffer>;
      }
    } finally {
      for (const { blob } of wanted) this.blobs.release(blob);
    }
  }
}

/** An object, and what of it is wanted. */
export interface Found {
  row: ObjectRow;
  range: Range;
  /** Where it was put in parts. */
  segments: Segment[];
}

function present(row: ObjectRow | undefined): ObjectRow {
  if (!row) throw r2Errors.noSuchKey();
  return row;
}

function sizeOf(segments: Segment[]): number {
  return segments.reduce((sum, { size }) => sum + size, 0);
}

/** The parts of the segments that a range covers. */
export function cut(
  segments: Segment[],
  range: Range,
): { blob: string; offset: number; length: number; md5?: string }[] {
  const end = range.offset + range.length;
  const pieces: ReturnType<typeof cut> = [];
  let start = 0;
  for (const { blob, size, md5 } of segments) {
    const from = Math.max(start, range.offset);
    const to = Math.min(start + size, end);
    if (from < to) pieces.push({ blob, offset: from - start, length: to - from, ...(to - from === size && { md5 }) });
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
