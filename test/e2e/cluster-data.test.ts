/**
 * What deployments keep on a host of two nodes, over a real PostgreSQL and a real S3: kept at one, found at the other,
 * also when the one is killed. Objects are at one of them at a time.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PeerLinks } from '../../host/peers/links.ts';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { expectTime } from '../times.ts';
import { deploy, type Fetch, jsonPost, jsonPut, signInFetch, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import type { TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const LARGE = 'large '.repeat(50_000);
const STORE = `export default {
  async fetch(request, env) {
    const [, kind, key] = new URL(request.url).pathname.split('/');
    const store = kind === 'kv' ? env.STORE : env.BUCKET;
    if (request.method === 'PUT') {
      await store.put(key, await request.text());
      return new Response('kept');
    }
    const found = await store.get(key);
    return new Response(found === null ? 'none' : typeof found === 'string' ? found : await found.text());
  },
}`;
const PAGE = '<h1>kept at A</h1>';
const SITE = 'export default { fetch: () => new Response("by the instance") }';

const COUNTER = `import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async fetch(request) {
    const count = ((await this.ctx.storage.get('count')) ?? 0) + (request.method === 'POST' ? 1 : 0);
    await this.ctx.storage.put('count', count);
    return new Response(String(count));
  }
}
export default { fetch: (request, env) => env.COUNTERS.getByName('one').fetch(request) };`;
const ALARM = `import { DurableObject } from 'cloudflare:workers';
export class Clock extends DurableObject {
  async fetch() {
    await this.ctx.storage.setAlarm(Date.now() + 3_000);
    return new Response('set');
  }
  async alarm() {
    await this.env.STORE.put('rang', 'x');
  }
}
export default { fetch: (request, env) => env.CLOCKS.getByName('one').fetch(request) };`;
/** Each message is noted as often as it was consumed. */
const QUEUE = `export default {
  async fetch(request, env) {
    if (request.method === 'POST') await env.MAIL.send(await request.text());
    return Response.json((await env.STORE.list({ prefix: 'got-' })).keys.map(({ name }) => name));
  },
  async queue(batch, env) {
    for (const { body } of batch.messages) await env.STORE.put('got-' + body + '-' + crypto.randomUUID(), 'x');
  },
};`;
/** Each part notes what it did in an object, and the handler in the database. */
const WORK = (name: string) => `import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Book extends DurableObject {
  constructor(ctx, env) { super(ctx, env); ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS notes (text TEXT)'); }
  note(text) { this.ctx.storage.sql.exec('INSERT INTO notes VALUES (?)', text + ' by ${name}'); }
  read() { return this.ctx.storage.sql.exec('SELECT text FROM notes ORDER BY text').toArray().map(({ text }) => text); }
}
export class Flow extends WorkflowEntrypoint {
  async run(event, step) { await step.do('note', () => this.env.BOOKS.getByName('book').note('flow')); }
}
export default {
  async fetch(request, env) {
    const book = env.BOOKS.getByName('book');
    await env.DB.exec('CREATE TABLE IF NOT EXISTS notes (text TEXT)');
    if (new URL(request.url).pathname.endsWith('/begin')) {
      await book.note('begun');
      await env.DB.prepare('INSERT INTO notes VALUES (?)').bind('${name}').run();
      await env.JOBS.send('job');
      await env.FLOWS.create({ id: 'flow' });
    }
    return Response.json({ own: await book.read(), shared: (await env.DB.prepare('SELECT text FROM notes').raw()).flat() });
  },
  async queue(batch, env) { await env.BOOKS.getByName('book').note('queue'); },
};`;
/** Notes of two databases. */
const SQL = (name: string) => `export default {
  async fetch(request, env) {
    const { searchParams } = new URL(request.url);
    const note = searchParams.get('note');
    const DB = searchParams.has('log') ? env.LOG : env.DB;
    if (note) await DB.prepare('INSERT INTO notes (note) VALUES (?)').bind(note).run();
    const { results } = await DB.prepare('SELECT note FROM notes ORDER BY id').all();
    return Response.json(['${name}', ...results.map(({ note }) => note)]);
  },
}`;
const CALLERS = 4;
const STRANGER = 200;
const MESSAGES = 6;
/** A lease of an object's owner lasts 15 s; the rest is the start of another one on a busy machine. */
const TAKEN_OVER_MS = 25_000;

