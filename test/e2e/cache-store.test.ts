/** What the Cache API keeps, at its socket: its quota, kills within a put, and what a hostile handler can ask for. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { callSocket, peakMemory, type SocketAnswer, StorageRig, TENANT } from './storage-rig.ts';

const QUOTA = 4_000_000;

let rig: StorageRig;
let agent: Agent;
beforeAll(async () => {
  rig = new StorageRig({ quotas: { cacheBytes: QUOTA } });
  await rig.startStorage();
});
afterAll(() => rig.stop());
beforeEach(() => {
  agent = new Agent({ keepAlive: true });
});
afterEach(async () => {
  agent.destroy();
  await rig.channel.call('purge', { tenant: TENANT });
  await rig.open(TENANT, rig.sockets);
});

const socket = () => join(rig.sockets, 'cache.sock');
const url = (key: string) => `http://cached.example/${key}`;
const answer = (body: Buffer | string, fields = 'Cache-Control: max-age=60\r\n', start = 'HTTP/1.1 200 OK') =>
  Buffer.concat([Buffer.from(`${start}\r\n${fields}\r\n`), Buffer.from(body)]);

function call(method: string, key: string, body?: Buffer, headers: Record<string, string> = {}): Promise<SocketAnswer> {
  return callSocket(socket(), url(key), { method, agent, headers, ...(body ? { body } : {}) });
}
const put = async (key: string, body: Buffer | string) => (await call('PUT', key, answer(body))).status;
async function match(key: string): Promise<Buffer | 'miss'> {
  const { headers, body } = await call('GET', key);
  return headers['cf-cache-status'] === 'HIT' ? body : 'miss';
}
const bodies = (of = rig.root) => readdirSync(join(of, TENANT, 'cache', 'bodies'));

/** Every content tells which it is. */
function content(key: string, version: number, size: number): Buffer {
  return Buffer.alloc(size, createHash('sha256').update(`${key}/${version}`).digest('hex'));
}

test('what was used longest ago leaves first, also after a restart', async () => {
  const size = 900_000;
  for (const key of ['a', 'b', 'c', 'd']) expect(await put(key, content(key, 1, size))).toBe(204);
  expect(await match('a')).toEqual(content('a', 1, size));
  expect(await put('e', content('e', 1, size))).toBe(204);
  expect(await match('b')).toBe('miss');
  expect(await match('a')).toEqual(content('a', 1, size));
  await rig.killStorage();
  await rig.startStorage();
  expect(await put('f', content('f', 1, size))).toBe(204);
  const left = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(match));
  expect(left.map((body) => body === 'miss')).toEqual([false, true, true, false, false, false]);
  await expect.poll(() => bodies().length).toBe(4);
  // Many small ones leave for a large one.
  for (let i = 0; i < 10; i++) await Promise.all(Array.from({ length: 128 }, (_, n) => put(`s${i}.${n}`, 'small')));
  expect(await put('large', content('large', 1, 3_900_000))).toBe(204);
  expect(await match('large')).toEqual(content('large', 1, 3_900_000));
  expect((await rig.usage(TENANT)).cacheBytes).toBeLessThan(QUOTA);
});

test('puts without end take bounded space, in bytes and in files', async () => {
  let n = 0;
  const writers = Array.from({ length: 32 }, async (_, writer) => {
    while (n < 4_000) {
      const key = `k${n++}`;
      // One of the writers makes files.
      expect(await put(key, content(key, 1, writer === 0 ? 100_000 : 100))).toBe(204);
    }
  });
  await Promise.all(writers);
  const folder = join(rig.root, TENANT, 'cache');
  await expect.poll(() => bodies().length).toBeLessThanOrEqual(QUOTA / 100_000);
  // The index with its pages, and its log, which is emptied at 4 MB.
  expect(statSync(join(folder, 'cache.db')).size).toBeLessThan(2 * QUOTA);
  expect(statSync(join(folder, 'cache.db-wal')).size).toBeLessThan(4 * QUOTA);
  expect((await rig.usage(TENANT)).cacheBytes).toBeLessThan(QUOTA);
  expect(await match(`k${n - 1}`)).not.toBe('miss');
});

