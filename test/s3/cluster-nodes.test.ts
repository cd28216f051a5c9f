/**
 * Two storage processes over one PostgreSQL and one bucket: what is acknowledged stays, whoever else writes, whichever of
 * them is killed, and while S3 refuses; and of what nothing names nothing stays.
 */
import { createHash } from 'node:crypto';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { S3Bucket } from '../../host/bindings/store-process/blobs/s3.ts';
import type { ClusterStores } from '../../host/shared/contracts.ts';
import { Client, type PgClient } from '../../host/shared/pg.ts';
import { Servers } from '../../host/shared/postgres-servers.ts';
import { callR2, callSocket, StorageRig, TENANT } from '../e2e/storage-rig.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { Door } from './door.ts';
import { s3Settings } from './radosgw.ts';

let postgres: PostgresServer;
let door: Door;
beforeAll(async () => {
  postgres = await PostgresServer.start();
  door = await Door.open(s3Settings('x').endpoint);
});
afterAll(async () => {
  door?.close();
  await postgres?.stop();
});

let count = 0;
let cluster: ClusterStores;
let database: PgClient;
let a: StorageRig;
let b: StorageRig;
const agent = new Agent({ keepAlive: true });
beforeEach(async () => {
  const name = `nodes-${count++}`;
  cluster = { database: postgres.create(name), storage: { ...s3Settings(name), endpoint: door.endpoint } };
  [a, b] = [new StorageRig({ cluster }), new StorageRig({ cluster })];
  await Promise.all([a.startStorage(), b.startStorage()]);
  await connectDatabase();
});
afterEach(async () => {
  door.isShut = false;
  await database.end();
  await Promise.all([a.stop(), b.stop()]);
});

async function connectDatabase(): Promise<void> {
  const times = { connectionTimeoutMillis: 5_000, query_timeout: 30_000 };
  database = new Client({ application_name: 'test', servers: new Servers(cluster.database), ...times });
  database.on('error', () => {});
  await database.connect();
  await database.query('SET search_path = turnpike_stores');
}

const r2 = (rig: StorageRig, call: Record<string, unknown>, value?: Buffer) =>
  callR2(join(rig.sockets, 'r2.sock'), call, value, agent);
const kv = (rig: StorageRig, key: string, value?: Buffer) =>
  callSocket(join(rig.sockets, 'kv.sock'), `/${key}`, value ? { method: 'PUT', body: value, agent } : { agent });
const times = <T>(n: number, work: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: n }, (_, i) => work(i)));
const md5 = (bytes: Buffer) => createHash('md5').update(bytes).digest('hex');
const either = (i: number) => (i % 2 === 0 ? a : b);

/** What the rows say that a store holds, whatever was counted. */
async function sums(): Promise<Record<string, number>> {
  const { rows } = await database.query(`SELECT
    (SELECT coalesce(sum(charge), 0) FROM entries) AS "kvBytes", (SELECT count(*) FROM entries) AS "kvKeys",
    (SELECT coalesce(sum(charge), 0) FROM objects) AS "objectBytes", (SELECT count(*) FROM objects) AS "objects"`);
  return Object.fromEntries(Object.entries(rows[0] ?? {}).map(([name, value]) => [name, Number(value)]));
}

/** Names of all objects in the bucket. */
async function inBucket(): Promise<string[]> {
  const files = new S3Bucket({ ...cluster.storage, endpoint: s3Settings('x').endpoint, prefix: '' }).files('turnpike');
  try {
    return (await Array.fromAsync(files.entries())).map(({ name }) => name).sort();
  } finally {
    files.close();
  }
}

/** Makes all due that may go, and waits until the bucket has what rows name and nothing else. */
async function expectNothingLeft(): Promise<void> {
  await database.query("UPDATE doomed SET due = now() - interval '1 hour', claimed = false");
  // Behind the last dot is what the S3 is not told.
  const { rows } = await database.query(`SELECT store || '/' || regexp_replace(blob, '[.][^.]*$', '') AS name FROM
    (SELECT store, blob FROM objects UNION SELECT store, blob FROM parts UNION SELECT store, blob FROM entries) AS named
    WHERE blob <> ''`);
  let offsetMs = 0;
  const collected = async () => {
    await a.channel.call('setClock', { offsetMs: ++offsetMs });
    return inBucket();
  };
  await expect.poll(collected).toEqual(rows.map(({ name }) => String(name)).sort());
}

/** Of each of eight callers: more with CLUSTER_CHANGES. */
const CHANGES = Number(process.env.CLUSTER_CHANGES ?? 10);

