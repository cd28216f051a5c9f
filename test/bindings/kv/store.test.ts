/** The KV store by itself, on a clock that stands still. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openKvOnDisk } from '../../../host/bindings/kv/on-disk.ts';
import type { CachedEntry, Entry, KvStore, ListedKey } from '../../../host/bindings/kv/store.ts';
import { ByteCache } from '../../../host/bindings/store-process/cache.ts';
import { Checkpoints } from '../../../host/bindings/store-process/checkpoints.ts';
import { ManualClock } from '../../../host/shared/clock.ts';

const log = pino({ level: 'silent' });
const NOW = 1_800_000_000;
let folder: string;
let clock: ManualClock;
let quota: number;
let store: KvStore;

function open(): void {
  store = openKvOnDisk({
    folder,
    quota: () => quota,
    clock,
    cache: new ByteCache<CachedEntry>(1_000_000),
    checkpoints: new Checkpoints(log),
    log,
  });
}

async function close(): Promise<void> {
  await expect.poll(() => store.busy).toBe(false);
  store.close();
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kv-store-'));
  clock = new ManualClock(NOW * 1000);
  quota = 1_000_000;
  open();
});
afterEach(async () => {
  await close();
  rmSync(folder, { recursive: true });
});

const key = (name: string) => Buffer.from(name);
const bytes = (size: number) => ({ length: size, chunks: [Buffer.alloc(size, 120)] });
const put = (name: string, size: number, expiration: number | null = null) =>
  store.put(key(name), bytes(size), expiration, null);
const get = (name: string) => store.get(key(name)) as Entry | undefined;
const sizes = () =>
  (store.list({ prefix: key(''), after: undefined, limit: 1000 }) as ListedKey[]).map((entry) => entry.key.toString());

test('what was read before is not what is read after a write', async () => {
  await put('k', 10);
  expect(get('k')?.size).toBe(10);
  expect(get('k')?.size).toBe(10);
  await put('k', 20);
  expect(get('k')?.size).toBe(20);
  await put('k', 100_000);
  expect([get('k')?.value, get('k')?.size]).toEqual([null, 100_000]);
  await store.delete(key('k'));
  expect(get('k')).toBeUndefined();
});

test('a key ends in the second of its expiration, in the memory as on the disk', async () => {
  await put('k', 10, NOW + 60);
  clock.advance(59_999);
  expect(get('k')?.size).toBe(10);
  clock.advance(1);
  expect([get('k'), sizes()]).toEqual([undefined, []]);
});

test('what has expired makes room before a put is refused', async () => {
  await put('old', 700_000, NOW + 60);
  await expect(put('new', 700_000)).rejects.toThrow('Insufficient Storage: the quota of 1000000 bytes is used up.');
  clock.advance(60_000);
  await put('new', 700_000);
  expect([sizes(), store.totals.items]).toEqual([['new'], 1]);
  await expect.poll(() => readdirSync(join(folder, 'values')).length).toBe(1);
});

test('many large puts at once cannot pass the quota together', async () => {
  const results = await Promise.allSettled(Array.from({ length: 8 }, (_, i) => put(`k${i}`, 300_000)));
  expect(results.filter(({ status }) => status === 'fulfilled').length).toBe(3);
  expect(store.totals.bytes).toBe(3 * 300_002);
  await expect.poll(() => readdirSync(join(folder, 'values')).length).toBe(3);
});

test('totals are the same after the store was closed and opened', async () => {
  await put('a', 5);
  await put('b', 100_000);
  await put('a', 7);
  await store.delete(key('b'));
  const before = [store.totals.bytes, store.totals.items];
  expect(before).toEqual([8, 1]);
  await close();
  open();
  expect([store.totals.bytes, store.totals.items]).toEqual(before);
  expect(get('a')?.size).toBe(7);
});

test('a smaller quota than what is kept lets nothing grow, and everything shrink', async () => {
  await put('a', 500_000);
  quota = 1000;
  await expect(put('b', 1)).rejects.toThrow(/quota of 1000 bytes/);
  await put('a', 400_000);
  await put('a', 10);
  await put('b', 10);
  expect(sizes()).toEqual(['a', 'b']);
});

test('keys without values fill the quota, too', async () => {
  quota = 1000;
  const puts = await Promise.allSettled(Array.from({ length: 30 }, (_, at) => put(`${at}`, 0)));
  const stored = puts.filter(({ status }) => status === 'fulfilled').length;
  expect([stored > 10, stored < 20]).toEqual([true, true]);
  // Those that are there may be written again.
  await put('0', 0);
});
