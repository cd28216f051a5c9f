/** The bucket of objects over HTTP, on a real PostgreSQL: what workerd asks, and what others try. Signed by minio. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { Agent, request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { createRequire } from 'node:module';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Credentials, credentialsOf } from '../../../host/bindings/objects-bucket/credentials.ts';
import { BucketGateway } from '../../../host/bindings/objects-bucket/gateway.ts';
import {
  CONNECTIONS,
  INLINE_BYTES,
  INSTANCES_BYTES,
  LEASE_BYTES,
  ROW_BYTES,
} from '../../../host/bindings/objects-bucket/limits.ts';
import { BucketRecords, type Sql } from '../../../host/bindings/objects-bucket/records.ts';
import { DiskBlobs } from '../../../host/bindings/store-process/blobs/disk.ts';
import { postgresPrograms } from '../../e2e/support/databases.ts';
import { until } from '../../e2e/support/until.ts';
import { PostgresServer } from '../../registry/support/postgres-server.ts';
import { type PgTestPool, pgPool } from './support/pg-pool.ts';

const { signV4 } = createRequire(import.meta.url)('minio/dist/main/signing.js') as {
  signV4(request: object, accessKey: string, secretKey: string, region: string, date: Date, sha256: string): string;
};

const SECRET = Buffer.alloc(32, 7);
const ALICE = credentialsOf(SECRET, 'alice');
const BOB = credentialsOf(SECRET, 'bob');
const QUOTA = 20_000_000;

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  text: string;
}

interface Asked {
  method?: string;
  body?: Buffer | string;
  headers?: Record<string, string>;
  as?: Credentials;
  at?: Date;
  /** Default: each has a connection of its own, which ends with it. */
  agent?: Agent;
  /** What is sent instead of what was signed. */
  sent?: { method?: string; target?: string; headers?: Record<string, string> };
}

