/**
 * `npm run soak -- --cluster`: three nodes under load while everything around them goes wrong in turn. Judges the histories
 * afterwards: registers are linearizable, each acknowledged increment is there once, crons ran once, and the books, the
 * wallets and the chain agree to the cent. Needs root, PostgreSQL and radosgw.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { account, deploy, x402Fetch } from '../e2e/support/callers.ts';
import { Cluster, clusterPrograms } from '../e2e/support/cluster.ts';
import { x402Balance } from '../e2e/support/local-network.ts';
import { namespacesAllowed } from '../e2e/support/namespaces.ts';
import { until } from '../e2e/support/until.ts';
import { call } from './call.ts';
import { ASIDE, Faults, type Times } from './cluster-faults.ts';
import { BANK, BANK_TOTAL, COUNTERS, STORES } from './cluster-handler.ts';
import { ClusterLoad } from './cluster-load.ts';

const NODES = ['a', 'b', 'c'];
const PAYERS = [1, 2];
const PROGRESS_MS = 30_000;
/** Until refunds and whatever else is under way are through. */
const SETTLED_MS = 240_000;
const ELSEWHERE_MS = 10_000;
const OBJECTS_MS = 25_000;
const REFUSES_MS = 14_000;
const CHANGE_MS = 20_000;

export interface ClusterSoakOptions {
  minutes: number;
  random(below: number): number;
}

/** @returns the number of kinds of faults that were found */
export async function clusterSoak({ minutes, random }: ClusterSoakOptions): Promise<number> {
  if (!clusterPrograms() || !namespacesAllowed())
    throw new Error(
      'this needs root, network namespaces, PostgreSQL and radosgw (npm run test:s3 -- --install-system)',
    );
  const cluster = await Cluster.startApart();
  try {
    return await soakOf(cluster, { minutes, random });
  } finally {
    await cluster.stop();
  }
}

async function soakOf(cluster: Cluster, { minutes, random }: ClusterSoakOptions): Promise<number> {
  let end = Number.POSITIVE_INFINITY;
  const running = () => performance.now() < end;
  const faults = new Faults({ cluster, names: NODES, random, running });
  for (const name of NODES) faults.hosts.set(name, await cluster.node(name, { 'log-level': 'warn' }));
  const pay = (payer: number) =>
    x402Fetch(
      cluster.network,
      payer,
      cluster.via(() => ({ url: faults.origin() })),
    );
  const owner = pay(0);
  const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.01', description: 'one' }];
  const stores = { code: STORES, bindings: { kv: true, r2: true }, paidRoutes, crons: ['* * * * *'] };
  await deploy(owner, cluster.url, { slug: 'stores', ...stores });
  await deploy(owner, cluster.url, { slug: ASIDE, code: STORES });
  const objects = { durableObjects: { COUNTERS: { class: 'Counter' } } };
  await deploy(owner, cluster.url, { slug: 'counters', code: COUNTERS, bindings: objects });
  const hasBank = await openBank(
    () => deploy(owner, cluster.url, { slug: 'bank', code: BANK, bindings: { d1: true } }),
    faults,
  );
  const held = () =>
    Promise.all(PAYERS.map((payer) => x402Balance(cluster.chain, account(cluster.network, payer).address)));
  const before = await held();
  const load = new ClusterLoad({
    ...{ pay, hasBank, random, running },
    origin: () => faults.origin(),
    paid: `${cluster.url}/stores/paid`,
  });
  const from = performance.now();
  end = from + minutes * 60_000;
  const progress = setInterval(() => {
    const seconds = Math.round((performance.now() - from) / 1_000);
    console.log(`${seconds} s: ${load.answered} answered, ${sum(load.refusals.values())} refused, ${load.sold} sold`);
  }, PROGRESS_MS);
  await Promise.all([load.run(), faults.run()]).finally(() => clearInterval(progress));
  await load.readAll();
  const found = {
    ...(await judgeStores(load, faults, hasBank)),
    ...(await judgeBooks(
      cluster,
      faults,
      async () => {
        const after = await held();
        return before.reduce((paid, one, at) => paid + one - (after[at] ?? 0n), 0n);
      },
      load.sold,
    )),
    ...judgeTimes(faults.times),
  };
  const seconds = Math.round((performance.now() - from) / 1_000);
  report(load, faults, seconds, found);
  return Object.values(found).filter((count) => count > 0).length;
}

/** @returns false: D1 is not there on several nodes */
async function openBank(deployBank: () => Promise<unknown>, faults: Faults): Promise<boolean> {
  const refusal = await deployBank().catch((error: Error) => error.message);
  if (typeof refusal === 'string') {
    console.log(`no bank: ${refusal}`);
    return false;
  }
  await until(async () => (await call(`${faults.origin()}/bank/open`)).text === 'open');
  return true;
}

