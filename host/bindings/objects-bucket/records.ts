/**
 * What the bucket of objects holds: a row of PostgreSQL for each object, with its bytes where they are few, or the name of
 * a blob on the S3. Conditions are part of the statement that writes, so the database decides between two writers; a blob
 * is never changed, and goes when no row names it.
 */
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import type { BlobBackend } from '../store-process/blobs/backend.ts';
import { sealedName } from '../store-process/blobs/seals.ts';
import { INLINE_BYTES, ROW_BYTES } from './limits.ts';
import type { Condition } from './request.ts';

/** A pool of connections, such as of the package `pg`. */
export interface Sql {
  query(query: { name?: string; text: string; values?: unknown[] }): Promise<{ rows: Record<string, unknown>[] }>;
}

export interface BucketRecord {
  etag: string;
  at: Date;
  bytes: number;
  body: Buffer | Readable;
}

export interface Listed {
  key: string;
  etag: string;
  at: Date;
  bytes: number;
}

export type PutResult = { etag: string } | 'exists' | 'changed' | 'missing';

/** Bytes on their way in. */
export interface Incoming {
  length: number;
  stream: AsyncIterable<Buffer> | Iterable<Buffer>;
}

/** A blob that is being written is nobody's for so long; one that was replaced may still be read for so long. */
const UPLOAD = "interval '1 hour'";
const GRACE = "interval '2 minutes'";

/** Any number, the same on all nodes. */
const SCHEMA_LOCK = 0x7475626b;
const SCHEMA = `
SELECT pg_advisory_xact_lock(${SCHEMA_LOCK});
CREATE TABLE IF NOT EXISTS bucket_objects (
  tenant text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  etag text NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  bytes bigint NOT NULL,
  body bytea,
  blob text,
  CHECK ((body IS NULL) <> (blob IS NULL)),
  PRIMARY KEY (tenant, key)
);
CREATE TABLE IF NOT EXISTS bucket_garbage (
  blob text PRIMARY KEY,
  tenant text NOT NULL,
  after timestamptz NOT NULL,
  doomed boolean NOT NULL DEFAULT false
);
CREATE OR REPLACE FUNCTION bucket_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.blob IS NOT NULL THEN
    INSERT INTO bucket_garbage (blob, tenant, after) VALUES (OLD.blob, OLD.tenant, now() + ${GRACE});
  END IF;
  IF TG_OP <> 'DELETE' AND NEW.blob IS NOT NULL THEN
    DELETE FROM bucket_garbage WHERE blob = NEW.blob AND NOT doomed;
    IF NOT FOUND THEN RAISE EXCEPTION 'the blob was collected'; END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER bucket_blobs AFTER INSERT OR UPDATE OR DELETE ON bucket_objects
  FOR EACH ROW EXECUTE FUNCTION bucket_blobs();`;

const VALUES = '(tenant, key, etag, bytes, body, blob) VALUES ($1, $2, $3, $4, $5, $6)';
const CHANGES = 'etag = $3, bytes = $4, body = $5, blob = $6, at = now()';
const PUT: Record<Condition['kind'], string> = {
  any: `INSERT INTO bucket_objects ${VALUES} ON CONFLICT (tenant, key) DO UPDATE SET ${CHANGES} RETURNING 1`,
  absent: `INSERT INTO bucket_objects ${VALUES} ON CONFLICT DO NOTHING RETURNING 1`,
  etag: `UPDATE bucket_objects SET ${CHANGES} WHERE tenant = $1 AND key = $2 AND etag = $7 RETURNING 1`,
};

export class BucketRecords {
  readonly #sql: Sql;
  readonly #blobsOf: (tenant: string) => BlobBackend;
  readonly #blobs = new Map<string, BlobBackend>();

  private constructor(sql: Sql, blobsOf: (tenant: string) => BlobBackend) {
    this.#sql = sql;
    this.#blobsOf = blobsOf;
  }

  /** @throws Error where the database would answer before a write is on its disk */
  static async open(sql: Sql, blobsOf: (tenant: string) => BlobBackend): Promise<BucketRecords> {
    await sql.query({ text: SCHEMA });
    const { rows } = await sql.query({ text: 'SHOW synchronous_commit' });
    const [{ synchronous_commit: commit } = {}] = rows;
    if (commit === 'off') throw new Error('synchronous_commit is off in PostgreSQL: writes of objects could be lost');
    return new BucketRecords(sql, blobsOf);
  }

  async get(tenant: string, key: string): Promise<BucketRecord | undefined> {
    // A blob that was replaced stays for a while, so what is read here can be read there.
    const row = await this.#one(
      'get',
      'SELECT etag, at, bytes, body, blob FROM bucket_objects WHERE tenant = $1 AND key = $2',
      [tenant, key],
    );
    if (!row) return undefined;
    const found = { etag: String(row.etag), at: row.at as Date, bytes: Number(row.bytes) };
    if (row.blob === null) return { ...found, body: row.body as Buffer };
    return { ...found, body: await this.#blobsOfTenant(tenant).read(String(row.blob), 0, found.bytes) };
  }

