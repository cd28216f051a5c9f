/**
 * Multipart uploads: created, filled part by part, and completed in one transaction that turns the parts into the
 * object without moving a byte. Rules as in R2: all parts but the last are of one size of at least 5 MiB.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { KnownBytes } from '../store-process/blobs/backend.ts';
import type { Query, Work } from '../store-process/work.ts';
import { r2Errors } from './errors.ts';
import { MAX_ENDED_UPLOADS, MAX_OBJECT_BYTES, MAX_PARTS, MIN_PART_BYTES, UPLOAD_LIFE_MS } from './limits.ts';
import { chargeOf, checkedKey, type Described, describe, type ObjectRow } from './objects.ts';
import type { AbortRequest, CompleteRequest, CreateRequest, UploadPartRequest } from './requests.ts';
import { newVersion, type R2Store } from './store.ts';

/** Finished uploads are remembered for a while: abort and complete tell them from unknown ones. */
type State = 'open' | 'completed' | 'aborted';

interface Part {
  number: number;
  blob: string;
  size: number;
  md5: string;
}

/** Uploads that one sweep ends. */
const SWEEP = 100;
/** About what the row of an upload or of a part weighs: it counts, or empty ones could fill the disk. */
const ROW_BYTES = 256;

export class Uploads {
  readonly #store: R2Store;
  readonly #create: Query;
  readonly #get: Query;
  readonly #settle: Query;
  readonly #parts: Query;
  readonly #part: Query;
  readonly #putPart: Query;
  readonly #deletePart: Query;
  readonly #deleteParts: Query;
  readonly #link: Query;
  readonly #old: Query;
  readonly #forget: Query;
  readonly #newest: Query;
  /** Ids of uploads that have ended, oldest first; undefined: not read yet. */
  #ended: string[] | undefined;

