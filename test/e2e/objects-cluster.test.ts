/**
 * Objects and queues of one slug on two nodes, each a process of its own with its sandboxes: counters through both, kill -9
 * of a node and of an instance, SIGTERM, a partition, a bucket that is away. CLUSTER_ROUNDS takes more kills.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectTime } from '../times.ts';
import { type ClusterNode, ClusterNodes, SLUG } from './support/cluster-nodes.ts';
import { postgresPrograms } from './support/databases.ts';
import type { NodeOrder } from './support/objects-node.ts';
import { until } from './support/until.ts';

const ROUNDS = Number(process.env.CLUSTER_ROUNDS ?? 1);
/** More than an instance may have connections to others. */
const WIDE = 300;
/** Within which another node has taken over, ms. */
const TAKEN_OVER_MS = 25_000;

const CODE = `
import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async add(value) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS added (value TEXT)');
    this.ctx.storage.sql.exec('INSERT INTO added VALUES (?)', value);
    return this.ctx.storage.sql.exec('SELECT count(*) AS n FROM added').one().n;
  }
  all() {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS added (value TEXT)');
    return this.ctx.storage.sql.exec('SELECT value FROM added').toArray().map(({ value }) => value);
  }
  async wake(ms) { await this.ctx.storage.setAlarm(Date.now() + ms); return 'set'; }
  async alarm() { await this.add('rang'); }
  async fill(bytes) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS filler (bytes BLOB)');
    this.ctx.storage.sql.exec('INSERT INTO filler VALUES (randomblob(?))', bytes);
    return this.ctx.storage.sql.exec('SELECT sum(length(bytes)) AS n FROM filler').one().n;
  }
}
export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    const counter = env.COUNTERS.get(env.COUNTERS.idFromName(searchParams.get('o') ?? 'one'));
    const value = searchParams.get('v');
    if (pathname === '/send') return Response.json(await env.JOBS.send(value));
    if (pathname === '/plain') return Response.json('plain');
    if (pathname === '/wake') return Response.json(await counter.wake(Number(value)));
    if (pathname === '/fill') return Response.json(await counter.fill(Number(value)));
    return Response.json(value === null ? await counter.all() : await counter.add(value));
  },
  async queue(batch, env) {
    for (const { body } of batch.messages) await env.COUNTERS.get(env.COUNTERS.idFromName('queued')).add(body);
  },
};`;

const DEPLOY: Extract<NodeOrder, { do: 'deploy' }> = {
  do: 'deploy',
  slug: SLUG,
  code: CODE,
  deployment: {
    tenant: 't1',
    bindings: {
      durableObjects: { COUNTERS: { class: 'Counter' } },
      queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0 } } },
    },
  },
};

