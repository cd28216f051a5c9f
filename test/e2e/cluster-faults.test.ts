/**
 * Two whole nodes in network namespaces, a PostgreSQL with a synchronous standby, and an S3: one node is cut off from each
 * of them in turn, the standby takes over, the S3 lies, and somebody has the key of a node. `npm run soak -- --cluster` has
 * the faults for longer.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { expectTime } from '../times.ts';
import { account, deploy, type Fetch, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import type { TestHost } from './support/host.ts';
import { x402Balance } from './support/local-network.ts';
import { namespacesAllowed, type Place } from './support/namespaces.ts';
import type { Theft } from './support/stolen-node.ts';
import { until } from './support/until.ts';

const HANDLER = `import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async fetch() {
    const count = ((await this.ctx.storage.get('count')) ?? 0) + 1;
    await this.ctx.storage.put('count', count);
    return new Response(String(count));
  }
}
export default {
  async fetch(request, env) {
    const [, slug, kind, key] = ('/x' + new URL(request.url).pathname).split('/');
    if (kind === 'count') return env.COUNTERS.getByName('one').fetch(request);
    const store = { kv: env.STORE, r2: env.BUCKET }[kind];
    if (!store) return new Response('here');
    if (request.method === 'PUT') await store.put(key, await request.text());
    const found = await store.get(key);
    return new Response(found === null ? 'none' : typeof found === 'string' ? found : await found.text());
  },
}`;
const PRICE = 10_000n;
/** A lease of a node lasts 12 s, and edges are told each second; of an object's owner 15 s. */
const REFUSED_MS = 14_000;
const TAKEN_OVER_MS = 25_000;
const ELSEWHERE_MS = 10_000;
const CALL_MS = 5_000;
const FLOODED_CALL_MS = 120_000;
/** What a node may take more while it is called by many, MB. */
const FLOODED_MB = 150;
const LARGE = 'what is in the bucket by itself '.repeat(10_000);
const STOLEN_NODE = fileURLToPath(new URL('support/stolen-node.ts', import.meta.url));
/** Node numbers of the test begin with 1. */
const STOLEN = 200;

