/** What one tenant, or one silent service, must not do to all others. */
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { S3Bucket } from '../../host/bindings/store-process/blobs/s3.ts';
import { SqlRig, sqlProgram } from './d1-rig.ts';
import { callR2, callSocket, StorageRig, TENANT } from './storage-rig.ts';

const program = await sqlProgram();
afterAll(() => program.remove());

test('a handler cannot hold or release checkpoints', async () => {
  const rig = await SqlRig.start(
    program,
    {},
    `export default { async fetch(request, env) {
    const r = await env.DB.withSession()._wrappedFetch('http://d1/backup/begin', { method: 'POST' });
    return new Response(r.status);
  } }`,
  );
  try {
    expect(await (await fetch(rig.origin)).text()).toBe('404');
    expect((await callSocket(rig.socket, '/backup/begin', { method: 'POST' })).status).toBe(200);
  } finally {
    await rig.stop();
  }
});

test('uploads without parts count against the quota, and end with nothing', async () => {
  const rig = new StorageRig({ quotas: { objectBytes: 100_000 } });
  await rig.startStorage();
  const call = (request: Record<string, unknown>, value?: Buffer) =>
    callR2(join(rig.sockets, 'r2.sock'), request, value);
  const usage = async () => (await rig.usage(TENANT)).objectBytes;
  try {
    const create = (n: number, http = 5_000) =>
      call({ method: 'createMultipartUpload', object: `k${n}`, httpFields: { contentType: 'x'.repeat(http) } });
    const first = await create(0);
    let n = 1;
    while ((await create(n)).status === 200 && n < 100) n++;
    expect(n).toBe(18);
    expect((await create(n)).error?.v4code).toBe(10507);
    const before = await usage();
    await call({ method: 'abortMultipartUpload', object: 'k0', uploadId: first.json.uploadId });
    expect(before - (await usage())).toBe(5_020 + 256);
    expect((await create(0, 70_000)).error?.v4code).toBe(10012);
  } finally {
    await rig.stop();
  }
});

test('twelve bulk gets of 25 MB at once fit into a heap of 1 GB', async () => {
  process.env.NODE_OPTIONS = '--max-old-space-size=1024';
  const rig = new StorageRig();
  await rig.startStorage();
  delete process.env.NODE_OPTIONS;
  try {
    const kv = join(rig.sockets, 'kv.sock');
    for (let i = 0; i < 25; i++)
      await callSocket(kv, `/k${i}?urlencoded=true`, { method: 'PUT', body: Buffer.alloc(1_000_000, 1) });
    const body = Buffer.from(JSON.stringify({ keys: Array.from({ length: 25 }, (_, i) => `k${i}`) }));
    const calls = Promise.all(
      Array.from({ length: 12 }, () =>
        callSocket(kv, '/bulk/get', { method: 'POST', body }).then(
          (a) => a.status,
          (e) => e.message,
        ),
      ),
    );
    expect(await calls).toEqual(Array(12).fill(200));
  } finally {
    await rig.stop();
  }
});

test('an S3 service that falls silent within an object', async () => {
  const server = createServer((_, response) => {
    response.writeHead(206, { 'content-length': 1000 });
    response.write('x'.repeat(10));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const bucket = new S3Bucket(
    { endpoint, region: 'us-east-1', bucket: 'bucket', prefix: '', accessKey: 'a', secretKey: 'b' },
    300,
  );
  const blobs = bucket.blobs('t');
  try {
    const read = async () => {
      for await (const _ of await blobs.read('name', 0, 1000));
    };
    const outcome = await Promise.race([
      read().then(
        () => 'ended',
        (e) => `failed: ${e.message}`,
      ),
      new Promise((r) => setTimeout(() => r('hangs'), 60_000)),
    ]);
    expect(outcome).toMatch(/^failed/);
  } finally {
    blobs.close();
    server.closeAllConnections();
    server.close();
  }
});

test('a tenant that does not read what it gets from S3 keeps nobody else from it', async () => {
  let asked = 0;
  const server = createServer((request, response) => {
    if (request.method !== 'GET') return void response.writeHead(204).end();
    asked++;
    response.writeHead(206, { 'content-length': 8_000_000 }).end(Buffer.alloc(8_000_000));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const settings = { endpoint, region: 'r', bucket: 'bucket', prefix: '', accessKey: 'a', secretKey: 'b' };
  const bucket = new S3Bucket(settings);
  const [greedy, other] = [bucket.blobs('greedy'), bucket.blobs('other')];
  const reads = Array.from({ length: 256 }, async (_, at) => {
    const stream = await greedy.read(`blob${at}`, 0, 8_000_000);
    if ('on' in stream) stream.on('error', () => {});
  });
  // Those that get no connection fail when it is closed.
  for (const read of reads) read.catch(() => {});
  try {
    await expect.poll(() => asked).toBeGreaterThan(50);
    await other.remove('blob');
    expect(asked).toBeLessThan(128);
  } finally {
    greedy.close();
    other.close();
    server.closeAllConnections();
    server.close();
  }
});

test.each([5, 20, 40])('a tenant that is purged %i ms into a backup fails neither', async (wait) => {
  const rig = new StorageRig();
  await rig.startStorage();
  try {
    const kv = join(rig.sockets, 'kv.sock');
    for (let i = 0; i < 400; i++)
      await callSocket(kv, `/k${i}?urlencoded=true`, { method: 'PUT', body: Buffer.alloc(70_000, 1) });
    await rig.channel.call('close', { tenant: TENANT });
    const backup = rig.channel.call('backup', { folder: join(rig.folder, 'copy') });
    await new Promise((resolve) => setTimeout(resolve, wait));
    await Promise.all([backup, rig.channel.call('purge', { tenant: TENANT })]);
    expect(existsSync(join(rig.root, TENANT))).toBe(false);
  } finally {
    await rig.stop();
  }
});