describe.skipIf(!postgresPrograms())('objects of a cluster', () => {
  let cluster: ClusterNodes;

  /** What was acknowledged of objects, however often the node was asked. */
  const acknowledged = new Map<string, string[]>();
  let values = 0;
  async function add(node: ClusterNode, object: string, patienceMs?: number): Promise<boolean> {
    const value = String(++values);
    const answer = await node.ask<number>(`/?o=${object}&v=${value}`, patienceMs);
    if (answer !== undefined) acknowledged.set(object, [...(acknowledged.get(object) ?? []), value]);
    return answer !== undefined;
  }

  async function nothingLost(node: ClusterNode): Promise<void> {
    for (const [object, sent] of acknowledged) {
      // Its node may have them back a moment later.
      const kept = await until(() => node.ask<string[]>(`/?o=${object}`));
      expect(sent.filter((value) => !kept.includes(value))).toEqual([]);
      expect(new Set(kept).size).toBe(kept.length);
    }
  }

  /** Until an object that another node had is written here. @returns ms */
  async function takenOver(node: ClusterNode, object: string): Promise<number> {
    const since = performance.now();
    await until(() => add(node, object));
    return performance.now() - since;
  }

  let a: ClusterNode;
  let b: ClusterNode;

  beforeAll(async () => {
    cluster = await ClusterNodes.start(DEPLOY);
    a = await cluster.join();
    b = await cluster.join();
  });
  afterAll(() => cluster.stop());

  test('both nodes write the same objects, one after the other', async () => {
    const turns = Array.from({ length: 60 }, (_, i) => add(i % 2 ? a : b, `o${i % 3}`));
    expect((await Promise.all(turns)).filter((went) => !went)).toEqual([]);
    await nothingLost(a);
    await nothingLost(b);
    expect(await a.ask('/fill?o=o0&v=300000')).toBe(300_000);
    expect(await b.ask('/fill?o=o0&v=300000')).toBe(600_000);
  });

  test('after many writes at once an object of the other node is reached all the same', async () => {
    await add(b, 'there');
    const many = await Promise.all(Array.from({ length: WIDE }, (_, index) => a.ask(`/?o=wide${index}&v=1`)));
    expect(
      many.filter((answer) => answer === undefined),
      a.refusal,
    ).toEqual([]);
    // A connection to its node that is open already would say nothing.
    await b.order({ do: 'end', slug: SLUG });
    expect(await add(b, 'elsewhere'), b.refusal).toBe(true);
    expect(await add(a, 'elsewhere'), a.refusal).toBe(true);
  });

  test('messages that one node takes are delivered once', async () => {
    for (let i = 0; i < 5; i++) await (i % 2 ? a : b).ask(`/send?v=m${i}`);
    await expect
      .poll(async () => (await a.ask<string[]>('/?o=queued'))?.sort())
      .toEqual(['m0', 'm1', 'm2', 'm3', 'm4']);
  });

  test('an instance that is killed is replaced at once: its lease ends with it', async () => {
    await add(a, 'killed');
    const pid = Number(await a.order({ do: 'pid', slug: SLUG }));
    process.kill(pid, 'SIGKILL');
    const ms = await takenOver(b, 'killed');
    console.info(`killed instance: taken over after ${Math.round(ms)} ms`);
    expectTime('objects of a killed instance', ms, TAKEN_OVER_MS);
    await nothingLost(b);
    await nothingLost(a);
  });

  test('an update passes the objects on, and no call fails, on either node', async () => {
    let going = true;
    const callers = async (node: ClusterNode, count: number): Promise<string[]> => {
      const failed: string[] = [];
      const one = async (index: number) => {
        while (going) if (!(await add(node, `passed${index % 8}`))) failed.push(node.refusal);
      };
      await Promise.all(Array.from({ length: count }, (_, index) => one(index)));
      return failed;
    };
    await Promise.all(Array.from({ length: 8 }, (_, index) => add(index % 2 ? a : b, `passed${index}`)));
    const calls = [callers(a, 16), callers(b, 16)];
    const pids = () => Promise.all([a, b].map((node) => node.order({ do: 'pid', slug: SLUG })));
    for (let updates = 0; updates < 3; updates++) {
      const [before, done] = [await pids(), values];
      const version: NodeOrder = { ...DEPLOY, deployment: { ...DEPLOY.deployment, revision: `passed on ${updates}` } };
      await Promise.all(
        [a, b].map(async (node) => {
          await node.order(version);
          await node.order({ do: 'activate', slug: SLUG });
        }),
      );
      const after = await pids();
      expect(after.filter((pid) => before.includes(pid))).toEqual([]);
      await until(() => values > done + 200);
    }
    going = false;
    expect(await Promise.all(calls)).toEqual([[], []]);
    await nothingLost(b);
  });

  test('while the bucket is away, code without objects goes on, and objects come back with it', async () => {
    await Promise.all([add(a, 'away'), add(b, 'away')]);
    await Promise.all([a, b].map((node) => node.order({ do: 'bucket', away: true })));
    let failed = 0;
    // Longer than a member of the cluster lives without it.
    const until = performance.now() + 16_000;
    while (performance.now() < until)
      for (const node of [a, b]) if ((await node.ask('/plain', 5_000)) !== 'plain') failed++;
    expect(failed).toBe(0);
    expect(await add(a, 'away')).toBe(false);
    // One is being started without its objects while they come back.
    await a.order({ do: 'end', slug: SLUG });
    const starting = a.ask('/plain');
    await Promise.all([a, b].map((node) => node.order({ do: 'bucket', away: false })));
    expect(await starting).toBe('plain');
    const ms = await takenOver(a, 'away');
    console.info(`bucket away for 16 s: written again after ${Math.round(ms)} ms`);
    expectTime('objects after the bucket was away', ms, TAKEN_OVER_MS);
    await nothingLost(a);
    await nothingLost(b);
  });

  test('between two nodes that do not reach each other, an object stays where it is', async () => {
    await add(a, 'parted');
    await Promise.all([a, b].map((node) => node.order({ do: 'links', cut: true })));
    expect(await add(a, 'parted', 15_000)).toBe(true);
    const there = await add(b, 'parted', 15_000);
    await Promise.all([a, b].map((node) => node.order({ do: 'links', cut: false })));
    console.info(`a node that was cut off ${there ? 'wrote' : 'was refused'}`);
    expectTime('objects of a parted node', await takenOver(b, 'parted'), TAKEN_OVER_MS);
    await nothingLost(a);
    await nothingLost(b);
  });

  test('an alarm rings though no instance runs', async () => {
    expect(await a.ask('/wake?o=alarmed&v=9000')).toBe('set');
    await Promise.all([a, b].map((node) => node.order({ do: 'end', slug: SLUG })));
    await expect
      .poll(() => Promise.all([a, b].map((node) => node.order({ do: 'state', slug: SLUG }))))
      .toContain('warm');
    await expect.poll(() => b.ask<string[]>('/?o=alarmed')).toEqual(['rang']);
  });

  test('a node that is told to stop gives its objects to the other', async () => {
    await Promise.all(['s0', 's1', 's2'].map((object) => add(a, object)));
    const stopping = cluster.leave(a, 'stop');
    const ms = await takenOver(b, 's0');
    console.info(`stopped node: taken over after ${Math.round(ms)} ms`);
    expectTime('objects of a stopped node', ms, 10_000);
    await stopping;
    await nothingLost(b);
    a = b;
    b = await cluster.join();
  });

  test(`a node that is killed is taken over from, ${ROUNDS} times`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const objects = [0, 1, 2].map((i) => `k${round}-${i}`);
      let going = true;
      const writing = objects.map(async (object) => {
        while (going) await add(a, object, 5_000);
      });
      await expect.poll(() => acknowledged.get(objects[2] ?? '')?.length ?? 0).toBeGreaterThan(5);
      const killed = cluster.leave(a, 'kill');
      going = false;
      await Promise.all([killed, ...writing]);
      const ms = await takenOver(b, objects[0] ?? '');
      const written = objects.reduce((sum, object) => sum + (acknowledged.get(object)?.length ?? 0), 0);
      console.info(`killed node: taken over after ${Math.round(ms)} ms; ${written} writes were acknowledged`);
      expectTime('objects of a killed node', ms, TAKEN_OVER_MS);
      await nothingLost(b);
      a = b;
      b = await cluster.join();
    }
  });
});
