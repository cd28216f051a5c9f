/**
 * Rows about money: the unpaid 402, and paid calls over each rail, beside the servers of the clients' own packages on the
 * same chain. Clients are stock ones, but for vouchers.
 */
import { randomUUID } from 'node:crypto';
import { deploy, type Fetch, mppFetch, x402Fetch } from '../../e2e/support/callers.ts';
import { grant, register } from '../../e2e/support/deals-host.ts';
import { type HostOptions, type LocalNetworkFile, startHost, type TestHost } from '../../e2e/support/host.ts';
import { payAtOnce, payFromCredit } from '../../e2e/support/pay-callers.ts';
import { until } from '../../e2e/support/until.ts';
import { pairing } from '../compare.ts';
import { type LoadResult, load, median, medianOf } from '../load.ts';
import { startPaymentChain } from '../peers/payment-chain.ts';
import { startStockPayments } from '../peers/stock-payments.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { commandOf, cpuSeconds } from '../processes.ts';
import { sessionPayer } from '../session-payer.ts';
import type { Subject } from '../subject.ts';
import { type Figure, judge, type RowResult, round, type Target } from '../table.ts';
import { HELLO } from '../workers.ts';
import { paymentMemory } from './payment-memory.ts';
import { paymentPairs } from './payment-pairs.ts';

export function paymentRows(): { id: string; run(): Promise<RowResult>; compares?: boolean }[] {
  return [
    { id: 'payments', run: payments, compares: true },
    { id: 'payment-memory', run: paymentMemory },
  ];
}

const WARM_UP_SECONDS = 3;
const ROUNDS = 3;
const SECONDS = 1.5;
/** A hundred calls a second are compiled later than the ten thousand of other rows. */
const PAID_WARM_UP_SECONDS = 10;
const LANES = [0, 1, 2, 3];
/** USD, for all vouchers of a lane. */
const DEPOSIT = '10';

export interface Calls {
  perSecond: number;
  cpuMillis: number;
  failed: number;
}

/** Who is called, and by which clients at once. */
interface Callee {
  url: string;
  lanes: Fetch[];
  pids: number[];
}

/** Of each, every round. */
async function calls(callees: Callee[]): Promise<Calls[][]> {
  for (const callee of callees) await callsOf(callee, PAID_WARM_UP_SECONDS);
  return await inTurn(callees, (callee) => callsOf(callee, SECONDS));
}

/** What each was measured at, round by round. */
async function inTurn<Item, Result>(items: Item[], measure: (item: Item) => Promise<Result>): Promise<Result[][]> {
  const results = items.map((): Result[] => []);
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, item] of items.entries()) results[index]?.push(await measure(item));
  return results;
}

/** The chain of a host that has its own is not what is measured. */
function isNoChain(pid: number): boolean {
  return !/^\S*anvil /.test(commandOf(pid));
}

/** Calls one after another on each lane. */
export async function callsOf({ url, lanes, pids }: Callee, forSeconds: number): Promise<Calls> {
  let done = 0;
  let failed = 0;
  const before = cpuSeconds(pids, isNoChain);
  const from = performance.now();
  await Promise.all(
    lanes.map(async (pay) => {
      while (performance.now() - from < forSeconds * 1000) {
        const response = await pay(url);
        await response.arrayBuffer();
        if (response.ok) done += 1;
        else failed += 1;
      }
    }),
  );
  const seconds = (performance.now() - from) / 1000;
  const cpuMillis = ((cpuSeconds(pids, isNoChain) - before) * 1000) / Math.max(1, done);
  return { perSecond: done / seconds, cpuMillis, failed };
}

function figureOf(subject: string, rounds: Calls[]): Figure {
  const cells = {
    'calls/s': round(median(rounds.map(({ perSecond }) => perSecond))),
    'CPU ms a call': round(median(rounds.map(({ cpuMillis }) => cpuMillis))),
    failed: String(rounds.reduce((sum, { failed }) => sum + failed, 0)),
  };
  return { subject, cells };
}