test('conditional puts at two nodes: each change builds on the one before, and none is lost', async () => {
  await r2(a, { method: 'put', object: 'n' }, Buffer.from('0'));
  let tries = 0;
  await times(8, async (i) => {
    for (let done = 0; done < CHANGES; ) {
      const { json, value } = await r2(either(i), { method: 'get', object: 'n' });
      const onlyIf = { etagMatches: [{ type: 'strong', value: json.etag }] };
      const put = await r2(either(i), { method: 'put', object: 'n', onlyIf }, Buffer.from(String(Number(value) + 1)));
      tries++;
      if (put.status === 200) done++;
      else expect(put.error?.v4code).toBe(10031);
    }
  });
  expect((await r2(b, { method: 'get', object: 'n' })).value.toString()).toBe(String(8 * CHANGES));
  console.log(`${8 * CHANGES} changes in ${tries} tries`);
  await expectNothingLeft();
});

test('an upload that is completed and aborted at two nodes ends once', async () => {
  await times(20, async (i) => {
    const object = `o${i}`;
    const { uploadId } = (await r2(a, { method: 'createMultipartUpload', object })).json;
    const part = { method: 'uploadPart', object, uploadId, partNumber: 1 };
    const etags = await Promise.all([r2(a, part, Buffer.from('a')), r2(b, part, Buffer.from('b'))]);
    const complete = (at: number) =>
      r2(either(at), {
        method: 'completeMultipartUpload',
        object,
        uploadId,
        parts: [{ part: 1, etag: etags[at % 2]?.json.etag }],
      });
    const ended = await Promise.all([
      ...[0, 1, 2, 3].map(complete),
      r2(b, { method: 'abortMultipartUpload', object, uploadId }),
    ]);
    const completed = ended.slice(0, 4).filter(({ status }) => status === 200);
    const got = await r2(b, { method: 'get', object });
    // Where the abort was first there is none; the part that was put last is the one that is there.
    expect([completed.length, got.status]).toEqual(got.status === 200 ? [1, 200] : [0, 404]);
    if (got.status === 200) expect(['a', 'b']).toContain(got.value.toString());
  });
  expect(await a.usage(TENANT)).toMatchObject(await sums());
  await expectNothingLeft();
});

test('puts, gets, lists and deletes at two nodes: each answer is whole, and each sum right', async () => {
  const bodies = Array.from({ length: 16 }, (_, i) => Buffer.alloc(1_000 + i * 17, i));
  const known = new Map(bodies.map((body) => [md5(body), body]));
  let [gets, puts] = [0, 0];
  await times(12, async (i) => {
    for (let turn = 0; turn < 40; turn++) {
      const object = `k${(i * 7 + turn * 3) % 10}`;
      const rig = either(i + turn);
      const kind = (i + turn) % 4;
      if (kind === 0) await r2(rig, { method: 'delete', objects: [object, 'never'] });
      if (kind === 1 || kind === 2) {
        puts++;
        const body = bodies[(i + turn) % 16] as Buffer;
        expect((await r2(rig, { method: 'put', object }, body)).status).toBe(200);
        await kv(rig, object, body);
      }
      const got = await r2(either(i + turn + 1), { method: 'get', object });
      if (got.status === 404) continue;
      gets++;
      expect(got.value.equals(known.get(got.json.etag) as Buffer)).toBe(true);
    }
  });
  console.log(`${puts} puts and ${gets} gets were whole`);
  expect(gets).toBeGreaterThan(100);
  expect(await b.usage(TENANT)).toMatchObject(await sums());
  await expectNothingLeft();
});

test.each(['a node', 'PostgreSQL'])(
  '%s is killed under writes: what is acknowledged is there, all else leaves nothing',
  async (what) => {
    const kept = new Map<string, string>();
    for (const turn of [0, 1, 2]) {
      let isRunning = true;
      const writers = times(12, async (i) => {
        for (let n = 0; isRunning; n++) {
          const [key, rig] = [`${turn}-${i}-${n % 5}`, i < 9 ? b : a];
          const body = Buffer.from(`${turn} ${i} ${n} `.repeat(50));
          const large = i === 6 || i === 8 ? Buffer.concat([body, Buffer.alloc(200_000, n)]) : body;
          const name = `${i % 3 === 0 ? 'kv' : 'r2'} ${key}`;
          const write = i % 3 === 0 ? kv(rig, key, large) : r2(rig, { method: 'put', object: key }, large);
          const answer = await write.catch(() => undefined);
          // A write that was answered by an error, or not at all, may have been done.
          if (answer?.status === 200) kept.set(name, md5(large));
          else kept.delete(name);
          if (answer?.status !== 200) return;
        }
      });
      const before = kept.size;
      await expect.poll(() => kept.size).toBeGreaterThan(before + 30);
      if (what === 'a node') {
        await b.killStorage();
        isRunning = false;
        await writers;
        await b.startStorage();
      } else {
        await postgres.kill();
        isRunning = false;
        await writers;
        await postgres.start();
        await connectDatabase();
      }
    }
    for (const [name, sum] of kept) {
      const [kind, key = ''] = name.split(' ');
      const got = kind === 'kv' ? (await kv(a, key)).body : (await r2(a, { method: 'get', object: key })).value;
      expect([name, md5(got)]).toEqual([name, sum]);
    }
    console.log(`${kept.size} keys held what was acknowledged last`);
    expect(kept.size).toBeGreaterThan(60);
    expect(await a.usage(TENANT)).toMatchObject(await sums());
    await expectNothingLeft();
  },
);

