/** A backup taken while tenants write: each store's copy is its state at one moment, and a copy back is a restore. */
import { createHash } from 'node:crypto';
import { cpSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { callR2, callSocket, StorageRig, TENANT } from './storage-rig.ts';

let rig: StorageRig;
beforeEach(async () => {
  rig = new StorageRig();
  await rig.startStorage();
});
afterEach(() => rig.stop());

/** Objects that each of several writers replaces all the time. */
const CHURNED = 30;

const kvSocket = () => join(rig.sockets, 'kv.sock');
const r2Socket = () => join(rig.sockets, 'r2.sock');
/** Small, of middle size, and large: in the index, in extents, in files. */
const value = (index: number) => Buffer.alloc([200_000, 60_000, 500, 500, 500][index % 5] ?? 0, `v${index};`);

const putKv = (index: number) => callSocket(kvSocket(), `/k${index}`, { method: 'PUT', body: value(index) });
const putR2 = (index: number) => callR2(r2Socket(), { method: 'put', object: `k${index}` }, value(index));

test('writes go on during a backup, and the copy is a moment of each store', async () => {
  const written = { kv: 0, r2: 0 };
  let stop = false;
  const writers = [
    (async () => {
      while (!stop) if ((await putKv(written.kv)).status === 200) written.kv++;
    })(),
    (async () => {
      while (!stop) if ((await putR2(written.r2)).status === 200) written.r2++;
    })(),
    // Replaced all the time, so that blobs the copy needs would be removed under it.
    (async () => {
      while (!stop) {
        await callSocket(kvSocket(), '/churn', { method: 'PUT', body: Buffer.alloc(100_000, 'c') });
        await callR2(r2Socket(), { method: 'put', object: 'churn' }, Buffer.alloc(300_000, 'c'));
      }
    })(),
    // Others take the place of their bytes at once, where they may.
    ...Array.from({ length: 4 }, async (_, writer) => {
      for (let round = 0; !stop; round++) {
        const bytes = Buffer.alloc(100_000, `${writer}/${round};`);
        await callR2(r2Socket(), { method: 'put', object: `churn-${writer}-${round % CHURNED}` }, bytes);
      }
    }),
  ];
  while (Math.min(written.kv, written.r2) < 100) await new Promise((resolve) => setTimeout(resolve, 10));
  const before = { ...written };
  const copy = join(rig.folder, 'copy');
  const { tenants, bytes } = await rig.channel.call('backup', { folder: copy });
  const after = { ...written };
  stop = true;
  await Promise.all(writers);
  expect(tenants).toBe(1);
  expect(bytes).toBeGreaterThan(20 * 200_000);

  // Lose the box.
  await rig.killStorage();
  rmSync(rig.root, { recursive: true });
  cpSync(copy, rig.root, { recursive: true });
  await rig.startStorage();

  const read = {
    kv: async (index: number) => {
      const { status, body } = await callSocket(kvSocket(), `/k${index}`);
      return status === 200 ? body : undefined;
    },
    r2: async (index: number) => {
      const { status, value } = await callR2(r2Socket(), { method: 'get', object: `k${index}` });
      return status === 200 ? value : undefined;
    },
  };
  for (const kind of ['kv', 'r2'] as const) {
    let count = 0;
    for (let got = await read[kind](0); got; got = await read[kind](count)) {
      if (!got.equals(value(count))) throw new Error(`${kind} ${count} is not what was written`);
      count++;
    }
    expect(count).toBeGreaterThanOrEqual(before[kind]);
    expect(count).toBeLessThanOrEqual(after[kind] + 1);
    // The writer was sequential, so nothing may be there from behind the moment.
    for (let ahead = 1; ahead < 20; ahead++) expect(await read[kind](count + ahead)).toBeUndefined();
  }
  expect((await callSocket(kvSocket(), '/churn')).body.length).toBe(100_000);
  expect((await callR2(r2Socket(), { method: 'get', object: 'churn' })).value.length).toBe(300_000);
  for (let writer = 0; writer < 4; writer++)
    for (let object = 0; object < CHURNED; object++) {
      const { status, value, json } = await callR2(r2Socket(), { method: 'get', object: `churn-${writer}-${object}` });
      expect(status).toBe(200);
      expect(createHash('md5').update(value).digest('hex')).toBe(json.etag);
    }
  const usage = await rig.usage(TENANT);
  expect(usage.kvKeys).toBeGreaterThan(100);
});

test('tenants that are not open are copied too, and purged ones are not', async () => {
  const idle = 't00000000000000000007';
  await rig.open(idle, rig.folder);
  await callSocket(join(rig.folder, 'kv.sock'), '/k', { method: 'PUT', body: Buffer.from('idle') });
  await rig.channel.call('close', { tenant: idle });
  expect(existsSync(join(rig.folder, 'kv.sock'))).toBe(false);
  await putKv(1);
  await rig.channel.call('purge', { tenant: TENANT });
  const copy = join(rig.folder, 'copy');
  expect((await rig.channel.call('backup', { folder: copy })).tenants).toBe(1);
  expect(existsSync(join(copy, idle, 'kv', 'kv.db'))).toBe(true);
  expect(existsSync(join(copy, TENANT))).toBe(false);
  // A second backup into the same folder replaces the first.
  expect((await rig.channel.call('backup', { folder: copy })).tenants).toBe(1);
});