test('a reader that does not read keeps its body, and no more room than the quota', async () => {
  const size = 3_000_000;
  expect(await put('slow', content('slow', 1, size))).toBe(204);
  const reading = await new Promise<IncomingMessage>((resolve) =>
    request({ socketPath: socket(), path: url('slow') }, resolve).end(),
  );
  expect(await put('next', content('next', 1, size))).toBe(204);
  expect(await match('slow')).toBe('miss');
  expect(bodies()).toHaveLength(2);
  // Its 3 MB are on the disk still.
  expect(await put('more', content('more', 1, size))).toBe(413);
  expect(await put('small', 'x')).toBe(204);
  const hash = createHash('sha256');
  for await (const piece of reading) hash.update(piece);
  expect(hash.digest('hex')).toBe(
    createHash('sha256')
      .update(content('slow', 1, size))
      .digest('hex'),
  );
  await expect.poll(() => put('more', content('more', 1, size))).toBe(204);
  await expect.poll(() => bodies().length).toBe(1);
});

test('a put that a kill or its sender ends is not there, and leaves nothing behind', async () => {
  expect(await put('k', content('k', 1, 200_000))).toBe(204);
  const half = () => {
    const sent = request({
      socketPath: socket(),
      path: url('k'),
      method: 'PUT',
      headers: { 'transfer-encoding': 'chunked' },
    });
    sent.on('error', () => {});
    sent.write(answer(content('k', 2, 1_000_000)));
    return sent;
  };
  const cut = half();
  await expect.poll(() => bodies().length).toBe(2);
  cut.destroy();
  await expect.poll(() => bodies().length).toBe(1);
  expect(await match('k')).toEqual(content('k', 1, 200_000));
  half();
  await expect.poll(() => bodies().length).toBe(2);
  await rig.killStorage();
  await rig.startStorage();
  expect(await match('k')).toEqual(content('k', 1, 200_000));
  await expect.poll(() => bodies().length).toBe(1);
});

test('one key that is put, matched and deleted at once, under kills: each match is whole', async () => {
  const keys = ['a', 'b', 'c'];
  const sizeOf = (version: number) => [50, 5_000, 70_000, 300_000][version % 4] ?? 0;
  const check = async (key: string) => {
    const body = await match(key);
    if (body === 'miss') return false;
    const version = [...Array(200).keys()].find((one) => body.equals(content(key, one, sizeOf(one))));
    if (version === undefined) throw new Error(`an entry of ${body.length} bytes is torn`);
    return true;
  };
  let hits = 0;
  for (let kill = 0; kill < 2; kill++) {
    let stop = false;
    const forever = (work: (key: string, version: number) => Promise<unknown>) =>
      keys.map(async (key) => {
        for (let version = kill * 50; !stop; version++)
          await work(key, version % 200).catch((error) => {
            if (!stop) throw error;
          });
      });
    const all = [
      ...forever((key, version) => put(key, content(key, version, sizeOf(version)))),
      ...forever((key, version) => put(key, content(key, version + 1, sizeOf(version + 1)))),
      ...forever((key) => call('PURGE', key)),
      ...forever(async (key) => {
        if (await check(key)) hits++;
      }),
    ];
    const before = hits;
    await expect.poll(() => hits - before).toBeGreaterThan(50);
    stop = true;
    await rig.killStorage();
    await Promise.all(all);
    await rig.startStorage();
    for (const key of keys) await check(key);
  }
  for (const key of keys) await call('PURGE', key);
  await expect.poll(() => bodies().length).toBe(0);
});

test('an entry ends with its time, and is swept with its file', async () => {
  await put('fades', content('fades', 1, 200_000));
  expect(await match('fades')).not.toBe('miss');
  await rig.channel.call('setClock', { offsetMs: 61_000 });
  expect(await match('fades')).toBe('miss');
  expect((await call('PURGE', 'fades')).status).toBe(404);
  await expect.poll(() => bodies()).toEqual([]);
  expect((await rig.usage(TENANT)).cacheBytes).toBe(0);
  await rig.channel.call('setClock', { offsetMs: 0 });
});