function perCore(rounds: Calls[]): number[] {
  return rounds.map(({ cpuMillis }) => 1000 / cpuMillis);
}

export const PAID_ROUTES = [
  { method: 'GET', path: '/paid', price: '0.001' },
  { method: 'GET', path: '/metered', price: '0.001', mode: 'metered' },
];

interface RailRow {
  name: string;
  /** @param url of whom they pay: a session has one callee */
  lanes(url: string): Promise<Fetch[]>;
  path: string;
  /** Path of the stock server. */
  peer: string;
  /** Of the stock server's CPU. */
  most?: number;
}

export function railsOf(network: LocalNetworkFile): RailRow[] {
  const same = (pay: Fetch) => async () => LANES.map(() => pay);
  // A session has one call in flight at a time: each lane has its own channel. A stock client takes more of the machine
  // than the servers do, which then have too few calls to be compiled, and tops up every twenty calls.
  const sessions = (url: string) => Promise.all(LANES.map((lane) => sessionPayer(network, 4 + lane, url, DEPOSIT)));
  return [
    { name: 'MPP charge', lanes: same(mppFetch(network, 1)), path: '/paid', peer: '/charge', most: 0.7 },
    { name: 'x402 exact', lanes: same(x402Fetch(network, 2)), path: '/paid', peer: '/exact', most: 0.7 },
    { name: 'MPP session voucher', lanes: sessions, path: '/metered', peer: '/session', most: 0.3 },
    { name: 'x402 upto', lanes: same(x402Fetch(network, 3)), path: '/metered', peer: '/upto' },
  ];
}

/** An origin that knows nothing of payment but how to ask for it. */
export const SHOP = `export default { fetch(request) {
  if (request.headers.get('x-pay-usage') !== 'none') return new Response('hello');
  return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
} };`;

/**
 * Prepaid credit through the pay platform: for each call the 402, which has all offers, and the paid request; and at once,
 * the same call again and again, and each time another one, whose price is asked first.
 */
async function fromCredit(): Promise<[string, Calls[]][]> {
  const host = await startHost({ builtins: ['pay'], flags: { 'log-level': 'error' } });
  try {
    await deploy(mppFetch(host.network, 0), host.url, { slug: 'shop', code: SHOP });
    const ways = await prepaidWays(host, 'shop');
    const rounds = await calls(ways.map(({ url, lanes }) => ({ url, lanes, pids: [host.pid] })));
    return ways.map(({ name }, way) => [name, rounds[way] ?? []]);
  } finally {
    await host.stop();
  }
}

/** Sells a slug by the pay platform. @returns the ways to pay for it from credit */
export async function prepaidWays(
  host: Pick<TestHost, 'url' | 'operator'>,
  slug: string,
): Promise<{ name: string; url: string; lanes: Fetch[] }[]> {
  await until(async () => (await fetch(`${host.url}/pay/healthz`)).ok || undefined);
  await host.operator('PUT', '/pay/services/shop', { origin: `{app_url}/${slug}`, name: 'Shop' });
  const meter = { priceUsd: '0.001', creditOnly: false, description: 'One look' };
  await host.operator('PUT', '/pay/services/shop/meters/look', meter);
  const accounts = await Promise.all(LANES.map(() => register(host)));
  for (const account of accounts) await grant(host, account, '50');
  const url = `${host.url}/pay/shop/`;
  const ways: [string, (account: (typeof accounts)[number]) => Fetch][] = [
    ['prepaid credit', (account) => (at) => payFromCredit(String(at), account)],
    ['prepaid credit at once', (account) => (at) => payAtOnce(String(at), account)],
    ['prepaid credit at once, other calls', (account) => (at) => payAtOnce(`${at}?n=${randomUUID()}`, account)],
  ];
  return ways.map(([name, pay]) => ({ name, url, lanes: accounts.map(pay) }));
}

