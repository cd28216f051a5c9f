/**
 * D1 on two nodes, each a process of its own with its sandboxes: the suites through both, a bank whose node is killed, the
 * quota, and a bucket that is away. CLUSTER_ROUNDS takes more kills.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectTime } from '../times.ts';
import { bundleHandler } from './d1-rig.ts';
import { type ClusterNode, ClusterNodes, SLUG } from './support/cluster-nodes.ts';
import { d1CaseNames } from './support/d1-cases.ts';
import { postgresPrograms } from './support/databases.ts';
import type { NodeOrder } from './support/objects-node.ts';
import { until } from './support/until.ts';

const ROUNDS = Number(process.env.CLUSTER_ROUNDS ?? 1);
const QUOTA_BYTES = 20_000_000;
const ACCOUNTS = 5;
const BALANCE = 1_000;
/** Of both nodes together. */
const CALLERS = 4;
/** Within which another node has taken over. ms */
const TAKEN_OVER_MS = 25_000;

interface Answer<Row = Record<string, unknown>> {
  results: Row[];
  meta: Record<string, unknown>;
}

describe.skipIf(!postgresPrograms())('D1 of a cluster', () => {
  let deploy: NodeOrder;
  let cluster: ClusterNodes;
  let a: ClusterNode;
  let b: ClusterNode;

  beforeAll(async () => {
    deploy = {
      do: 'deploy',
      slug: SLUG,
      code: await bundleHandler(),
      deployment: { tenant: 't1', bindings: { d1: true }, limits: { 'storage.sqlBytes': QUOTA_BYTES } },
    };
    cluster = await ClusterNodes.start(deploy);
    [a, b] = [await cluster.join(), await cluster.join()];
  });
  afterAll(() => cluster?.stop());

  /** @throws Error with what the handler saw */
  async function post<T>(node: ClusterNode, area: string, body: unknown): Promise<T> {
    const answer = await node.fetch(`/${area}`, {
      method: 'POST',
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(40_000),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    return JSON.parse(text) as T;
  }
  const query = <Row = Record<string, unknown>>(node: ClusterNode, sql: string, params: unknown[] = []) =>
    post<Answer<Row>>(node, 'sql', { sql, params });

  test('every case holds through either node, while the other serves the same database', async () => {
    await query(a, 'CREATE TABLE beside (id INTEGER PRIMARY KEY)');
    let isRunning = true;
    let kept = 0;
    const beside = (async () => {
      for (; isRunning; kept++) await query(b, 'INSERT INTO beside VALUES (?)', [kept]);
    })();
    const failed: string[] = [];
    for (const [index, name] of d1CaseNames('cluster').entries()) {
      const answer = await (await (index % 2 ? a : b).fetch(`/case/${encodeURIComponent(name)}`)).text();
      if (answer !== 'ok') failed.push(`${name}: ${answer}`);
    }
    isRunning = false;
    await beside;
    expect(failed).toEqual([]);
    expect(kept).toBeGreaterThan(0);
    expect((await query(a, 'SELECT count(*) AS n FROM beside')).results).toEqual([{ n: kept }]);
  });

  test('over its quota a database is read and emptied, and refuses to grow with the error of one box', async () => {
    await query(a, 'CREATE TABLE filler (b)');
    const fill = (node: ClusterNode) => query(node, 'INSERT INTO filler VALUES (zeroblob(4000000))');
    await expect(
      (async () => {
        for (let at = 0; at < 6; at++) await fill(at % 2 ? a : b);
      })(),
    ).rejects.toThrow('D1_ERROR: Exceeded maximum DB size: SQLITE_FULL');
    const { results, meta } = await query(b, 'SELECT count(*) AS n FROM filler');
    expect(results).toEqual([{ n: 4 }]);
    expect(meta.size_after).toBeLessThan(QUOTA_BYTES);
    await query(a, 'DELETE FROM filler');
    await fill(b);
    await query(a, 'DROP TABLE filler');
  });

  test('while new versions take over, no query fails, and what is written is written once', async () => {
    await query(a, 'CREATE TABLE updated (id INTEGER PRIMARY KEY)');
    const kept: number[] = [];
    let asked = 0;
    let isRunning = true;
    const callers = [a, b].flatMap((node) => [
      (async () => {
        while (isRunning) await query(node, 'SELECT count(*) FROM updated');
      })(),
      (async () => {
        while (isRunning) {
          const id = asked++;
          await query(node, 'INSERT INTO updated VALUES (?)', [id]);
          kept.push(id);
        }
      })(),
    ]);
    for (let updates = 0; updates < 2; updates++) {
      const before = kept.length;
      await Promise.all(
        [a, b].map(async (node) => {
          await node.order(deploy);
          await node.order({ do: 'activate', slug: SLUG });
        }),
      );
      await expect.poll(() => kept.length).toBeGreaterThan(before + 2);
    }
    isRunning = false;
    await Promise.all(callers);
    const { results } = await query<{ id: number }>(a, 'SELECT id FROM updated');
    const there = new Set(results.map(({ id }) => id));
    expect(kept.filter((id) => !there.has(id))).toEqual([]);
  });

  test(`a bank: no acknowledged transfer is lost, and the sum stays, though the node with the database is killed, ${ROUNDS} times`, async () => {
    // The database is at A from then on: B has let go of it.
    await b.order({ do: 'end', slug: SLUG });
    await post(a, 'batch', [
      'CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))',
      'CREATE TABLE transfers (id INTEGER PRIMARY KEY, payer INTEGER, payee INTEGER, amount INTEGER)',
      ...Array.from({ length: ACCOUNTS }, (_, id) => `INSERT INTO accounts VALUES (${id}, ${BALANCE})`),
    ]);
    const acknowledged: number[] = [];
    const refused: number[] = [];
    let ids = 0;
    async function transfer(node: ClusterNode): Promise<boolean> {
      const id = ++ids;
      const payer = id % ACCOUNTS;
      const payee = (id * 3 + 1) % ACCOUNTS;
      const amount = 1 + ((id * 137) % 900);
      try {
        await post(node, 'batch', [
          `INSERT INTO transfers VALUES (${id}, ${payer}, ${payee}, ${amount})`,
          `UPDATE accounts SET balance = balance - ${amount} WHERE id = ${payer}`,
          `UPDATE accounts SET balance = balance + ${amount} WHERE id = ${payee}`,
        ]);
        acknowledged.push(id);
        return true;
      } catch (error) {
        if (String(error).includes('CHECK constraint failed')) refused.push(id);
        return false;
      }
    }
    async function nothingIsOff(): Promise<number> {
      const { results: kept } = await query<Record<'id' | 'payer' | 'payee' | 'amount', number>>(
        b,
        'SELECT * FROM transfers ORDER BY id',
      );
      const { results: accounts } = await query<{ balance: number }>(b, 'SELECT balance FROM accounts ORDER BY id');
      const known = new Set(kept.map(({ id }) => id));
      expect(acknowledged.filter((id) => !known.has(id))).toEqual([]);
      expect(refused.filter((id) => known.has(id))).toEqual([]);
      const balances = Array.from({ length: ACCOUNTS }, () => BALANCE);
      for (const { payer, payee, amount } of kept) {
        balances[payer] = (balances[payer] ?? 0) - amount;
        balances[payee] = (balances[payee] ?? 0) + amount;
      }
      expect(accounts.map(({ balance }) => balance)).toEqual(balances);
      expect(balances.reduce((sum, balance) => sum + balance)).toBe(ACCOUNTS * BALANCE);
      return kept.length;
    }
    for (let round = 0; round < ROUNDS; round++) {
      let isRunning = true;
      const callers = Array.from({ length: CALLERS }, async (_, at) => {
        while (isRunning) await transfer(at % 2 ? a : b);
      });
      const before = acknowledged.length;
      await expect.poll(() => acknowledged.length).toBeGreaterThan(before + 40);
      await cluster.leave(a, 'kill');
      const killedAt = performance.now();
      isRunning = false;
      await Promise.all(callers);
      await until(() => transfer(b));
      const tookMs = performance.now() - killedAt;
      const kept = await nothingIsOff();
      console.info(
        `taken over after ${Math.round(tookMs)} ms; of ${ids} transfers ${acknowledged.length} were acknowledged, ${refused.length} refused, ${kept} are kept`,
      );
      expectTime('a database of a killed node', tookMs, TAKEN_OVER_MS);
      a = b;
      b = await cluster.join();
    }
  });

  test('a node that was stopped with all its processes goes on after the other has taken over: it shows nothing old, and loses nothing that it acknowledges', async () => {
    await query(a, 'CREATE TABLE stopped (id INTEGER PRIMARY KEY, by TEXT)');
    const add = (node: ClusterNode, by: string) => query(node, 'INSERT INTO stopped (by) VALUES (?)', [by]);
    // Whichever node has the database by now, B has let go of it.
    await b.order({ do: 'end', slug: SLUG });
    await add(a, 'a');
    const { pids } = a;
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    const waiting = Array.from({ length: CALLERS }, (_, at) =>
      Promise.all([
        query<{ n: number }>(a, 'SELECT count(*) AS n FROM stopped').then(
          ({ results }) => results[0]?.n,
          () => undefined,
        ),
        add(a, `late ${at}`).then(
          () => `late ${at}`,
          () => undefined,
        ),
      ]),
    );
    try {
      await expect
        .poll(
          () =>
            add(b, 'b').then(
              () => true,
              () => false,
            ),
          { interval: 200 },
        )
        .toBe(true);
    } finally {
      // The one with the database first: nobody has told it anything.
      for (const pid of pids.reverse()) process.kill(pid, 'SIGCONT');
    }
    const answers = await Promise.all(waiting);
    const { results } = await query<{ by: string }>(b, 'SELECT by FROM stopped');
    const there = results.map(({ by }) => by);
    for (const [seen, late] of answers) {
      if (seen !== undefined) expect(seen).toBeGreaterThan(1);
      if (late !== undefined) expect(there).toContain(late);
    }
    await expect
      .poll(() =>
        add(a, 'a again').then(
          () => true,
          () => false,
        ),
      )
      .toBe(true);
  });

  test('while the bucket is away, queries fail with an error of D1, all else is served, and nothing is lost', async () => {
    await query(a, 'CREATE TABLE IF NOT EXISTS away (id INTEGER PRIMARY KEY)');
    await query(b, 'INSERT INTO away VALUES (1)');
    await Promise.all([a, b].map((node) => node.order({ do: 'bucket', away: true })));
    await expect.poll(() => query(a, 'SELECT 1').catch(String)).toMatch(/D1_ERROR: D1 DB is unreachable/);
    for (const node of [a, b]) expect(await (await node.fetch('/other')).text()).toBe('hello');
    await Promise.all([a, b].map((node) => node.order({ do: 'bucket', away: false })));
    await expect
      .poll(() => query(b, 'SELECT id FROM away').then(({ results }) => results, String))
      .toEqual([{ id: 1 }]);
  });

  test('an instance that nobody asks ends, though it shows every second that it lives', async () => {
    const idle = await cluster.join({ idleMs: 2_000 });
    await query(idle, 'SELECT 1');
    const state = () => idle.order({ do: 'state', slug: SLUG });
    expect(await state()).toBe('warm');
    await expect.poll(state).toBe('cold');
    expect((await query(a, 'SELECT 1 AS one')).results).toEqual([{ one: 1 }]);
  });
});
