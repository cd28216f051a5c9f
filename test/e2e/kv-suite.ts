/** Everything that is expected of KV, wherever its rows are: the published API in a real workerd, and its socket by itself. */
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  callSocket,
  caseNames,
  type RigOptions,
  type SocketAnswer,
  type SocketCall,
  StorageRig,
  TENANT,
} from './storage-rig.ts';

const names = await caseNames('kv');

/** @param options what to start the rig with; asked when the suite begins */
export function kvSuite(options: () => Promise<RigOptions>): void {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start(await options());
  });
  afterAll(() => rig?.stop());

  describe('in a handler', () => {
    for (const name of names)
      test(name, async () => {
        const response = await rig.fetch(`/case/kv/${encodeURIComponent(name)}`);
        expect(await response.text()).toBe('ok');
      });
  });

  /** A call of the first tenant's socket without workerd, as other suites make it. */
  function call(path: string, options: SocketCall = {}): Promise<SocketAnswer> {
    return callSocket(join(rig.sockets, 'kv.sock'), path, options);
  }

  describe('kv.sock by itself', () => {
    test('an unknown key is 404 without a body', async () => {
      const { status, body } = await call('/nothing?urlencoded=true');
      expect([status, body.length]).toEqual([404, 0]);
    });

    test('metadata is UTF-8 in both directions', async () => {
      const metadata = Buffer.from(JSON.stringify({ name: 'Grüße' })).toString('latin1');
      await call('/wire?urlencoded=true', {
        method: 'PUT',
        headers: { 'CF-KV-Metadata': metadata },
        body: Buffer.from('v'),
      });
      const { headers } = await call('/wire?urlencoded=true');
      expect(headers['cf-kv-metadata']).toBe(metadata);
    });

    test.each<[string, string, Record<string, string>, number, string]>([
      ['PUT', '/k?urlencoded=true', { 'CF-KV-Metadata': '{broken' }, 400, 'Metadata must be valid JSON.'],
      ['GET', '/%E0%A4?urlencoded=true', {}, 400, 'Could not URL-decode key name'],
      [
        'GET',
        '/?key_count_limit=0',
        {},
        400,
        'Invalid key_count_limit of 0. Please specify an integer greater than 0.',
      ],
      [
        'GET',
        '/?key_count_limit=x',
        {},
        400,
        'Invalid key_count_limit of x. Please specify an integer greater than 0.',
      ],
      ['PATCH', '/k', {}, 405, 'Method Not Allowed'],
      ['POST', '/bulk/get', {}, 400, 'The body of a bulk get must be JSON with a list of keys.'],
    ])('%s %s is refused', async (method, path, headers, status, reason) => {
      const answer = await call(path, { method, headers, ...(method === 'GET' ? {} : { body: Buffer.from('x') }) });
      expect([answer.status, answer.reason]).toEqual([status, reason]);
    });

    test('a key without urlencoded=true is taken as it is', async () => {
      await call('/a%20b', { method: 'PUT', body: Buffer.from('raw') });
      expect((await call('/a%20b')).body.toString()).toBe('raw');
      expect((await call('/a%2520b?urlencoded=true')).body.toString()).toBe('raw');
      expect((await call('/a%20b?urlencoded=true')).status).toBe(404);
    });

    test('a second tenant sees nothing of the first', async () => {
      await rig.open('t00000000000000000002', rig.folder);
      await call('/mine', { method: 'PUT', body: Buffer.from('secret') });
      const other = await callSocket(join(rig.folder, 'kv.sock'), '/mine');
      expect(other.status).toBe(404);
    });
  });

  describe('time and space', () => {
    test('a key is gone for readers at its expiration, and swept', async () => {
      await call('/fades?urlencoded=true&expiration_ttl=60', { method: 'PUT', body: Buffer.alloc(100_000) });
      const before = await rig.usage(TENANT);
      await rig.channel.call('setClock', { offsetMs: 61_000 });
      expect((await call('/fades?urlencoded=true')).status).toBe(404);
      expect((await call('/?prefix=fades')).body.toString()).toContain('"keys":[]');
      await expect.poll(async () => (await rig.usage(TENANT)).kvBytes).toBeLessThan(before.kvBytes - 100_000);
      expect((await rig.usage(TENANT)).kvKeys).toBeLessThan(before.kvKeys);
      await rig.channel.call('setClock', { offsetMs: 0 });
    });

    test('past the quota a put is refused as a whole, and deleting makes room', async () => {
      const tenant = 't00000000000000000003';
      const folder = join(rig.folder, 'q');
      mkdirSync(folder);
      await rig.open(tenant, folder, { ...rig.quotas, kvBytes: 200_000 });
      const at = (key: string, options: SocketCall) => callSocket(join(folder, 'kv.sock'), `/${key}`, options);
      const put = async (key: string, size: number) => {
        const { status, reason } = await at(key, { method: 'PUT', body: Buffer.alloc(size) });
        return `${status} ${reason}`;
      };
      const full = '507 Insufficient Storage: the quota of 200000 bytes is used up.';
      expect(await put('a', 150_000)).toBe('200 OK');
      expect(await put('b', 60_000)).toBe(full);
      expect(await put('c', 100_000)).toBe(full);
      expect(await put('a', 190_000)).toBe('200 OK');
      expect(await rig.usage(tenant)).toMatchObject({ kvKeys: 1, kvBytes: 190_001 });
      await at('a', { method: 'DELETE' });
      expect(await put('b', 60_000)).toBe('200 OK');
      expect(await rig.usage(tenant)).toMatchObject({ kvKeys: 1, kvBytes: 60_001 });
      await rig.channel.call('purge', { tenant });
      expect(existsSync(join(rig.root, tenant))).toBe(false);
      expect(await rig.usage(tenant)).toEqual({ kvBytes: 0, kvKeys: 0, objectBytes: 0, objects: 0, cacheBytes: 0 });
      await rig.channel.call('purge', { tenant });
    });
  });
}