async function judgeStores(load: ClusterLoad, faults: Faults, hasBank: boolean): Promise<Record<string, number>> {
  const contradictions = load.contradictions();
  for (const one of contradictions) console.error(`register ${one}`);
  let [lost, twice] = [0, 0];
  for (const [counter, { acknowledged, attempted }] of load.counters) {
    const { count, names } = JSON.parse((await call(`${faults.origin()}/counters/${counter}`)).text) as {
      count: number;
      names: string[];
    };
    const kept = new Set(names);
    lost += [...acknowledged.keys()].filter((name) => !kept.has(name)).length;
    twice += count - kept.size + (acknowledged.size - new Set(acknowledged.values()).size);
    if (count > attempted) twice += count - attempted;
    console.log(`counter ${counter}: ${acknowledged.size} of ${attempted} acknowledged, ${count} counted`);
  }
  const found = {
    'registers that contradict themselves': contradictions.length,
    'increments lost': lost,
    'increments twice': twice,
  };
  if (!hasBank) return found;
  const transfers = new Set(JSON.parse((await call(`${faults.origin()}/bank/transfers`)).text) as string[]);
  const { total } = JSON.parse((await call(`${faults.origin()}/bank/total`)).text) as { total: number };
  console.log(`bank: ${load.transfers.length} transfers acknowledged, ${transfers.size} made, total ${total}`);
  return {
    ...found,
    'transfers lost': load.transfers.filter((name) => !transfers.has(name)).length,
    'totals of the bank wrong': load.wrongTotals + (total === BANK_TOTAL ? 0 : 1),
  };
}

async function judgeBooks(
  cluster: Cluster,
  faults: Faults,
  paid: () => Promise<bigint>,
  sold: number,
): Promise<Record<string, number>> {
  const client = postgresClient(cluster.database);
  const rows = async (sql: string) => (await client.execute(sql)).rows;
  try {
    const books = async () => {
      const [row] = await rows(`SELECT
        (SELECT count(*) FROM payments WHERE kind = 'route' AND state = 'answered') AS answered,
        (SELECT coalesce(sum(charged), 0) FROM payments WHERE kind = 'route' AND state = 'answered') AS charged,
        (SELECT count(*) FROM payments WHERE state IN ('verified', 'working', 'settling', 'settled', 'refund_owed')) AS open,
        (SELECT count(*) FROM payment_outgoing WHERE kind = 'refund' AND state NOT IN ('sent', 'waived')) AS refunds`);
      return row as unknown as { answered: number; charged: number; open: number; refunds: number };
    };
    const deadline = performance.now() + SETTLED_MS;
    let now = await books();
    while (now.open + now.refunds > 0 && performance.now() < deadline) {
      await delay(1_000);
      now = await books();
    }
    const states = await rows(`SELECT state, count(*) AS count FROM payments WHERE kind = 'route' GROUP BY state`);
    const wallet = await paid();
    console.log(
      `paid calls: ${sold} answered to callers, ${states.map(({ state, count }) => `${count} ${state}`).join(', ')}; ` +
        `charged ${now.charged}, gone from the wallets ${wallet}`,
    );
    // Who sends payouts looks at the books: the others refuse.
    const asked = await Promise.all(
      [...faults.hosts.values()].map((host) => host.operator('POST', '/payments/reconcile')),
    );
    const agreeing = asked.filter(({ status }) => status === 200).length;
    if (agreeing === 0) for (const { text } of asked) console.error(text);
    const crons = await rows(
      'SELECT tenant, scheduled_at, count(*) AS runs FROM cron_runs GROUP BY tenant, scheduled_at',
    );
    console.log(
      `crons: ${crons.length} times, at most ${Math.max(0, ...crons.map(({ runs }) => Number(runs)))} runs of one`,
    );
    return {
      'payments open': now.open + now.refunds,
      'micro-USD between wallets and books': Math.abs(Number(wallet) - now.charged),
      'sold more than charged': Math.max(0, sold - now.answered),
      'books and chain differ': agreeing > 0 ? 0 : 1,
      'crons that ran twice': crons.filter(({ runs }) => Number(runs) > 1).length,
    };
  } finally {
    await client.end();
  }
}

function judgeTimes(times: Map<string, Times[]>): Record<string, number> {
  const all = [...times].filter(([kind]) => kind.startsWith('node')).flatMap(([, some]) => some);
  return {
    'code elsewhere too late': all.filter(({ elsewhere }) => elsewhere > ELSEWHERE_MS).length,
    'objects elsewhere too late': all.filter(({ objects = 0 }) => objects > OBJECTS_MS).length,
    'changes too late': all.filter(({ change = 0 }) => change > CHANGE_MS).length,
    'refused too late': all.filter(({ refuses = 0 }) => refuses > REFUSES_MS).length,
  };
}

function report(load: ClusterLoad, faults: Faults, seconds: number, found: Record<string, number>): void {
  const worst = (values: number[]) => `${(Math.max(...values) / 1_000).toFixed(1)} s`;
  const operations = sum([...load.histories.values()].map(({ length }) => length));
  console.log(
    `${seconds} s; ${load.answered} calls answered, ${operations} operations on ${load.histories.size} registers`,
  );
  console.log(`refused meanwhile: ${[...load.refusals].map(([outcome, count]) => `${count} × ${outcome}`).join(', ')}`);
  for (const [kind, all] of faults.times) {
    const refuses = all.flatMap((one) => one.refuses ?? []);
    console.log(
      `${kind}, ${all.length} times, at worst: code elsewhere ${worst(all.map((one) => one.elsewhere))}, ` +
        `objects ${worst(all.map((one) => one.objects ?? 0))}, a change ${worst(all.map((one) => one.change ?? 0))}, all back ${worst(all.map((one) => one.back))}` +
        (refuses.length > 0 ? `, refuses after ${worst(refuses)}` : ''),
    );
  }
  const wrong = Object.entries(found).filter(([, count]) => count > 0);
  console.log(`faults: ${wrong.map(([what, count]) => `${count} ${what}`).join(', ') || 'none'}`);
}

function sum(values: Iterable<number>): number {
  return [...values].reduce((all, one) => all + one, 0);
}