test.each<[string, Buffer, number]>([
  ['fields of 10 KB', answer('x', `Cache-Control: max-age=60\r\nX-A: ${'x'.repeat(10_000)}\r\n`), 204],
  ['fields of 40 KB', answer('x', `Cache-Control: max-age=60\r\nX-A: ${'x'.repeat(40_000)}\r\n`), 413],
  ['fields of 40 KB before a large body', answer(Buffer.alloc(500_000), `X-A: ${'x'.repeat(40_000)}\r\n`), 413],
  ['a thousand fields', answer('x', `Cache-Control: max-age=60\r\n${'X-A: x\r\n'.repeat(1_000)}`), 413],
  ['no end of the head', Buffer.alloc(1_000_000, 'x'), 413],
  ['no head', Buffer.alloc(0), 413],
  ['a field that is none', answer('x', 'Cache-Control: max-age=60\r\nX A: x\r\n'), 413],
  ['a line end in a field', answer('x', 'Cache-Control: max-age=60\r\nX-A: x\rX-B: y\r\n'), 413],
  ['another status line', answer('x', 'Cache-Control: max-age=60\r\n', 'HTTP/1.1 20 OK'), 413],
  ['an interim status', answer('x', 'Cache-Control: max-age=60\r\n', 'HTTP/1.1 101 Switching Protocols'), 413],
  ['more than the quota', answer(Buffer.alloc(QUOTA)), 413],
])('a put with %s', async (_name, body, status) => {
  expect((await call('PUT', 'k', body)).status).toBe(status);
  const found = await call('GET', 'k');
  expect([found.status, found.headers['cf-cache-status']]).toEqual(status === 204 ? [200, 'HIT'] : [504, 'MISS']);
  // The connection is good for the next call.
  expect(await put('k2', 'x')).toBe(204);
});

test('framing, age and status of the cache are not what the answer says', async () => {
  const fields =
    'Content-Length: 7\r\nTransfer-Encoding: chunked\r\nConnection: close\r\nAge: 5\r\nCF-Cache-Status: MISS\r\nCache-Control: max-age=60\r\nX-A: 1\r\n';
  expect((await call('PUT', 'k', answer('whole body', fields))).status).toBe(204);
  const { headers, body } = await call('GET', 'k');
  expect(body.toString()).toBe('whole body');
  expect(headers).toEqual({
    'cache-control': 'max-age=60',
    'x-a': '1',
    age: '5',
    'cf-cache-status': 'HIT',
    'content-length': '10',
  });
});

test('a body of any length passes in flat memory', async () => {
  await rig.open(TENANT, rig.sockets, { ...rig.quotas, cacheBytes: 300_000_000 });
  const piece = Buffer.alloc(1_000_000, 'p');
  await put('warm', piece);
  writeFileSync(`/proc/${rig.storage.pid}/clear_refs`, '5');
  const before = peakMemory(rig.storage.pid);
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const sent = request(
      { socketPath: socket(), path: url('huge'), method: 'PUT', headers: { 'transfer-encoding': 'chunked' } },
      (response) => resolve(response.statusCode),
    );
    sent.on('error', reject);
    sent.write(answer(''));
    let left = 150;
    const more = () => {
      while (left-- > 0) if (!sent.write(piece)) return;
      sent.end();
    };
    sent.on('drain', more);
    more();
  });
  expect(status).toBe(204);
  const reading = await new Promise<IncomingMessage>((resolve) =>
    request({ socketPath: socket(), path: url('huge') }, resolve).end(),
  );
  let bytes = 0;
  for await (const chunk of reading) bytes += chunk.length;
  expect(bytes).toBe(150_000_000);
  expect(peakMemory(rig.storage.pid) - before).toBeLessThan(100_000_000);
});

test('a disk that refuses makes misses, and deletes that fail', async () => {
  const folder = join(rig.root, TENANT, 'cache');
  mkdirSync(join(rig.root, TENANT), { recursive: true });
  writeFileSync(folder, 'no folder can be here');
  expect(await put('k', 'x')).toBe(413);
  expect(await match('k')).toBe('miss');
  expect((await call('PURGE', 'k')).status).toBe(500);
  rmSync(folder);
  expect(await put('k', 'x')).toBe(204);
});

test('each tenant has its own, which is in no backup, and goes with the tenant', async () => {
  const other = 't00000000000000000002';
  const folder = join(rig.folder, 'o');
  mkdirSync(folder);
  await rig.open(other, folder);
  await put('k', content('k', 1, 200_000));
  await callSocket(join(rig.sockets, 'kv.sock'), '/k', { method: 'PUT', body: Buffer.from('v') });
  const its = await callSocket(join(folder, 'cache.sock'), url('k'));
  expect([its.status, its.headers['cf-cache-status']]).toEqual([504, 'MISS']);
  const copy = join(rig.folder, 'copy');
  await rig.channel.call('backup', { folder: copy });
  expect(readdirSync(join(copy, TENANT))).toEqual(['kv']);
  await rig.channel.call('purge', { tenant: TENANT });
  expect(existsSync(join(rig.root, TENANT))).toBe(false);
});
