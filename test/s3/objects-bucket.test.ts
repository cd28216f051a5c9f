/** The bucket of objects with its large bodies on a real S3, and its small ones in a real PostgreSQL. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { INLINE_BYTES } from '../../host/bindings/objects-bucket/limits.ts';
import { BucketRecords } from '../../host/bindings/objects-bucket/records.ts';
import type { BlobBackend } from '../../host/bindings/store-process/blobs/backend.ts';
import { S3Bucket } from '../../host/bindings/store-process/blobs/s3.ts';
import { type PgTestPool, pgPool } from '../bindings/objects-bucket/support/pg-pool.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { Door } from './door.ts';
import { s3Settings } from './radosgw.ts';

describe.skipIf(!postgresPrograms())('the bucket of objects on S3', () => {
  let door: Door;
  let postgres: PostgresServer;
  let pool: PgTestPool;
  let blobs: BlobBackend;
  let records: BucketRecords;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    door = await Door.open(s3Settings('objects').endpoint);
    pool = pgPool(postgres.create('bucket'));
    const bucket = new S3Bucket({ ...s3Settings('objects'), endpoint: door.endpoint });
    await bucket.prepare();
    blobs = bucket.blobs('objects/t1');
    records = await BucketRecords.open(pool, (tenant) => bucket.blobs(`objects/${tenant}`));
  });
  afterAll(async () => {
    blobs?.close();
    records?.close();
    await pool?.end();
    await postgres?.stop();
    door?.close();
  });

  const put = (key: string, body: Buffer) =>
    records.put('t1', key, { kind: 'any' }, { length: body.length, stream: [body] });
  const names = async () => {
    const found: string[] = [];
    for await (const name of blobs.names()) found.push(name);
    return found;
  };

  test('a snapshot is kept, read, replaced and collected', async () => {
    const large = Buffer.alloc(20_000_000, 'snapshot');
    await put('snapshot', large);
    const { body } = (await records.get('t1', 'snapshot')) ?? {};
    const parts: Buffer[] = [];
    for await (const part of body as AsyncIterable<Buffer>) parts.push(part);
    expect(Buffer.concat(parts).equals(large)).toBe(true);
    await put('snapshot', Buffer.alloc(INLINE_BYTES + 1));
    expect(await names()).toHaveLength(2);
    await pool.query({ text: "UPDATE bucket_garbage SET after = now() - interval '1 second'" });
    expect(await records.collect()).toBe(1);
    expect(await names()).toHaveLength(1);
  });

  test('without the S3 large bodies are refused, and small ones are taken', async () => {
    door.close();
    await expect(put('large', Buffer.alloc(INLINE_BYTES + 1))).rejects.toThrow();
    expect(await records.get('t1', 'large')).toBeUndefined();
    await put('small', Buffer.from('small'));
    expect((await records.get('t1', 'small'))?.body.toString()).toBe('small');
  });
});
