/**
 * kill -9 of the storage process while it works: whatever was acknowledged is there afterwards, whole, and whatever
 * was not is there whole or not at all.
 */
import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { callR2, callSocket, StorageRig, TENANT } from './storage-rig.ts';

const WRITES = Number(process.env.CRASH_WRITES ?? 1_000);
const KILLS = 5;
const WRITERS = 24;

let rig: StorageRig;
let agent: Agent;
beforeEach(async () => {
  rig = new StorageRig();
  agent = new Agent({ keepAlive: true });
  await rig.startStorage();
});
afterEach(async () => {
  agent.destroy();
  await rig.stop();
});

/**
 * Every key has its own content: mostly small, some (one of 50) large enough for a file, and some of middle size, which
 * for objects means an extent.
 */
function content(index: number, version: number): Buffer {
  const sizes = [140_000 + (index % 1000), 16_384 + (index % 50_000)];
  const size = sizes[index % 50] ?? 50 + (index % 3000);
  return Buffer.alloc(size, createHash('sha256').update(`${index}/${version}`).digest());
}

/** Runs `write(0..count-1)` by several writers while the process is killed now and then; answers what was acknowledged. */
async function underKills(count: number, write: (index: number) => Promise<boolean>): Promise<Set<number>> {
  const acknowledged = new Set<number>();
  let next = 0;
  let down = false;
  const writers = Array.from({ length: WRITERS }, async () => {
    for (;;) {
      const index = next++;
      if (index >= count) return;
      for (;;) {
        if (down) {
          await delay(5);
          continue;
        }
        // A write whose answer was lost is made again, as a client would.
        if (await write(index).catch(() => false)) break;
        await delay(1);
      }
      acknowledged.add(index);
    }
  });
  const killer = (async () => {
    for (let kill = 1; kill <= KILLS; kill++) {
      while (acknowledged.size < (count * kill) / (KILLS + 1)) await delay(1);
      down = true;
      await rig.killStorage();
      await rig.startStorage();
      down = false;
    }
  })();
  await Promise.all([...writers, killer]);
  await rig.killStorage();
  await rig.startStorage();
  return acknowledged;
}

describe('KV', () => {
  test(`none of ${WRITES} acknowledged writes is lost or torn by ${KILLS + 1} kills`, async () => {
    const socket = join(rig.sockets, 'kv.sock');
    const call = (path: string, method: string, body?: Buffer) =>
      callSocket(socket, path, { method, agent, ...(body ? { body } : {}) });
    // Two versions of half as many keys: an overwrite must not tear either.
    const keys = WRITES / 2;
    const acknowledged = await underKills(WRITES, async (index) => {
      const key = index % keys;
      const answer = await call(`/k${key}`, 'PUT', content(key, index < keys ? 1 : 2));
      return answer.status === 200;
    });
    expect(acknowledged.size).toBe(WRITES);
    for (let key = 0; key < keys; key++) {
      const { body } = await call(`/k${key}`, 'GET');
      // Writers run side by side, so near the middle the first version may have come last.
      const whole = body.equals(content(key, 2)) || body.equals(content(key, 1));
      if (!whole) throw new Error(`key ${key} is torn or lost: ${body.length} bytes`);
    }
    const { kvKeys } = await rig.usage(TENANT);
    expect(kvKeys).toBe(keys);
    // What the kills left beside the database was collected.
    await expect.poll(() => readdirSync(join(rig.root, TENANT, 'kv', 'values')).length).toBe(keys / 50);
  });
});