  constructor(store: R2Store) {
    this.#store = store;
    const { database } = store.index;
    this.#create = database.query(
      `INSERT INTO uploads (id, key, http, custom, storage_class, created, state) VALUES (?, ?, ?, ?, ?, ?, 'open')`,
    );
    this.#get = database.query('SELECT state, http, custom, storage_class FROM uploads WHERE id = ? AND key = ?');
    this.#settle = database.query('UPDATE uploads SET state = ?, http = NULL, custom = NULL WHERE id = ?');
    this.#parts = database.query(
      'SELECT number, blob, size, md5 FROM parts WHERE upload = ? AND version IS NULL ORDER BY number',
    );
    this.#part = database.query('SELECT number, blob, size, md5 FROM parts WHERE upload = ? AND number = ?');
    this.#putPart = database.query(
      `INSERT INTO parts (upload, number, blob, size, md5) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (upload, number) DO UPDATE SET blob = excluded.blob, size = excluded.size, md5 = excluded.md5`,
    );
    this.#deletePart = database.query('DELETE FROM parts WHERE upload = ? AND number = ?');
    this.#deleteParts = database.query('DELETE FROM parts WHERE upload = ? AND version IS NULL');
    this.#link = database.query('UPDATE parts SET version = ? WHERE upload = ?');
    // The first rows are the oldest: there is no need to look at the others, of which there may be many.
    this.#old = database.query(
      'SELECT id, state, key FROM (SELECT * FROM uploads WHERE true ORDER BY rowid LIMIT ?) AS first WHERE created <= ?',
    );
    this.#forget = database.query("DELETE FROM uploads WHERE id = ? AND state <> 'open'");
    this.#newest = database.query('SELECT id, state FROM uploads WHERE true ORDER BY rowid DESC LIMIT ?');
  }

  async create(request: CreateRequest): Promise<string> {
    const described = describe(request);
    const { key, http, custom, storageClass } = described;
    const id = randomBytes(48).toString('base64url');
    const { index, clock } = this.#store;
    // What it will be told by counts from now on, as the object's will.
    const charge = heldBy(described, []);
    const create = function* (this: Uploads): Work<void> {
      this.#store.checkQuota(charge);
      yield* this.#create.run([id, key, http, custom, storageClass, clock.now()]);
      index.totals.add(charge, 0);
    };
    await index.database.write(() => create.call(this));
    return id;
  }

  /** Stores a part in place of an earlier one with its number. Answers its etag. */
  async putPart(request: UploadPartRequest, bytes: KnownBytes): Promise<string> {
    const key = checkedKey(request.object);
    if (request.ssec !== undefined) throw r2Errors.ssec();
    const { uploadId, partNumber } = request;
    if (partNumber < 1 || partNumber > MAX_PARTS)
      throw r2Errors.badArgument(`Part number must be between 1 and ${MAX_PARTS} (inclusive).`);
    await this.#store.database.read(() => this.#requireOpen(uploadId, key));
    const stored = await this.#store.store(bytes, {}, bytes.length, 'blob');
    const md5 = stored.md5.toString('hex');
    const put = function* (this: Uploads): Work<string[]> {
      yield* this.#requireOpen(uploadId, key);
      const old = yield* this.#partOf(uploadId, partNumber);
      const more = bytes.length - (old?.size ?? -ROW_BYTES);
      this.#store.checkQuota(more);
      yield* this.#putPart.run([uploadId, partNumber, stored.blob ?? '', bytes.length, md5]);
      this.#store.totals.add(more, 0);
      return old ? blobsOf([old]) : [];
    };
    await this.#store.name(stored, () => put.call(this));
    return md5;
  }

  async complete(request: CompleteRequest): Promise<ObjectRow> {
    const key = checkedKey(request.object);
    const { uploadId } = request;
    const { index } = this.#store;
    let row: ObjectRow | undefined;
    const complete = function* (this: Uploads): Work<string[]> {
      const described = yield* this.#requireOpen(uploadId, key);
      const uploaded = yield* this.#partsOf(uploadId);
      const parts = selectParts(request.parts, uploaded);
      const size = sizeOf(parts);
      if (size > MAX_OBJECT_BYTES) throw r2Errors.tooLarge();
      row = {
        ...described,
        version: newVersion(),
        size,
        etag: completedEtag(parts),
        uploaded: this.#store.clock.now(),
        checksums: '',
        charge: chargeOf(described, size),
        blob: null,
        inline: false,
      };
      const chosen = new Set(parts.map((part) => part.number));
      const left = uploaded.filter((part) => !chosen.has(part.number));
      for (const part of left) yield* this.#deletePart.run([uploadId, part.number]);
      // The upload counted until now; from here the object does.
      index.totals.add(-heldBy(described, uploaded), 0);
      const dropped = yield* index.replace(row, null);
      yield* this.#link.run([row.version, uploadId]);
      yield* this.#remember(uploadId, 'completed');
      return [...dropped, ...blobsOf(left)];
    };
    await this.#store.change(() => complete.call(this));
    return row as unknown as ObjectRow;
  }

  /** An upload that has ended is left as it is. */
  async abort(request: AbortRequest): Promise<void> {
    const key = checkedKey(request.object);
    const abort = function* (this: Uploads): Work<string[]> {
      const state = (yield* this.#get.get([request.uploadId, key]))?.[0] as State | undefined;
      if (state === undefined) throw r2Errors.noSuchUpload();
      return state === 'open' ? yield* this.#end(request.uploadId, key) : [];
    };
    await this.#store.change(() => abort.call(this));
  }

  /** Ends uploads of more than seven days; answers how many. */
  async sweep(): Promise<number> {
    const before = this.#store.clock.now() - UPLOAD_LIFE_MS;
    const some = await this.#store.database.read(() => this.#old.get([1, before]));
    if (some === undefined) return 0;
    let count = 0;
    const sweep = function* (this: Uploads): Work<string[]> {
      const old = (yield* this.#old.all([SWEEP, before])) as [string, State, Buffer][];
      count = old.length;
      const dropped: string[] = [];
      for (const [id, state, key] of old) if (state === 'open') dropped.push(...(yield* this.#end(id, key)));
      for (const [id] of old) yield* this.#forget.run([id]);
      return dropped;
    };
    await this.#store.change(() => sweep.call(this));
    return count;
  }

  *#end(id: string, key: Buffer): Work<string[]> {
    const described = yield* this.#requireOpen(id, key);
    const parts = yield* this.#partsOf(id);
    yield* this.#deleteParts.run([id]);
    this.#store.totals.add(-heldBy(described, parts), 0);
    yield* this.#remember(id, 'aborted');
    return blobsOf(parts);
  }

  /** Where this is rolled back the upload is open again: then it is not forgotten. */
  *#remember(id: string, state: Exclude<State, 'open'>): Work<void> {
    this.#ended ??= yield* this.#endedBefore();
    yield* this.#settle.run([state, id]);
    this.#ended.push(id);
    const oldest = this.#ended.length > MAX_ENDED_UPLOADS ? this.#ended.shift() : undefined;
    if (oldest !== undefined) yield* this.#forget.run([oldest]);
  }

  *#endedBefore(): Work<string[]> {
    const newest = (yield* this.#newest.all([MAX_ENDED_UPLOADS])) as [string, State][];
    return newest.flatMap(([id, state]) => (state === 'open' ? [] : id)).reverse();
  }

  *#requireOpen(id: string, key: Buffer): Work<Described> {
    const row = (yield* this.#get.get([id, key])) as [State, string | null, string | null, string] | undefined;
    if (row?.[0] !== 'open') throw r2Errors.noSuchUpload();
    const [, http, custom, storageClass] = row;
    return { key, http, custom, storageClass };
  }

  *#partsOf(id: string): Work<Part[]> {
    return ((yield* this.#parts.all([id])) as [number, string, number, string][]).map(toPart);
  }

  *#partOf(id: string, number: number): Work<Part | undefined> {
    const row = (yield* this.#part.get([id, number])) as [number, string, number, string] | undefined;
    return row && toPart(row);
  }
}

/** The uploaded parts that a completion names, in the order of their numbers. Throws where R2 would. */
export function selectParts(named: { part: number; etag: string }[], uploaded: Part[]): Part[] {
  if (new Set(named.map(({ part }) => part)).size !== named.length) throw r2Errors.badPart();
  const byNumber = new Map(uploaded.map((part) => [part.number, part]));
  const parts = named.map(({ part, etag }) => {
    const found = byNumber.get(part);
    if (!found || found.md5 !== etag) throw r2Errors.badPart();
    return found;
  });
  // First in the order in which they were named, then in that of their numbers: two errors, as in R2.
  if (parts.slice(0, -1).some((part) => part.size < MIN_PART_BYTES)) throw r2Errors.partTooSmall();
  parts.sort((a, b) => a.number - b.number);
  const size = parts[0]?.size ?? 0;
  const last = parts.at(-1);
  if (parts.slice(0, -1).some((part) => part.size < MIN_PART_BYTES || part.size !== size)) throw r2Errors.badUpload();
  if (last && last.size > size) throw r2Errors.badUpload();
  return parts;
}

/** The MD5 of the parts' MD5s and their number, as every S3 has it. */
export function completedEtag(parts: { md5: string }[]): string {
  const hash = createHash('md5');
  for (const { md5 } of parts) hash.update(md5, 'hex');
  return `${hash.digest('hex')}-${parts.length}`;
}

function toPart([number, blob, size, md5]: [number, string, number, string]): Part {
  return { number, blob, size, md5 };
}

/** Bytes that an open upload counts. */
function heldBy(described: Described, parts: Part[]): number {
  return chargeOf(described, sizeOf(parts)) + ROW_BYTES * (1 + parts.length);
}

function sizeOf(parts: Part[]): number {
  return parts.reduce((sum, part) => sum + part.size, 0);
}

/** An empty part has no blob. */
function blobsOf(parts: Part[]): string[] {
  return parts.flatMap(({ blob }) => (blob ? [blob] : []));
}
