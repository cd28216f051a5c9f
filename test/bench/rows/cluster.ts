/** What a host of several nodes costs beside one box, on one machine: its cores are shared by all nodes, the database and wrk. */
import { readFileSync } from 'node:fs';
import { postgresClient } from '../../../host/registry/postgres/client.ts';
import { deploy, x402Fetch } from '../../e2e/support/callers.ts';
import { Cluster, clusterPrograms } from '../../e2e/support/cluster.ts';
import type { TestHost } from '../../e2e/support/host.ts';
import { type LoadResult, load, median } from '../load.ts';
import { commandOf, cpuSeconds, processTree } from '../processes.ts';
import { type Figure, type RowResult, round } from '../table.ts';

const SECONDS = 6;
const WARM_UP_SECONDS = 2;
const PAID_CALLS = 40;
const NAMES = ['a', 'b', 'c'];
const KINDS: Record<string, string> = { stateless: '', 'KV get': 'get', 'KV put': 'put', 'object write': 'write' };
const POSTGRES = /^\S*\/bin\/postgres /;
const TICKS_PER_SECOND = 100;

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
      case '/seed': await env.STORE.put('hot', value); return new Response('ok');
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
    const figures = await costs('one box', cluster, box);
    await box.stop();
    const nodes: TestHost[] = [];
    for (const name of NAMES) {
      nodes.push(await cluster.node(name));
      if (nodes.length === 1) figures.push(...(await costs('1 node', cluster, nodes[0] as TestHost)));
      else figures.push(await figure(`stateless, ${nodes.length} nodes`, cluster, () => loadAll(nodes, '')));
    }
    return { ...row, figures, skipped: [] };
  } finally {
    await cluster.stop();
  }
}

async function costs(what: string, cluster: Cluster, host: TestHost): Promise<Figure[]> {
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
    bindings: { kv: true, durableObjects: { OBJECTS: { class: 'Kept' } } },
  });
  await (await fetch(`${host.url}/costs/seed`)).text();
  const figures: Figure[] = [];
  for (const [kind, path] of Object.entries(KINDS))
    figures.push(await figure(`${kind}, ${what}`, cluster, () => loadAll([host], path)));
  figures.push(await figure(`paid call, ${what}`, cluster, () => buy(pay(1), `${cluster.url}/costs/paid`, host)));
  return figures;
}

async function loadAll(hosts: TestHost[], path: string): Promise<LoadResult> {
  const at = (seconds: number) =>
    Promise.all(hosts.map((host) => load({ url: `${host.url}/costs/${path}`, seconds }, [host.pid])));
  await at(WARM_UP_SECONDS);
  const results = await at(SECONDS);
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

/** Of a load, with what the database did for it, warm-up included. */
async function figure(subject: string, cluster: Cluster, run: () => Promise<LoadResult>): Promise<Figure> {
  const before = await database(cluster);
  const from = performance.now();
  const { perSecond, p50Ms, p99Ms, cpuMicros, errors } = await run();
  const seconds = (performance.now() - from) / 1_000;
  const after = await database(cluster);
  const commits = (after.commits - before.commits) / seconds;
  const cpu = ((after.cpu - before.cpu) * 1e6) / seconds / perSecond;
  return {
    subject,
    cells: {
      'req/s': round(perSecond),
      'p50 ms': round(p50Ms),
      'p99 ms': round(p99Ms),
      'CPU µs': round(cpuMicros),
      'CPU µs, PostgreSQL': round(cpu),
      'commits/s': round(commits),
      errors: String(errors),
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
  const servers = processTree([process.pid]).filter((pid) => POSTGRES.test(commandOf(pid)));
  const ofClosed = servers.map((pid) => {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND;
  });
  return cpuSeconds(servers) + ofClosed.reduce((sum, one) => sum + one, 0);
}