describe.skipIf(!clusterPrograms() || !namespacesAllowed())(
  'two nodes, each in a network namespace (needs root)',
  () => {
    let cluster: Cluster;
    let a: TestHost;
    let b: TestHost;
    let payAt: (host: TestHost, payer?: number) => Fetch;

    beforeAll(async () => {
      cluster = await Cluster.startApart();
      [a, b] = await Promise.all([cluster.node('a'), cluster.node('b')]);
      payAt = (host, payer = 0) =>
        x402Fetch(
          cluster.network,
          payer,
          cluster.via(() => host),
        );
      await deploy(payAt(a), cluster.url, {
        ...{ slug: 'objects', code: HANDLER, bindings: { durableObjects: { COUNTERS: { class: 'Counter' } } } },
      });
      const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.01', description: 'one' }];
      await deploy(payAt(a), cluster.url, {
        slug: 'plain',
        code: HANDLER,
        bindings: { kv: true, r2: true },
        paidRoutes,
      });
    });
    afterAll(() => cluster?.stop());

    let callMs = CALL_MS;
    /** What answers other than 200 said, the last of each node. */
    const failures = new Map<string, string>();
    /** What a node answers; undefined: not with 200. */
    async function answer(host: TestHost, path: string, init: RequestInit = {}): Promise<string | undefined> {
      try {
        const answered = await fetch(`${host.url}${path}`, { signal: AbortSignal.timeout(callMs), ...init });
        const text = await answered.text();
        if (answered.status === 200) return text;
        failures.set(host.url, `${answered.status} ${text}`);
      } catch (error) {
        failures.set(host.url, String(error));
      }
      return undefined;
    }
    const counts: number[] = [];
    async function count(host: TestHost): Promise<number | undefined> {
      const said = await answer(host, '/objects/count');
      if (said !== undefined) counts.push(Number(said));
      return said === undefined ? undefined : Number(said);
    }
    const placeOf = (name: string) => cluster.apart.nodes.get(name)?.place as Place;
    const put = (host: TestHost, path: string, body: string) => answer(host, path, { method: 'PUT', body });
    async function took(what: string, done: () => Promise<unknown>): Promise<number> {
      const since = performance.now();
      await until(
        async () => (await done()) !== undefined,
        () => `${what}: never; ${JSON.stringify([...failures])}`,
      );
      const ms = performance.now() - since;
      console.info(`${what}: ${(ms / 1_000).toFixed(1)} s`);
      return ms;
    }

    it('cut off from PostgreSQL a node serves nothing, the other takes over all it had, and both serve when it is back', async () => {
      const { network, postgres, standby } = cluster.apart;
      // Both have instances.
      expect([await count(a), await answer(a, '/plain/'), await answer(b, '/plain/')]).toEqual([1, 'here', 'here']);
      for (const server of [postgres, standby]) network.cut(placeOf('a'), server);
      const [elsewhere, objects, refused] = await Promise.all([
        took('the other serves code without objects', () => answer(b, '/plain/')),
        took('the other has the objects', () => count(b)),
        took('the node that is cut off refuses', async () => ((await answer(a, '/plain/')) ? undefined : true)),
      ]);
      expectTime('code without objects, elsewhere', elsewhere, ELSEWHERE_MS);
      expectTime('objects, elsewhere', objects, TAKEN_OVER_MS);
      expectTime('the node that is cut off refuses', refused, REFUSED_MS);
      for (const server of [postgres, standby]) network.heal(placeOf('a'), server);
      await took('back, it serves', () => answer(a, '/plain/'));
      await took('back, it has the objects', () => count(a));
      expect(new Set(counts).size).toBe(counts.length);
      expect(Math.max(...counts)).toBeGreaterThanOrEqual(counts.length);
    });

    it('PostgreSQL dies and its standby takes over: what was acknowledged is there, and paid once', async () => {
      const kept: string[] = [];
      let sold = 0;
      let isRunning = true;
      const payer = account(cluster.network, 1).address;
      const before = await x402Balance(cluster.chain, payer);
      const hosts = [a, b];
      const load = hosts.flatMap((host, lane) => [
        (async () => {
          for (let at = 0; isRunning; at++)
            if ((await put(host, `/plain/kv/${lane}-${at}`, `${at}`)) === `${at}`) kept.push(`${lane}-${at}`);
        })(),
        (async () => {
          while (isRunning) {
            const bought = await payAt(host, 1)(`${cluster.url}/plain/paid`).catch(() => undefined);
            if ((await bought?.text()) === 'here' && bought?.status === 200) sold++;
          }
        })(),
      ]);
      await until(() => kept.length > 20 && sold > 2);
      await cluster.failover();
      const [keptBefore, soldBefore] = [kept.length, sold];
      await took('written again after the promotion', async () => (kept.length > keptBefore + 4 ? true : undefined));
      await took('sold again', async () => (sold > soldBefore + 1 ? true : undefined));
      isRunning = false;
      await Promise.all(load);
      for (const key of kept) expect(await answer(b, `/plain/kv/${key}`)).toBe(key.split('-')[1]);
      const paid = before - (await x402Balance(cluster.chain, payer));
      const client = postgresClient(cluster.database);
      const { rows } = await client.execute(
        `SELECT (SELECT coalesce(sum(charged), 0) FROM payments WHERE kind = 'route' AND state = 'answered') AS sold,
        (SELECT coalesce(sum(amount), 0) FROM payment_outgoing WHERE kind = 'refund' AND state <> 'sent') AS refunds,
        (SELECT count(*) FROM payments WHERE state IN ('verified', 'working', 'settling', 'settled')) AS open`,
      );
      await client.end();
      const [books] = rows;
      expect(books?.open).toBe(0);
      expect(BigInt(Number(books?.sold) + Number(books?.refunds))).toBe(paid);
      expect(BigInt(Number(books?.sold))).toBeGreaterThanOrEqual(BigInt(sold) * PRICE);
    });

    it('cut off from the S3 and from the other node, a node keeps what needs neither, and has all of it when it is back', async () => {
      const { network, s3 } = cluster.apart;
      await count(a);
      network.cut(placeOf('a'), s3);
      network.cut(placeOf('a'), placeOf('b'));
      expect(await put(a, '/plain/kv/without', 's3')).toBe('s3');
      expect(await answer(b, '/plain/kv/without')).toBe('s3');
      expect(await put(b, '/plain/r2/there', 'kept')).toBe('kept');
      const served = await Promise.all([answer(a, '/plain/r2/there'), count(a), count(b)]);
      expect(served[0]).toBeUndefined();
      // The owner's node serves, the other one cannot call it.
      expect(served.slice(1).filter((one) => one !== undefined)).toHaveLength(1);
      network.heal(placeOf('a'), s3);
      network.heal(placeOf('a'), placeOf('b'));
      await took('objects of R2 are back', () => answer(a, '/plain/r2/there'));
      await took('both nodes have the object', async () => (await count(a)) && (await count(b)));
      expect(new Set(counts).size).toBe(counts.length);
    });

    it('where the S3 changes what it holds, nothing wrong is answered, and all of it when it is as it was', async () => {
      const { door } = cluster.apart;
      const paths = ['/plain/kv/large', '/plain/r2/large'];
      for (const path of paths) expect(await put(a, path, LARGE)).toBe(LARGE);
      door.lies = true;
      const lied = await Promise.all([a, b].flatMap((host) => paths.map((path) => answer(host, path))));
      for (const text of lied) expect([undefined, LARGE].includes(text)).toBe(true);
      expect(lied).toContain(undefined);
      for (const host of [a, b]) {
        expect(await answer(host, '/plain/')).toBe('here');
        await count(host);
      }
      expect(door.lied).toBeGreaterThan(0);
      door.lies = false;
      for (const host of [a, b]) {
        for (const path of paths)
          await took(`${path} is back`, async () => (await answer(host, path)) === LARGE || undefined);
        await took('the object is back', () => count(host));
      }
      expect(new Set(counts).size).toBe(counts.length);
    });

    it('who has the key of a node keeps the others from nothing, and is cut off when that node is removed', async () => {
      const before = [a, b].map(memoryOf);
      const thief = await steal();
      // How soon is for the machine to say.
      callMs = FLOODED_CALL_MS;
      try {
        await until(() => thief.held() > 60);
        for (let turn = 0; turn < 20; turn++)
          for (const host of [a, b]) {
            expect(await answer(host, '/plain/'), JSON.stringify([...failures])).toBe('here');
            expect(await put(host, '/plain/kv/flooded', `${turn}`)).toBe(`${turn}`);
            expect(await count(host), JSON.stringify([...failures])).toBeDefined();
          }
        const more = [a, b].map((host, index) => memoryOf(host) - (before[index] ?? 0));
        console.info(`${thief.held()} connections held; the nodes took ${more.map(Math.round)} MB more`);
        for (const mb of more) expect(mb).toBeLessThan(FLOODED_MB);
        expect((await b.operator('POST', '/cluster/stolen/remove')).status).toBe(200);
        // A connection that waits for its refusal counts as held, so no new ones are made.
        thief.comeNoMore();
        await until(() => thief.held() === 0);
      } finally {
        await thief.end();
      }
      expect([await answer(a, '/plain/'), await answer(b, '/plain/')]).toEqual(['here', 'here']);
    });

    /** Of the supervisor, MB. */
    function memoryOf({ pid }: TestHost): number {
      return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024;
    }

    /** One more node is known; whoever has its key calls the others from a namespace of its own. */
    async function steal(): Promise<{ held(): number; comeNoMore(): void; end(): Promise<void> }> {
      const { authority, own } = await cluster.certify(STOLEN);
      const place = await cluster.apart.network.place();
      const client = postgresClient(cluster.database);
      const { rows: nodes } = await client.execute('SELECT number, address FROM nodes WHERE number IS NOT NULL');
      const { rows } = await client.execute(`SELECT tenant FROM deployments WHERE slug = 'objects'`);
      await client.end();
      await cluster.admit('stolen', STOLEN, `${place.address}:9`, own.fingerprint);
      const tenant = String(rows[0]?.tenant);
      const theft: Theft = {
        authority,
        own,
        targets: nodes.map(({ number, address }) => {
          const [host = '', port] = String(address).split(':');
          return { node: Number(number), host, port: Number(port) };
        }),
        purposes: [
          JSON.stringify({ question: 'log as it comes', asked: { tenant, after: 0, since: 0 } }),
          JSON.stringify({ question: 'log', asked: { tenant, limit: 5_000, after: 0, since: 0 } }),
          JSON.stringify({ question: 'history', asked: {} }),
          ...[1, 2, 3].map((member) => JSON.stringify({ tenant, member })),
          'nothing that anybody knows',
        ],
        each: 300,
      };
      const folder = mkdtempSync(path.join(tmpdir(), 'tp-stolen-'));
      const file = path.join(folder, 'theft.json');
      writeFileSync(file, JSON.stringify(theft));
      const [program = '', ...within] = place.within;
      const child: ChildProcess = spawn(program, [...within, process.execPath, STOLEN_NODE, file], {
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      let held = 0;
      if (child.stdout) createInterface(child.stdout).on('line', (line) => (held = Number(line)));
      return {
        held: () => held,
        comeNoMore: () => child.stdin?.write('no more'),
        async end() {
          const ended = once(child, 'close');
          child.stdin?.end();
          await ended;
          rmSync(folder, { recursive: true, force: true });
        },
      };
    }
  },
);