async function payments(): Promise<RowResult> {
  if (pairing.with) {
    await paymentPairs(pairing.with);
    return { id: 'payments', title: '', figures: [], targets: [], skipped: [] };
  }
  const chain = await startPaymentChain();
  try {
    return await paymentsOn(chain.options);
  } finally {
    await chain.stop();
  }
}

async function paymentsOn(chain: HostOptions): Promise<RowResult> {
  const subject = await startTurnpike(
    HELLO,
    {},
    {
      ...chain,
      deployment: {
        paidRoutes: PAID_ROUTES,
      },
    },
  );
  const stock = await startStockPayments(subject.host.network, 0);
  try {
    const { network } = subject.host;
    const figures: Figure[] = [];
    const targets: Target[] = [];
    const asked = { ours: `${subject.origin}/paid`, mppx: `${stock.origin}/charge`, x402: `${stock.origin}/exact` };
    const unpaid = await unpaidOf([
      { url: asked.ours, subject },
      { url: asked.mppx, subject: stock },
      { url: asked.x402, subject: stock },
    ]);
    for (const [index, name] of ['unpaid 402', 'stock mppx: unpaid 402', 'stock x402: unpaid 402'].entries()) {
      const { perSecond, cpuMicros, p99Ms } = medianOf(unpaid[index] ?? []);
      const cells = { 'calls/s': round(perSecond), 'CPU ms a call': round(cpuMicros / 1000), 'p99 ms': round(p99Ms) };
      figures.push({ subject: name, cells });
    }
    const [ours = [], ofMppx = [], ofX402 = []] = unpaid.map((rounds) => rounds.map(({ perSecond }) => perSecond));
    targets.push(judge('unpaid 402 a second', '≥ 3000', ours));
    for (const [name, theirs] of [
      ['mppx', ofMppx],
      ['x402', ofX402],
    ] as const)
      targets.push(judge('unpaid 402 a second', `≥ 2 × stock ${name}`, divided(ours, theirs)));

    for (const { name, lanes, path, peer, most } of railsOf(network)) {
      const [paid = [], stocks = []] = await calls([
        { url: subject.origin + path, lanes: await lanes(subject.origin + path), pids: subject.pids() },
        { url: stock.origin + peer, lanes: await lanes(stock.origin + peer), pids: stock.pids() },
      ]);
      figures.push(figureOf(name, paid), figureOf(`stock: ${name}`, stocks));
      const ratios = divided(
        paid.map(({ cpuMillis }) => cpuMillis),
        stocks.map(({ cpuMillis }) => cpuMillis),
      );
      if (most !== undefined) targets.push(judge(`${name}: CPU`, `≤ ${most} × stock`, ratios));
      // The client signs in this process and shares the machine: the host's own limit is its CPU a call.
      if (name === 'MPP session voucher')
        targets.push(judge('session vouchers a second and core', '≥ 150', perCore(paid)));
    }
    const prepaid = await fromCredit();
    for (const [name, rounds] of prepaid) figures.push(figureOf(name, rounds));
    targets.push(judge('prepaid calls a second and core', '≥ 150', perCore(prepaid[0]?.[1] ?? [])));
    return {
      id: 'payments',
      title:
        'Paid routes (402, and calls on four lanes: vouchers by a payer that costs little, the rest with stock clients)',
      figures,
      targets,
      skipped: [],
      note: "the chain is in a process of its own; prepaid: CPU is without the chain's; unpaid: 402 answers count as errors for wrk and are not shown as such",
    };
  } finally {
    await stock.stop();
    await subject.stop();
  }
}

function divided(ours: number[], theirs: number[]): number[] {
  return ours.map((value, turn) => value / (theirs[turn] ?? Number.NaN));
}

/** Of each, every round. */
async function unpaidOf(askees: { url: string; subject: Subject }[]): Promise<LoadResult[][]> {
  const ask = ({ url, subject }: (typeof askees)[number], seconds: number) => load({ url, seconds }, subject.pids());
  for (const askee of askees) await ask(askee, WARM_UP_SECONDS);
  return await inTurn(askees, (askee) => ask(askee, 2));
}