  /** Resolves once it survives power loss. On an error it may have taken place all the same. */
  async put(tenant: string, key: string, condition: Condition, body: Incoming): Promise<PutResult> {
    const etag = randomBytes(12).toString('hex');
    const small = body.length <= INLINE_BYTES ? await whole(body) : undefined;
    const blob = small ? null : await this.#upload(tenant, body);
    const values = [tenant, key, etag, body.length, small ?? null, blob];
    const { kind } = condition;
    const written = await this.#one(`put ${kind}`, PUT[kind], kind === 'etag' ? [...values, condition.etag] : values);
    if (written) return { etag };
    if (kind === 'absent') return 'exists';
    const left = await this.#one('there', 'SELECT 1 AS one FROM bucket_objects WHERE tenant = $1 AND key = $2', [
      tenant,
      key,
    ]);
    return left ? 'changed' : 'missing';
  }

  async remove(tenant: string, key: string): Promise<void> {
    await this.#one('remove', 'DELETE FROM bucket_objects WHERE tenant = $1 AND key = $2', [tenant, key]);
  }

  /** In the order of their bytes. @param after a key, or a common prefix of the page before */
  async list(tenant: string, prefix: string, after: string, most: number): Promise<Listed[]> {
    const { rows } = await this.#sql.query({
      name: 'bucket list',
      text: 'SELECT key, etag, at, bytes FROM bucket_objects WHERE tenant = $1 AND key > $2 AND starts_with(key, $3) AND key >= $3 AND key < $4 ORDER BY key LIMIT $5',
      values: [tenant, after, prefix, `${prefix}\u{10ffff}`, most],
    });
    return rows.map(({ key, etag, at, bytes }) => ({
      key: String(key),
      etag: String(etag),
      at: at as Date,
      bytes: Number(bytes),
    }));
  }

  /**
   * The first of the alarms that workerd (1.20261117.1) has noted, real time, ms: `v1/alarms/<instance>/<time>/…`. The
   * time is hexadecimal behind a letter for the number of its digits, so its order is that of the names. One that has
   * rung stays until an instance starts.
   */
  async nextAlarm(tenant: string): Promise<number | undefined> {
    const row = await this.#one(
      'alarm',
      "SELECT min(split_part(key, '/', 4)) AS at FROM bucket_objects WHERE tenant = $1 AND key >= 'v1/alarms/' AND key < 'v1/alarms0'",
      [tenant],
    );
    const at = Number.parseInt(String(row?.at ?? '').slice(1), 16);
    return Number.isNaN(at) ? undefined : at;
  }

  /** Rejects where the database does not answer. */
  async ping(): Promise<void> {
    await this.#sql.query({ text: 'SELECT 1' });
  }

  /** With what the rows themselves take. */
  async bytesOf(tenant: string): Promise<number> {
    const row = await this.#one(
      'bytes',
      `SELECT coalesce(sum(bytes + ${ROW_BYTES}), 0) AS bytes FROM bucket_objects WHERE tenant = $1`,
      [tenant],
    );
    return Number(row?.bytes);
  }

  /** Removes all that a tenant has. */
  async purge(tenant: string): Promise<void> {
    await this.#one('purge', 'DELETE FROM bucket_objects WHERE tenant = $1', [tenant]);
  }

  /** Removes blobs that no row names any more, and those of uploads that ended halfway. Nodes may do so at once. */
  async collect(): Promise<number> {
    const { rows } = await this.#sql.query({
      text: 'UPDATE bucket_garbage SET doomed = true WHERE after < now() RETURNING blob, tenant',
    });
    for (const { blob, tenant } of rows) {
      await this.#blobsOfTenant(String(tenant)).remove(String(blob));
      await this.#one('collected', 'DELETE FROM bucket_garbage WHERE blob = $1', [blob]);
    }
    return rows.length;
  }

  close(): void {
    for (const blobs of this.#blobs.values()) blobs.close();
    this.#blobs.clear();
  }

  /** The name of a blob that is there, and is collected unless a row names it within the hour. */
  async #upload(tenant: string, { length, stream }: Incoming): Promise<string> {
    const blob = sealedName(randomBytes(16).toString('hex'), length);
    await this.#one('reserve', `INSERT INTO bucket_garbage (blob, tenant, after) VALUES ($1, $2, now() + ${UPLOAD})`, [
      blob,
      tenant,
    ]);
    await this.#blobsOfTenant(tenant).write(blob, { length, stream: Readable.from(stream) });
    return blob;
  }

  #blobsOfTenant(tenant: string): BlobBackend {
    const blobs = this.#blobs.get(tenant) ?? this.#blobsOf(tenant);
    this.#blobs.set(tenant, blobs);
    return blobs;
  }

  async #one(name: string, text: string, values: unknown[]): Promise<Record<string, unknown> | undefined> {
    const { rows } = await this.#sql.query({ name: `bucket ${name}`, text, values });
    return rows[0];
  }
}

async function whole({ length, stream }: Incoming): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part);
  const all = Buffer.concat(parts);
  if (all.length !== length) throw new Error('a body ended before its announced length');
  return all;
}