describe.skipIf(!postgresPrograms())('the bucket of objects', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'bucket-'));
  let postgres: PostgresServer;
  let pool: PgTestPool;
  let records: BucketRecords;
  /** What the database waits for before it answers. */
  let held: Promise<void> | undefined;
  /** The gateway's ends of connections. */
  const accepted: Socket[] = [];
  let gateway: BucketGateway;
  const listeners: Server[] = [];
  /** Each for the connections of one tenant's sandbox. */
  let ports: { alice: number; bob: number };

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    pool = pgPool(postgres.create('bucket'));
    const sql: Sql = {
      query: async (query) => {
        await held;
        return await pool.query(query);
      },
    };
    records = await BucketRecords.open(sql, (tenant) => new DiskBlobs(path.join(folder, tenant)));
    gateway = new BucketGateway({ records, log: pino({ level: 'silent' }) });
    const listen = async (tenant: string, credentials: Credentials): Promise<number> => {
      const entrance = gateway.entrance({ tenant, credentials, quotaBytes: QUOTA });
      const server = createServer({ pauseOnConnect: true }, (socket) => {
        accepted.push(socket);
        entrance(socket);
      });
      listeners.push(server);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return (server.address() as AddressInfo).port;
    };
    ports = { alice: await listen('alice', ALICE), bob: await listen('bob', BOB) };
  });
  afterAll(async () => {
    gateway.close();
    for (const server of listeners) server.close();
    records.close();
    await pool.end();
    await postgres.stop();
    rmSync(folder, { recursive: true });
  });

  function ask(
    target: string,
    { method = 'GET', body = '', headers = {}, as = ALICE, at = new Date(), agent, sent = {} }: Asked = {},
  ) {
    const port = ports.alice;
    const bytes = Buffer.from(body);
    const date = at.toISOString().replace(/[-:]|\.\d+/g, '');
    const signed = { host: `127.0.0.1:${port}`, 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD', 'x-amz-date': date };
    const authorization = signV4(
      { method, path: target, headers: signed },
      as.accessKey,
      as.secretKey,
      'us-east-1',
      at,
      'UNSIGNED-PAYLOAD',
    );
    return new Promise<Answer>((resolve, reject) => {
      const request = httpRequest(
        {
          port,
          host: '127.0.0.1',
          method: sent.method ?? method,
          path: sent.target ?? target,
          headers: { ...signed, authorization, 'content-length': bytes.length, ...headers, ...sent.headers },
          agent: agent ?? false,
        },
        async (response) => {
          const parts: Buffer[] = [];
          for await (const part of response) parts.push(part);
          const whole = Buffer.concat(parts);
          const { statusCode = 0, headers: answered } = response;
          resolve({ status: statusCode, headers: answered, body: whole, text: whole.toString() });
        },
      );
      request.once('error', reject);
      request.end(bytes);
    });
  }
  const put = (key: string, body: Buffer | string, headers: Record<string, string> = {}) =>
    ask(`/objects/alice/${key}`, { method: 'PUT', body, headers });

  test('keeps, replaces by its ETag, lists and removes', async () => {
    expect((await ask('/objects/alice/v1/a')).status).toBe(404);
    const first = await put('v1/a', 'one', { 'if-none-match': '*' });
    expect(first.status).toBe(200);
    expect((await put('v1/a', 'two', { 'if-none-match': '*' })).status).toBe(412);
    const second = await put('v1/a', 'two', { 'if-match': first.headers.etag ?? '' });
    expect(second.status).toBe(200);
    expect((await put('v1/a', 'three', { 'if-match': first.headers.etag ?? '' })).status).toBe(412);
    expect((await put('v1/none', 'x', { 'if-match': first.headers.etag ?? '' })).status).toBe(404);
    const read = await ask('/objects/alice/v1/a');
    expect([read.text, read.headers.etag]).toEqual(['two', second.headers.etag]);
    for (const key of ['v1/alarms/1/x', 'v1/alarms/1/y', 'v1/alarms/2/x', 'v1/b']) await put(key, key);
    const keys = ({ text }: Answer) => [...text.matchAll(/<(?:Key|Prefix)>([^<]+)</g)].map(([, key]) => key);
    const list = (query: string) => ask(`/objects/?${query}`);
    expect(keys(await list('list-type=2&prefix=alice%2Fv1%2Falarms%2F'))).toHaveLength(3);
    expect(keys(await list('delimiter=%2F&list-type=2&prefix=alice%2Fv1%2F'))).toEqual([
      'alice/v1/a',
      'alice/v1/b',
      'alice/v1/alarms/',
    ]);
    const page = await list('list-type=2&max-keys=2&prefix=alice%2Fv1%2F');
    expect(keys(page)).toEqual(['alice/v1/a', 'alice/v1/alarms/1/x']);
    const token = /<NextContinuationToken>([^<]+)</.exec(page.text)?.[1] ?? '';
    const rest = await list(
      `continuation-token=${encodeURIComponent(token)}&list-type=2&prefix=${encodeURIComponent('alice/v1/')}`,
    );
    expect(keys(rest)).toEqual(['alice/v1/alarms/1/y', 'alice/v1/alarms/2/x', 'alice/v1/b']);
    expect((await ask('/objects/alice/v1/a', { method: 'DELETE' })).status).toBe(204);
    expect((await ask('/objects/alice/v1/a')).status).toBe(404);
  });

  test('of many who write at once under a condition one succeeds', async () => {
    for (let round = 0; round < 15; round++) {
      const key = `race/${round}`;
      const created = await Promise.all([...'abcdefgh'].map((who) => put(key, who, { 'if-none-match': '*' })));
      const [winner, ...others] = created.filter(({ status }) => status === 200);
      expect(others).toEqual([]);
      const etag = winner?.headers.etag ?? '';
      const replaced = await Promise.all([...'ijklmnop'].map((who) => put(key, who, { 'if-match': etag })));
      expect(replaced.filter(({ status }) => status === 200)).toHaveLength(1);
      expect(replaced.filter(({ status }) => status === 412)).toHaveLength(7);
      const who = replaced.findIndex(({ status }) => status === 200);
      expect((await ask(`/objects/alice/${key}`)).text).toBe('ijklmnop'[who]);
    }
  });

  test('large objects are blobs, which go when no row names them', async () => {
    const large = Buffer.alloc(INLINE_BYTES + 1, 'x');
    const blobs = () =>
      readdirSync(path.join(folder, 'alice'), { recursive: true, withFileTypes: true }).filter((e) => e.isFile());
    expect((await put('large', large)).status).toBe(200);
    expect((await ask('/objects/alice/large')).body.equals(large)).toBe(true);
    expect((await put('large', large, { 'if-none-match': '*' })).status).toBe(412);
    expect((await put('large', 'small')).status).toBe(200);
    expect(blobs()).toHaveLength(2);
    expect(await records.collect()).toBe(0);
    await pool.query({ text: "UPDATE bucket_garbage SET after = now() - interval '1 second'" });
    expect(await records.collect()).toBe(2);
    expect(blobs()).toEqual([]);
  });

  test('a blob that was collected meanwhile is named by no row', async () => {
    const slow = (async function* () {
      yield Buffer.alloc(INLINE_BYTES);
      await pool.query({ text: "UPDATE bucket_garbage SET after = now() - interval '1 second'" });
      await records.collect();
      yield Buffer.alloc(1);
    })();
    const written = records.put('alice', 'late', { kind: 'any' }, { length: INLINE_BYTES + 1, stream: slow });
    await expect(written).rejects.toThrow('collected');
    expect(await records.get('alice', 'late')).toBeUndefined();
  });

  test.each<[string, string, Asked]>([
    ['credentials of another tenant', '/objects/alice/v1/x', { as: BOB }],
    ['credentials of another tenant, for its own prefix', '/objects/bob/v1/x', { as: BOB }],
    ['a key of its own making', '/objects/alice/v1/x', { as: { ...ALICE, secretKey: BOB.secretKey } }],
    ['an old signature', '/objects/alice/v1/x', { at: new Date(Date.now() - 120_000) }],
    ['a signature of tomorrow', '/objects/alice/v1/x', { at: new Date(Date.now() + 86_400_000) }],
    ['another method', '/objects/alice/v1/x', { sent: { method: 'DELETE' } }],
    ['another target', '/objects/alice/v1/x', { sent: { target: '/objects/alice/v1/y' } }],
    ['another host', '/objects/alice/v1/x', { sent: { headers: { host: 'elsewhere' } } }],
    [
      'a header that is not signed',
      '/objects/alice/v1/x',
      {
        sent: {
          headers: {
            authorization:
              'AWS4-HMAC-SHA256 Credential=alice/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=' +
              '0'.repeat(64),
          },
        },
      },
    ],
    ['no signature', '/objects/alice/v1/x', { sent: { headers: { authorization: '' } } }],
    ['the prefix of another', '/objects/bob/v1/x', {}],
    ['a prefix that begins alike', '/objects/alicex/v1/x', {}],
    ['another bucket', '/other/alice/v1/x', {}],
    ['a list of another', '/objects/?list-type=2&prefix=bob%2F', {}],
    ['a list of all', '/objects/?list-type=2', {}],
    ['a list of what begins alike', '/objects/?list-type=2&prefix=alice', {}],
    ['a list behind a name of another', '/objects/?list-type=2&prefix=alice%2F&start-after=aa', {}],
    ['the list of buckets', '/', {}],
  ])('refuses %s', async (_what, target, asked) => {
    await records.put('bob', 'v1/x', { kind: 'any' }, { length: 1, stream: one('b') });
    expect(await ask(target, asked)).toMatchObject({ status: 403 });
  });

  test.each([
    '/objects/alice/../bob/v1/x',
    '/objects/alice/%2e%2e/bob/v1/x',
    '/objects/alice%2fv1%2fx',
    '/objects/alice/..%2fbob/v1/x',
    '/objects/alice//bob/x',
    '/objects/alice/./x',
    '/objects/alice/x%00',
    '/objects/alice/x?acl',
    '/objects/alice/x?uploads=',
    '/objects/?list-type=2&prefix=alice%2F..%2Fbob%2F',
    '/objects/?list-type=2&prefix=alice%2F%2525',
    '/objects/?list-type=2&prefix=alice%2F&prefix=bob%2F',
    '/objects/?versions&prefix=alice%2F',
  ])('takes no %s', async (target) => {
    expect((await ask(target)).status).toBeGreaterThanOrEqual(400);
    expect((await ask(target, { method: 'PUT', body: 'x' })).status).toBeGreaterThanOrEqual(400);
    expect((await records.get('bob', 'v1/x'))?.bytes).toBe(1);
  });

  test.each<[string, string, Asked, number]>([
    ['a copy of what another has', 'x', { method: 'PUT', headers: { 'x-amz-copy-source': '/objects/bob/v1/x' } }, 501],
    ['an address that is signed instead', 'x?X-Amz-Signature=0', { headers: { authorization: '' } }, 403],
    ['a list of rights', 'x?acl', { method: 'PUT', body: 'x' }, 501],
    ['an upload in parts of another', 'x?partNumber=1&uploadId=bob', { method: 'PUT', body: 'x' }, 501],
    ['a head', 'x', { method: 'HEAD' }, 501],
    ['a POST', 'x', { method: 'POST', body: 'x' }, 501],
    ['a part', 'x', { headers: { range: 'bytes=0-0' } }, 501],
    ['a key that is too long', 'x'.repeat(513), { method: 'PUT', body: 'x' }, 400],
    ['a key in another script', '%D0%B0', { method: 'PUT', body: 'x' }, 400],
    ['a key encoded twice', '%252e%252e/bob', { method: 'PUT', body: 'x' }, 400],
  ])('%s is refused, and changes nothing', async (_what, key, asked, status) => {
    const before = await records.list('alice', '', '', 1_000);
    expect((await ask(`/objects/alice/${key}`, asked)).status).toBe(status);
    expect(await records.list('alice', '', '', 1_000)).toEqual(before);
  });

  test('bodies end at the quota, and at the largest there is', async () => {
    const before = await records.bytesOf('alice');
    expect((await put('quota', Buffer.alloc(QUOTA - before - ROW_BYTES + 1))).status).toBe(507);
    expect((await put('huge', '', { 'content-length': '99999999999' })).status).toBe(413);
    expect(await records.bytesOf('alice')).toBe(before);
  });

  test('over the quota leases are written all the same, or instances would end; nothing else is one', async () => {
    const owned = await put('v1/do/own.json', '{}', { 'if-none-match': '*' });
    const rest = QUOTA - (await records.bytesOf('alice')) - ROW_BYTES;
    expect((await put('full', Buffer.alloc(rest))).status).toBe(200);
    expect((await put('v1/do/own.json', '{"a":1}', { 'if-match': owned.headers.etag ?? '' })).status).toBe(200);
    expect((await put('v1/nodes/a.json', '{}', { 'if-none-match': '*' })).status).toBe(200);
    // As after many instances: their leases have some room, too, and no more.
    await pool.query({
      text: "INSERT INTO bucket_objects (tenant, key, etag, bytes, body) VALUES ('alice', 'v1/nodes/b.json', '', $1, '')",
      values: [INSTANCES_BYTES],
    });
    const refused: [string, Buffer | string, string][] = [
      ['none', '', ''],
      ['v1/do/another/own.json', '{}', '*'],
      ['v1/nodes/large.json', Buffer.alloc(LEASE_BYTES + 1), ''],
      ['v1/do/own.json', Buffer.alloc(LEASE_BYTES + 1), ''],
      ['v1/nodes/c.json', '{}', '*'],
    ];
    for (const [key, body, none] of refused)
      expect([key, (await put(key, body, none ? { 'if-none-match': none } : {})).status]).toEqual([key, 507]);
    for (const { key } of await records.list('alice', '', '', 1_000)) await records.remove('alice', key);
  });

  test('what is written again and again takes its place once', async () => {
    const most = QUOTA - (await records.bytesOf('alice'));
    for (let at = 0; at < 5; at += 1)
      expect((await put('again', Buffer.alloc(Math.floor(most / 2.5)))).status).toBe(200);
    expect((await put('more', Buffer.alloc(Math.floor(most / 1.5)))).status).toBe(507);
    await records.remove('alice', 'again');
    expect((await put('more', Buffer.alloc(Math.floor(most / 1.5)))).status).toBe(200);
    await records.remove('alice', 'more');
  });

  test('who vanishes within a body writes nothing, and nobody waits for it', async () => {
    const socket = connect(ports.alice, '127.0.0.1');
    const date = new Date();
    const text = date.toISOString().replace(/[-:]|\.\d+/g, '');
    const signed = { host: 'x', 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD', 'x-amz-date': text };
    const target = '/objects/alice/half';
    const authorization = signV4(
      { method: 'PUT', path: target, headers: signed },
      ALICE.accessKey,
      ALICE.secretKey,
      'us-east-1',
      date,
      'UNSIGNED-PAYLOAD',
    );
    const lines = Object.entries({ ...signed, authorization, 'content-length': '1000' }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    socket.write(`PUT ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\nhalf`);
    expect((await put('other', 'x')).status).toBe(200);
    socket.destroy();
    expect((await put('other', 'y')).status).toBe(200);
    expect(await records.get('alice', 'half')).toBeUndefined();
  });

  test('the lease of an instance does not wait for the owners of many new objects', async () => {
    const asked = accepted.length;
    const database = Promise.withResolvers<void>();
    held = database.promise;
    let answered = 0;
    const owners = Array.from({ length: 80 }, async (_, at) => {
      expect((await ask(`/objects/alice/v1/objects/${at}/own.json`)).status).toBe(404);
      answered += 1;
    });
    const arrived = (count: number) => () =>
      accepted.slice(asked).filter((socket) => socket.bytesRead > 0).length >= count;
    await until(arrived(80));
    const lease = put('v1/nodes/1', '{}');
    await until(arrived(81));
    database.resolve();
    expect((await lease).status).toBe(200);
    expect(answered).toBeLessThan(60);
    await Promise.all(owners);
    held = undefined;
  });

  test('connections beyond those that are served wait, and none of them is refused', async () => {
    const asked = accepted.length;
    const database = Promise.withResolvers<void>();
    held = database.promise;
    // As workerd: a connection is kept for the next request, unless the answer says that it was the last.
    const agent = new Agent({ keepAlive: true });
    const calls = Array.from({ length: CONNECTIONS + 300 }, (_, at) => ask(`/objects/alice/many/${at}`, { agent }));
    await until(() => accepted.length === asked + calls.length);
    const waiting = accepted.slice(asked + CONNECTIONS);
    expect(waiting.map(({ bytesRead }) => bytesRead)).toEqual(waiting.map(() => 0));
    database.resolve();
    held = undefined;
    const answers = await Promise.all(calls);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([404]));
    expect(answers.filter(({ headers }) => headers.connection === 'close').length).toBeGreaterThanOrEqual(300);
    expect((await ask('/objects/alice/many', { agent })).headers.connection).toBe('keep-alive');
    agent.destroy();
  });

  test('answers 503 while the database is away, and goes on afterwards', async () => {
    await put('there', 'x');
    await postgres.kill();
    expect((await put('there', 'y')).status).toBe(503);
    await postgres.start();
    expect((await ask('/objects/alice/there')).text).toBe('x');
    expect((await put('there', 'z')).status).toBe(200);
  });
});

async function* one(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}
