/** What a host of several nodes costs beside one box, on one machine: its cores are shared by all nodes, the database and wrk. */
import { postgresClient } from '../../../host/registry/postgres/client.ts';
import { deploy, x402Fetch } from '../../e2e/support/callers.ts';
import { Cluster, clusterPrograms } from '../../e2e/support/cluster.ts';
import type { TestHost } from '../../e2e/support/host.ts';
import { type LoadResult, load, median } from '../load.ts';
import { commandOf, cpuSeconds, processTree } from '../processes.ts';
import { type Figure, type RowResult, round } from '../table.ts';

const ROUNDS = 3;
const SECONDS = 3;
const WARM_UP_SECONDS = 3;
const PAID_CALLS = 40;
const NAMES = ['a', 'b', 'c'];
const KINDS: Record<string, string> = {
  stateless: '',
  'KV get': 'get',
  'KV put': 'put',
  'D1 select': 'select',
  'D1 insert': 'insert',
  'object write': 'write',
};
const POSTGRES = /^\S*\/bin\/postgres /;

const WORKER = `import { DurableObject } from 'cloudflare:workers';
const value = 'x'.repeat(1024);
let n = 0;
export class Kept extends DurableObject {
  write() { this.ctx.storage.kv.put('value', value + n++); }
}
export default {
  async fetch(request, env) {
    switch (new URL(request.url).pathname) {
      case '/get': return new Response(await env.STORE.get('hot'));
      case '/put': await env.STORE.put('k' + (n++ % 1000), value); return new Response('ok');
      case '/seed':
        await env.STORE.put('hot', value);
        await env.DB.exec('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, value TEXT)');
        await env.DB.prepare('INSERT OR REPLACE INTO t VALUES (1, ?)').bind(value).run();
        return new Response('ok');
      case '/select': return Response.json(await env.DB.prepare('SELECT value FROM t WHERE id = 1').first());
      case '/insert': await env.DB.prepare('INSERT INTO t (value) VALUES (?)').bind(value).run(); return new Response('ok');
      case '/write': await env.OBJECTS.getByName('o' + (n++ % 16)).write(); return new Response('ok');
      default: return new Response('hello');
    }
  },
};`;

export function clusterRows(): { id: string; run(): Promise<RowResult>; alone: boolean }[] {
  return [{ id: 'cluster', run: measured, alone: true }];
}

async function measured(): Promise<RowResult> {
  const row = {
    id: 'cluster',
    title:
      'One box and several nodes on the same cores (PostgreSQL without sync to its disk; 32 connections, paid calls one at a time)',
    targets: [],
  };
  if (!clusterPrograms()) return { ...row, figures: [], skipped: ['PostgreSQL or radosgw is not installed'] };
  const cluster = await Cluster.start();
  try {
    const box = await cluster.box('box');
    const figures = [await paidCalls('one box', cluster, box)];
    // Box and nodes have the same wallets: they pay one after the other.
    const node = await cluster.node('a');
    figures.push(await paidCalls('1 node', cluster, node));
    const hosts = { 'one box': [box], '1 node': [node] };
    for (const [kind, path] of Object.entries(KINDS)) figures.push(...(await inTurn(kind, path, cluster, hosts)));
    const nodes: Record<string, TestHost[]> = { 'one box': [box], '1 node': [node] };
    for (const name of NAMES.slice(1)) {
      const before = Object.values(nodes).at(-1) ?? [];
      nodes[`${before.length + 1} nodes`] = [...before, await cluster.node(name)];
    }
    figures.push(...(await inTurn('stateless, all', '', cluster, nodes)));
    return { ...row, figures, skipped: [] };
  } finally {
    await cluster.stop();
  }
}

async function paidCalls(what: string, cluster: Cluster, host: TestHost): Promise<Figure> {
  const pay = (payer: number) =>
    x402Fetch(
      cluster.network,
      payer,
      cluster.via(() => host),
    );
  await deploy(pay(0), cluster.url, {
    ...{
      slug: 'costs',
      code: WORKER,
      paidRoutes: [{ method: 'GET', path: '/paid', price: '0.01', description: 'one' }],
    },
    bindings: { kv: true, d1: true, durableObjects: { OBJECTS: { class: 'Kept' } } },
  });
  const seeded = await fetch(`${host.url}/costs/seed`);
  if (!seeded.ok) throw new Error(await seeded.text());
  const buyOne = pay(1);
  const buying = () => buy(buyOne, `${cluster.url}/costs/paid`, host);
  await buying();
  return figure(`paid call, ${what}`, [await withDatabase(cluster, buying)]);
}