describe('R2', () => {
  test(`none of ${WRITES} acknowledged writes is lost or torn by ${KILLS + 1} kills`, async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const acknowledged = await underKills(WRITES, async (index) => {
      const answer = await callR2(socket, { method: 'put', object: `k${index}` }, content(index, 1), agent);
      return answer.status === 200;
    });
    expect(acknowledged.size).toBe(WRITES);
    for (let index = 0; index < WRITES; index++) {
      const { json, value } = await callR2(socket, { method: 'get', object: `k${index}` }, undefined, agent);
      const expected = content(index, 1);
      if (!value.equals(expected)) throw new Error(`object ${index} is torn or lost: ${value.length} bytes`);
      if (json.etag !== createHash('md5').update(expected).digest('hex')) throw new Error(`etag of ${index}`);
    }
    expect((await rig.usage(TENANT)).objects).toBe(WRITES);
    await expect.poll(() => readdirSync(join(rig.root, TENANT, 'r2', 'objects')).length).toBe(WRITES / 50);
  });

  test('objects that are replaced all the time are always whole, and never each other’s', async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const keys = 12;
    const acknowledged = new Map<number, number>();
    // A writer for each key: the order of its versions is certain.
    const body = (key: number, version: number) =>
      Buffer.alloc(20_000 + ((key * 7_919 + version * 104_729) % 110_000), `${key}/${version};`);
    const versionOf = async (key: number) => {
      const { status, value, json } = await callR2(socket, { method: 'get', object: `r${key}` }, undefined, agent);
      if (status !== 200) return 0;
      const version = Number(/^\d+\/(\d+);/.exec(value.toString('latin1', 0, 40))?.[1]);
      if (!value.equals(body(key, version))) throw new Error(`object ${key} is torn: ${value.length} bytes`);
      expect(json.etag).toBe(createHash('md5').update(value).digest('hex'));
      return version;
    };
    await underKills(3_000, async (index) => {
      const key = index % keys;
      // Several writers may have one key: they go one after the other.
      const version = Math.floor(index / keys) + 1;
      while ((acknowledged.get(key) ?? 0) < version - 1) await delay(1);
      const deleted = version % 10 === 0;
      const answer = deleted
        ? await callR2(socket, { method: 'delete', object: `r${key}` }, undefined, agent)
        : await callR2(socket, { method: 'put', object: `r${key}` }, body(key, version), agent);
      if (answer.status !== 200) return false;
      acknowledged.set(key, version);
      return true;
    });
    for (let key = 0; key < keys; key++) {
      const last = acknowledged.get(key) ?? 0;
      expect(await versionOf(key)).toBe(last % 10 === 0 ? 0 : last);
    }
    // At most 130,000 bytes each, twice while one is replaced, and some room between them.
    expect(statSync(join(rig.root, TENANT, 'r2', 'r2.extents')).size).toBeLessThan(10_000_000);
  });

  test('conditional writes stay atomic: no acknowledged increment is lost', async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const seen: number[] = [];
    await underKills(300, async () => {
      const now = await callR2(socket, { method: 'get', object: 'counter' }, undefined, agent);
      const next = now.status === 200 ? Number(now.value.toString()) + 1 : 1;
      const onlyIf =
        now.status === 200
          ? { etagMatches: [{ type: 'strong', value: now.json.etag }] }
          : { etagDoesNotMatch: [{ type: 'wildcard' }] };
      const put = await callR2(socket, { method: 'put', object: 'counter', onlyIf }, Buffer.from(String(next)), agent);
      if (put.status !== 200) return false;
      seen.push(next);
      return true;
    });
    expect(new Set(seen).size).toBe(seen.length);
    const last = await callR2(socket, { method: 'get', object: 'counter' });
    expect(Number(last.value.toString())).toBeGreaterThanOrEqual(Math.max(...seen));
  });

  test('multipart uploads are completed or not, never in between', async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const [one, two] = [Buffer.alloc(5 * 1024 * 1024, 1), Buffer.from('the end')];
    const uploads: { object: string; uploadId: string; parts: { part: number; etag: string }[] }[] = [];
    for (let i = 0; i < 12; i++) {
      const object = `m${i}`;
      const { uploadId } = (await callR2(socket, { method: 'createMultipartUpload', object })).json;
      const parts = [];
      for (const [part, bytes] of [
        [1, one],
        [2, two],
      ] as const) {
        const { etag } = (await callR2(socket, { method: 'uploadPart', object, uploadId, partNumber: part }, bytes))
          .json;
        parts.push({ part, etag });
      }
      uploads.push({ object, uploadId, parts });
    }
    const completing = uploads.map((upload) =>
      callR2(socket, { method: 'completeMultipartUpload', ...upload }).catch(() => undefined),
    );
    await Promise.race(completing);
    await rig.killStorage();
    const answers = await Promise.all(completing);
    await rig.startStorage();
    for (const [i, upload] of uploads.entries()) {
      const got = await callR2(socket, { method: 'get', object: upload.object });
      if (answers[i]?.status === 200) expect(got.status).toBe(200);
      if (got.status !== 200) {
        const again = await callR2(socket, { method: 'completeMultipartUpload', ...upload });
        expect(again.status).toBe(200);
      }
      const { value } = await callR2(socket, { method: 'get', object: upload.object });
      expect(value.length).toBe(one.length + two.length);
      expect(value.subarray(one.length)).toEqual(two);
    }
  });
});
