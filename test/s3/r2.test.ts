/** The R2 suite on a real S3: the same expectations as on disk, and what concerns the bucket alone. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from 'minio';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { r2Suite } from '../e2e/r2-suite.ts';
import { streamsInFlatMemory } from '../e2e/storage-memory.ts';
import { callR2, StorageRig, TENANT } from '../e2e/storage-rig.ts';
import { s3Objects } from './radosgw.ts';

describe('R2 on S3', () => r2Suite(async () => ({ objects: s3Objects('suite') })));

describe('the bucket', () => {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start({ objects: s3Objects('own') });
  });
  afterAll(() => rig?.stop());

  const call = (request: Record<string, unknown>, value?: Buffer) =>
    callR2(join(rig.sockets, 'r2.sock'), request, value);

  async function names(prefix: string): Promise<string[]> {
    const { endpoint, accessKey, secretKey, region, bucket } = s3Objects('own');
    const url = new URL(endpoint);
    const client = new Client({
      endPoint: url.hostname,
      port: Number(url.port),
      useSSL: false,
      accessKey,
      secretKey,
      region,
    });
    const found: string[] = [];
    for await (const item of client.listObjectsV2(bucket, prefix, true)) found.push((item as { name: string }).name);
    return found;
  }

  streamsInFlatMemory(() => rig);

  test('bytes lie below the prefix of their tenant, and nowhere on this disk', async () => {
    await call({ method: 'delete', object: 'half-a-gigabyte' });
    await call({ method: 'put', object: 'a' }, Buffer.alloc(3_000_000, 1));
    await expect.poll(async () => (await names(`turnpike/${TENANT}/`)).length).toBe(1);
    expect(await names('')).toEqual(await names(`turnpike/${TENANT}/`));
    expect(readdirSync(join(rig.root, TENANT, 'r2')).filter((name) => !name.startsWith('r2.db'))).toEqual([]);
  });

  test('bytes of replaced, deleted and refused objects go', async () => {
    await call({ method: 'put', object: 'a' }, Buffer.alloc(2_000_000, 2));
    await call({ method: 'put', object: 'b', sha256: '0'.repeat(64) }, Buffer.alloc(2_000_000, 2));
    await expect.poll(async () => (await names('turnpike/')).length).toBe(1);
    await call({ method: 'delete', object: 'a' });
    await expect.poll(async () => (await names('turnpike/')).length).toBe(0);
  });

  test('what a kill left unnamed is collected at the next opening', async () => {
    await call({ method: 'put', object: 'kept' }, Buffer.alloc(100_000, 3));
    const uploads = Array.from({ length: 8 }, (_, i) =>
      call({ method: 'put', object: `cut${i}` }, Buffer.alloc(30_000_000, 4)).catch(() => undefined),
    );
    await expect
      .poll(async () => (await names('turnpike/')).length, { timeout: 20_000, interval: 20 })
      .toBeGreaterThan(2);
    await rig.killStorage();
    await Promise.all(uploads);
    await rig.startStorage();
    const { json } = await call({ method: 'list' });
    const named = json.objects.length;
    await expect.poll(async () => (await names('turnpike/')).length).toBe(named);
    for (const { name, size } of json.objects) {
      const got = await call({ method: 'get', object: name });
      expect(got.value.length).toBe(size);
    }
  });

  test('a purge empties the tenant and leaves others alone', async () => {
    await call({ method: 'put', object: 'x' }, Buffer.alloc(10));
    const other = 't00000000000000000005';
    await rig.open(other, rig.folder);
    await callR2(join(rig.folder, 'r2.sock'), { method: 'put', object: 'y' }, Buffer.alloc(10));
    await rig.channel.call('purge', { tenant: TENANT });
    expect((await names('turnpike/')).map((name) => name.split('/')[1])).toEqual([other]);
  });
});