test('S3 refuses for a while: what is acknowledged is there, what is refused is not, and then all goes on', async () => {
  const body = (i: number) => Buffer.alloc(3_000, i);
  const first = await times(20, (i) => r2(either(i), { method: 'put', object: `k${i}` }, body(i)));
  expect(first.map(({ status }) => status)).toEqual(first.map(() => 200));
  door.isShut = true;
  const during = await times(20, (i) => r2(either(i), { method: 'put', object: `k${i}` }, body(i + 100)));
  expect(during.map(({ status }) => status)).toEqual(during.map(() => 500));
  expect(door.refused).toBeGreaterThan(20);
  expect((await r2(a, { method: 'head', object: 'k1' })).json.etag).toBe(md5(body(1)));
  // Small values of KV are no objects.
  expect((await kv(a, 'small', Buffer.from('v'))).status).toBe(200);
  await r2(b, { method: 'delete', object: 'k0' });
  door.isShut = false;
  const got = await times(20, (i) => r2(either(i), { method: 'get', object: `k${i}` }));
  expect(got.map(({ value }) => md5(value)).slice(1)).toEqual(got.map((_, i) => md5(body(i))).slice(1));
  expect(got[0]?.status).toBe(404);
  expect((await r2(a, { method: 'put', object: 'k0' }, body(7))).status).toBe(200);
  await expectNothingLeft();
});

test('a blob that was about to be removed gets no name, and one with a name is not removed', async () => {
  await r2(a, { method: 'put', object: 'x' }, Buffer.from('first'));
  // As if this put had taken a day.
  await database.query(
    'CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.claimed = true; RETURN NEW; END $$',
  );
  await database.query('CREATE TRIGGER late BEFORE INSERT ON doomed FOR EACH ROW EXECUTE FUNCTION late()');
  expect((await r2(b, { method: 'put', object: 'x' }, Buffer.from('late'))).status).toBe(500);
  await database.query('DROP TRIGGER late ON doomed');
  expect((await r2(a, { method: 'get', object: 'x' })).value.toString()).toBe('first');
  await expectNothingLeft();
});

test('one quota for both nodes, and for all stores of a kind', async () => {
  const quotas = { ...a.quotas, kvBytes: 100_000 };
  await a.open(TENANT, a.sockets, quotas);
  await b.open(TENANT, b.sockets, quotas);
  await b.channel.call('open', {
    tenant: TENANT,
    folder: b.sockets,
    stores: [{ name: 'kv.second', socket: 'second.sock' }],
    quotas,
  });
  const second = (key: string) =>
    callSocket(join(b.sockets, 'second.sock'), `/${key}`, { method: 'PUT', body: Buffer.alloc(1_000), agent });
  const answers = await times(120, (i) =>
    i % 3 === 0 ? second(`s${i}`) : kv(either(i), `k${i}`, Buffer.alloc(1_000)),
  );
  const stored = answers.filter(({ status }) => status === 200).length;
  // A key takes 64 bytes beside its own and the value's.
  expect(stored).toBe(Math.floor(100_000 / 1_067));
  expect(answers.every(({ status }) => status === 200 || status === 507)).toBe(true);
  expect((await a.usage(TENANT)).kvKeys).toBe(stored);
});

test('a cached read is as old as the handler allows, and only where it asked', async () => {
  const [before, after] = [Buffer.from('before'), Buffer.from('after')];
  await kv(a, 'k', before);
  const cached = async (rig: StorageRig, query: string) => (await kv(rig, `k?urlencoded=true${query}`)).body.toString();
  expect(await cached(b, '&cache_ttl=60')).toBe('before');
  await kv(a, 'k', after);
  expect([await cached(b, ''), await cached(b, '&cache_ttl=60'), await cached(a, '&cache_ttl=60')]).toEqual([
    'after',
    'before',
    'after',
  ]);
  await kv(b, 'k', Buffer.from('own'));
  expect(await cached(b, '&cache_ttl=60')).toBe('own');
});

test('a copy of the folder is refused with the reason, and a purge at one node is one for all', async () => {
  await kv(a, 'k', Buffer.alloc(100_000));
  await r2(b, { method: 'put', object: 'o' }, Buffer.from('v'));
  expect(await inBucket()).toHaveLength(2);
  await expect(a.channel.call('backup', { folder: join(a.folder, 'copy') })).rejects.toThrow('PostgreSQL');
  await b.channel.call('purge', { tenant: TENANT });
  expect(await a.usage(TENANT)).toEqual({ kvBytes: 0, kvKeys: 0, objectBytes: 0, objects: 0, cacheBytes: 0 });
  expect((await kv(a, 'k')).status).toBe(404);
  expect(await inBucket()).toEqual([]);
});