/** Round by round, so that a machine whose mood changes does so for all. */
async function inTurn(
  kind: string,
  path: string,
  cluster: Cluster,
  subjects: Record<string, TestHost[]>,
): Promise<Figure[]> {
  for (const hosts of Object.values(subjects)) await loadAll(hosts, path, WARM_UP_SECONDS);
  const runs = new Map(Object.keys(subjects).map((what): [string, Run[]] => [what, []]));
  for (let round = 0; round < ROUNDS; round++)
    for (const [what, hosts] of Object.entries(subjects))
      runs.get(what)?.push(await withDatabase(cluster, () => loadAll(hosts, path, SECONDS)));
  const [first = []] = runs.values();
  return [...runs].map(([what, ofIt]) => figure(`${kind}, ${what}`, ofIt, ofIt === first ? undefined : first));
}

async function loadAll(hosts: TestHost[], path: string, seconds: number): Promise<LoadResult> {
  const results = await Promise.all(
    hosts.map((host) => load({ url: `${host.url}/costs/${path}`, seconds }, [host.pid])),
  );
  const total = (of: (result: LoadResult) => number) => results.reduce((sum, result) => sum + of(result), 0);
  const perSecond = total((result) => result.perSecond);
  return {
    perSecond,
    p50Ms: Math.max(...results.map(({ p50Ms }) => p50Ms)),
    p99Ms: Math.max(...results.map(({ p99Ms }) => p99Ms)),
    cpuMicros: total((result) => result.cpuMicros * result.perSecond) / perSecond,
    bytesPerSecond: total(({ bytesPerSecond }) => bytesPerSecond),
    errors: total(({ errors }) => errors),
  };
}

async function buy(pay: ReturnType<typeof x402Fetch>, url: string, host: TestHost): Promise<LoadResult> {
  const times: number[] = [];
  let errors = 0;
  const [from, cpu] = [performance.now(), cpuSeconds([host.pid])];
  for (let call = 0; call < PAID_CALLS; call++) {
    const since = performance.now();
    const answer = await pay(url);
    await answer.text();
    if (answer.status !== 200) errors++;
    times.push(performance.now() - since);
  }
  return {
    perSecond: PAID_CALLS / ((performance.now() - from) / 1_000),
    p50Ms: median(times),
    p99Ms: Math.max(...times),
    cpuMicros: ((cpuSeconds([host.pid]) - cpu) * 1e6) / PAID_CALLS,
    bytesPerSecond: 0,
    errors,
  };
}

interface Run extends LoadResult {
  postgresMicros: number;
  commits: number;
}

/** A load, with what the database did for each request of it. */
async function withDatabase(cluster: Cluster, run: () => Promise<LoadResult>): Promise<Run> {
  const before = await database(cluster);
  const from = performance.now();
  const result = await run();
  const requests = (result.perSecond * (performance.now() - from)) / 1_000;
  const after = await database(cluster);
  return {
    ...result,
    postgresMicros: ((after.cpu - before.cpu) * 1e6) / requests,
    commits: (after.commits - before.commits) / requests,
  };
}

/** @param box what it is compared with, round by round */
function figure(subject: string, runs: Run[], box?: Run[]): Figure {
  const of = (key: keyof Run) => round(median(runs.map((run) => run[key])));
  const ratios = box?.map(({ cpuMicros }, index) => (runs[index]?.cpuMicros ?? Number.NaN) / cpuMicros);
  return {
    subject,
    cells: {
      'req/s': of('perSecond'),
      'p50 ms': of('p50Ms'),
      'p99 ms': of('p99Ms'),
      'CPU µs': of('cpuMicros'),
      ...(ratios ? { '÷ box': `${round(median(ratios))} (${ratios.map(round).join(', ')})` } : {}),
      'CPU µs, PostgreSQL': of('postgresMicros'),
      'transactions a request': of('commits'),
      errors: String(runs.reduce((sum, { errors }) => sum + errors, 0)),
    },
  };
}

async function database(cluster: Cluster): Promise<{ commits: number; cpu: number }> {
  const client = postgresClient(cluster.database);
  try {
    const { rows } = await client.execute(
      'SELECT xact_commit AS commits FROM pg_stat_database WHERE datname = current_database()',
    );
    return { commits: Number(rows[0]?.commits), cpu: postgresSeconds() };
  } finally {
    await client.end();
  }
}

/** Of the server and its connections, those that were closed among them. */
function postgresSeconds(): number {
  return cpuSeconds(processTree([process.pid]).filter((pid) => POSTGRES.test(commandOf(pid))));
}