describe.skipIf(!clusterPrograms())('two nodes', () => {
  let cluster: Cluster;
  let a: TestHost;
  let b: TestHost;
  let pay: Fetch;
  let prove: Fetch;

  beforeAll(async () => {
    cluster = await Cluster.start();
    [a, b] = await Promise.all([cluster.node('a'), cluster.node('b')]);
    pay = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    prove = signInFetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
  });
  afterAll(() => cluster?.stop());

  const text = async (host: TestHost, path: string) => (await fetch(`${host.url}${path}`)).text();
  const put = async (host: TestHost, path: string, body: string) =>
    (await fetch(`${host.url}${path}`, { method: 'PUT', body })).text();

  const call = async (host: TestHost, path: string, init?: RequestInit) => {
    const answer = await fetch(`${host.url}${path}`, init);
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`${answer.status}: ${text}`);
    return text;
  };
  async function rows(sql: string) {
    const client = postgresClient(cluster.database);
    try {
      return (await client.execute(sql)).rows;
    } finally {
      await client.end();
    }
  }
  const count = async (host: TestHost) => Number(await call(host, '/counts/', { method: 'POST' }));

  it('KV and R2: what one has answered the other has', async () => {
    await deploy(pay, cluster.url, { slug: 'keeps', code: STORE, bindings: { kv: true, r2: true } });
    for (const kind of ['kv', 'r2']) {
      expect(await put(a, `/keeps/${kind}/small`, `small of ${kind}`)).toBe('kept');
      expect(await put(a, `/keeps/${kind}/large`, LARGE)).toBe('kept');
      expect(await text(b, `/keeps/${kind}/small`)).toBe(`small of ${kind}`);
      expect(await text(b, `/keeps/${kind}/large`)).toBe(LARGE);
      expect(await put(b, `/keeps/${kind}/small`, 'by b')).toBe('kept');
      expect(await text(a, `/keeps/${kind}/small`)).toBe('by b');
    }
  });

  it('static files that were sent to one are served by the other, and a node that is killed takes nothing along', async () => {
    await deploy(pay, cluster.url, { slug: 'site', code: SITE });
    const session = await prove(`${cluster.url}/_admin/session/site`, { method: 'POST' });
    const headers = { authorization: `Bearer ${((await session.json()) as { token: string }).token}` };
    const hash = createHash('sha256').update(PAGE).digest('hex');
    const sent = await fetch(`${a.url}/_admin/site/assets/${hash}`, { method: 'PUT', body: PAGE, headers });
    expect(sent.status, await sent.text()).toBe(201);
    const updated = await prove(
      `${cluster.url}/_admin/code/site`,
      jsonPut({ assets: { files: { '/page.html': hash } } }),
    );
    expect(updated.status, await updated.text()).toBe(200);
    await put(a, '/keeps/kv/last', 'before the end');
    await a.kill();
    expect(await text(b, '/keeps/kv/last')).toBe('before the end');
    expect(await put(b, '/keeps/r2/large', 'after')).toBe('kept');
    // Edges name the content by its digest; instances do not.
    const found = await until(async () => {
      const answer = await fetch(`${b.url}/site/page`);
      expect(await answer.text()).toBe(PAGE);
      return answer.headers.get('etag') === `"${hash}"` ? answer : undefined;
    });
    expect(found.status).toBe(200);
    expect(await text(b, '/site/other')).toBe('by the instance');
    a = await a.restart();
    cluster.nodes.push(a);
    expect(await text(a, '/site/page')).toBe(PAGE);
    expect(await text(a, '/keeps/r2/large')).toBe('after');
  });

  it('data points that handlers write at either node are found by the same SQL at both', async () => {
    const code = `export default { fetch(request, env) {
      env.VISITS.writeDataPoint({ indexes: [new URL(request.url).search], blobs: ['b'], doubles: [2] });
      return new Response('written');
    } }`;
    await deploy(pay, cluster.url, {
      slug: 'points',
      code,
      bindings: { analytics: { VISITS: { dataset: 'visits' } } },
    });
    const query = 'SELECT index1, sum(double1) AS total, count() AS n FROM visits GROUP BY index1 ORDER BY index1';
    const asked = async (host: TestHost) => {
      const ask = signInFetch(
        cluster.network,
        0,
        cluster.via(() => host),
      );
      const answer = await ask(`${cluster.url}/_admin/points/data/VISITS`, jsonPost({ query }));
      return [answer.status, ((await answer.json()) as { data: unknown }).data];
    };
    for (let at = 0; at < 5; at++)
      await Promise.all([a, b].map((host, index) => fetch(`${host.url}/points/?${index}`)));
    const all = ['?0', '?1'].map((index1) => ({ index1, total: 10, n: 5 }));
    for (const host of [a, b]) await expect.poll(() => asked(host)).toEqual([200, all]);
    // A preview has none of the objects, and writes where the live version does.
    const answer = await prove(`${cluster.url}/_admin/code/points`, jsonPut({ code: `${code}//`, preview: true }));
    const { preview } = (await answer.json()) as { preview: { id: string } };
    for (const host of [a, b])
      await until(async () => (await fetch(`${host.url}/${preview.id}--points/?preview`)).status === 200);
    const seen = [...all, { index1: '?preview', total: 4, n: 2 }];
    for (const host of [a, b]) await expect.poll(() => asked(host)).toEqual([200, seen]);
    // The limit of one box, also at a node that has not the object.
    const endless = 'WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT max(n) FROM x';
    const ended = await prove(`${cluster.url}/_admin/points/data/VISITS`, jsonPost({ query: endless }));
    expect(ended.status).toBe(400);
    expect(await ended.text()).toContain('query exceeded the time limit of 10000 ms');
    await expect.poll(() => asked(b)).toEqual([200, seen]);
  });

  it('a database of D1 is one for all nodes, for previews, and for its owner’s commands', async () => {
    const bindings = { d1: { DB: {}, LOG: { id: 'log' } } };
    await deploy(pay, cluster.url, { slug: 'sql', code: SQL('live'), bindings });
    const run = async (binding: string, sql: string) => {
      const answer = await prove(`${cluster.url}/_admin/sql/data/${binding}`, jsonPost({ statements: [{ sql }] }));
      const text = await answer.text();
      expect(answer.status, text).toBe(200);
      return (JSON.parse(text) as { results: unknown[] }[])[0]?.results;
    };
    for (const binding of ['DB', 'LOG']) await run(binding, 'CREATE TABLE notes (id INTEGER PRIMARY KEY, note TEXT)');
    const notes = async (host: TestHost, query = '', slug = 'sql') =>
      JSON.parse(await call(host, `/${slug}/?${query}`));
    expect(await notes(a, 'note=a')).toEqual(['live', 'a']);
    expect(await notes(b, 'note=b')).toEqual(['live', 'a', 'b']);
    expect(await notes(b, 'note=logged&log')).toEqual(['live', 'logged']);
    const answer = await prove(`${cluster.url}/_admin/code/sql`, jsonPut({ code: SQL('preview'), preview: true }));
    const { preview } = (await answer.json()) as { preview: { id: string } };
    for (const host of [b, a]) {
      const seen = await until(() => notes(host, '', `${preview.id}--sql`).catch(() => undefined));
      expect(seen).toEqual(['preview', 'a', 'b']);
    }
    expect(await notes(a, 'note=c', `${preview.id}--sql`)).toEqual(['preview', 'a', 'b', 'c']);
    expect(await notes(b)).toEqual(['live', 'a', 'b', 'c']);
    expect(await run('DB', 'SELECT count(*) AS n FROM notes')).toEqual([{ n: 3 }]);
  });

  it('objects, queues and workflows of a preview work, are its own, and end with it; its databases are the live ones', async () => {
    const bindings = {
      d1: true,
      durableObjects: { BOOKS: { class: 'Book' } },
      queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0 } } },
      workflows: { FLOWS: { class: 'Flow', name: 'flow' } },
    };
    await deploy(pay, cluster.url, { slug: 'work', code: WORK('live'), bindings });
    const all = (name: string) => ['begun', 'flow', 'queue'].map((what) => `${what} by ${name}`);
    const read = async (host: TestHost, path: string): Promise<{ own: string[]; shared: string[] }> =>
      JSON.parse(await call(host, path));
    await call(a, '/work/begin');
    await until(async () => (await read(b, '/work/')).own.length === 3);
    const answer = await prove(`${cluster.url}/_admin/code/work`, jsonPut({ code: WORK('preview'), preview: true }));
    const { preview } = (await answer.json()) as { preview: { id: string } };
    const at = `/${preview.id}--work`;
    // Each node has one of its own.
    for (const host of [b, a]) {
      expect((await until(() => read(host, `${at}/`).catch(() => undefined))).own).toEqual([]);
      await call(host, `${at}/begin`);
      await until(async () => (await read(host, `${at}/`)).own.length === 3);
      expect((await read(host, `${at}/`)).own).toEqual(all('preview'));
    }
    const shared = ['live', 'preview', 'preview'];
    for (const host of [a, b]) expect(await read(host, '/work/')).toEqual({ own: all('live'), shared });
    expect((await read(a, `${at}/`)).shared).toEqual(shared);
    // One of the live instance, and one of the preview.
    const [work] = await rows(`SELECT tenant FROM deployments WHERE slug = 'work'`);
    const folder = path.join(a.data, 'tenants', String(work?.tenant), 'objectCopies');
    const instances = () => readdirSync(folder).flatMap((run) => readdirSync(path.join(folder, run))).length;
    expect(instances()).toBe(2);
    const ended = await prove(`${cluster.url}/_admin/code/work`, jsonPut({ vars: { A: 'b' } }));
    expect(ended.status, await ended.text()).toBe(200);
    await until(() => instances() === 1);
    expect(await read(b, '/work/')).toEqual({ own: all('live'), shared });
    for (const host of [a, b])
      await until(async () => (await read(host, `${at}/`).catch(() => undefined))?.own.length === 0);
  });

  it('an object is one, whichever node is called, and outlives the node that has it', async () => {
    const bindings = { durableObjects: { COUNTERS: { class: 'Counter' } } };
    await deploy(pay, cluster.url, { slug: 'counts', code: COUNTER, bindings });
    const clocks = { durableObjects: { CLOCKS: { class: 'Clock' } }, kv: true };
    await deploy(pay, cluster.url, { slug: 'rings', code: ALARM, bindings: clocks });
    const seen = [await count(a), await count(b), await count(a)];
    expect(seen).toEqual([1, 2, 3]);
    // Answers that came: each count once, whatever the kill does to those in flight.
    let asked = 0;
    let isRunning = true;
    const callers = Array.from({ length: CALLERS }, async () => {
      while (isRunning) {
        asked++;
        const got = await count(b).catch(() => undefined);
        if (got !== undefined) seen.push(got);
      }
    });
    await until(() => seen.length > 20);
    await call(a, '/rings/');
    await a.kill();
    const at = performance.now();
    const before = seen.length;
    await until(() => seen.length > before + CALLERS + 20);
    const tookMs = performance.now() - at;
    isRunning = false;
    await Promise.all(callers);
    const last = Number(await call(b, '/counts/'));
    console.log(`taken over after ${Math.round(tookMs)} ms; ${seen.length} of ${asked} answered`);
    expect(new Set(seen).size).toBe(seen.length);
    expect(last).toBeGreaterThanOrEqual(Math.max(...seen));
    expect(last).toBeLessThanOrEqual(asked + 3);
    expectTime('objects of a killed node', tookMs, TAKEN_OVER_MS);
    // Nobody calls it: B starts it for the alarm that A did not live to run.
    const rang = `SELECT 1 AS one FROM turnpike_stores.entries WHERE key = 'rang'`;
    await until(async () => (await rows(rang)).length > 0);
    a = await a.restart();
    cluster.nodes.push(a);
    expect(Number(await call(a, '/counts/'))).toBe(last);
  });

  it('a message that was sent at one is consumed once', async () => {
    const bindings = { kv: true, queues: { MAIL: { queue: 'mail', consumer: { maxBatchTimeout: 0 } } } };
    await deploy(pay, cluster.url, { slug: 'mails', code: QUEUE, bindings });
    for (let at = 0; at < MESSAGES; at++) await call(at % 2 ? b : a, '/mails/', { method: 'POST', body: `m${at}` });
    const got = await until(async () => {
      const names = JSON.parse(await call(b, '/mails/')) as string[];
      return names.length >= MESSAGES ? names : undefined;
    });
    expect(got.map((name) => name.slice(0, 'got-m0'.length)).sort()).toEqual(
      Array.from({ length: MESSAGES }, (_, at) => `got-m${at}`),
    );
  });

  it('a certificate of the nodes’ own authority counts only while the registry names it', async () => {
    const { authority, own } = await cluster.certify(STRANGER);
    await count(b);
    // An instance of B, by its lease in the bucket of objects.
    const [instance] = await rows(
      `SELECT o.tenant, convert_from(o.body, 'UTF8') AS lease FROM turnpike_stores.bucket_objects AS o
        JOIN deployments AS d ON d.tenant = o.tenant AND d.slug = 'counts' JOIN nodes AS n ON n.name = 'b'
        WHERE o.key LIKE 'v1/nodes/%.json' AND convert_from(o.body, 'UTF8') LIKE '%"127.' || n.number || '.%'
        ORDER BY o.at DESC LIMIT 1`,
    );
    const [, node, high, low] = /"127\.(\d+)\.(\d+)\.(\d+):/.exec(String(instance?.lease))?.map(Number) ?? [];
    const member = Number(high) * 256 + Number(low);
    const [known] = await rows(`SELECT address FROM nodes WHERE name = 'b'`);
    const links = new PeerLinks({
      authority,
      own,
      admits: () => true,
      addressOf: () => ({ host: '127.0.0.1', port: Number(String(known?.address).split(':')[1]) }),
      onConnection: (_purpose, stream) => stream.destroy(),
    });
    /** What the instance says to no request of its protocol; undefined: it was not reached. */
    const said = async () => {
      const stream = links.dial(Number(node), JSON.stringify({ tenant: instance?.tenant, member }));
      stream.write('hello\r\n\r\n');
      return await new Promise<string | undefined>((resolve) => {
        stream.once('data', (bytes) => resolve(String(bytes)));
        for (const event of ['error', 'close']) stream.once(event, () => resolve(undefined));
      }).finally(() => stream.destroy());
    };
    expect(await said()).toBeUndefined();
    await cluster.admit('stranger', STRANGER, '127.0.0.1:9', own.fingerprint);
    await until(said);
    expect((await b.operator('POST', '/cluster/stranger/remove')).status).toBe(200);
    await until(async () => (await said()) === undefined);
  });

  it('a node that is removed is called by no node any more, and its certificate is forgotten', async () => {
    const known = () => rows('SELECT name, number, address, certificate FROM nodes ORDER BY name');
    expect((await known()).flatMap(({ number }) => number ?? []).sort()).toEqual([1, 2]);
    expect((await b.operator('POST', '/cluster/a/remove')).status).toBe(200);
    expect((await known())[0]).toMatchObject({ name: 'a', number: null, address: null, certificate: null });
    await until(async () => !(await fetch(`${a.url}/healthz`).catch(() => undefined)));
    expect(await until(async () => await count(b).catch(() => undefined))).toBeGreaterThan(3);
  });
});
