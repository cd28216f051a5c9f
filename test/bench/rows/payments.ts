/** Rows about money: the unpaid 402, and paid calls over each rail, with stock clients. */
import { deploy, type Fetch, mppFetch, mppSessionFetch, x402Fetch } from '../../e2e/support/callers.ts';
import { grant, register } from '../../e2e/support/deals-host.ts';
import { startHost, until } from '../../e2e/support/host.ts';
import { payFromCredit } from '../../e2e/support/pay-callers.ts';
import { type LoadResult, load, median, medianOf } from '../load.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { cpuSeconds } from '../processes.ts';
import { type Figure, type RowResult, round } from '../table.ts';
import { HELLO } from '../workers.ts';

export function paymentRows(): { id: string; run(): Promise<RowResult> }[] {
  return [{ id: 'payments', run: payments }];
}

const WARM_UP_SECONDS = 3;
const ROUNDS = 3;
const SECONDS = 1.5;
/** A hundred calls a second are compiled later than the ten thousand of other rows. */
const PAID_WARM_UP_SECONDS = 4;
const LANES = [0, 1, 2, 3];

interface Calls {
  perSecond: number;
  cpuMillis: number;
  failed: number;
}

/** Medians of some rounds. @param lanes a client each @param warmUp seconds before them that do not count */
async function calls(lanes: Fetch[], url: string, pids: number[], warmUp = SECONDS): Promise<Calls> {
  await callsOf(lanes, url, pids, warmUp);
  const rounds: Calls[] = [];
  for (let round = 0; round < ROUNDS; round++) rounds.push(await callsOf(lanes, url, pids, SECONDS));
  return {
    perSecond: median(rounds.map(({ perSecond }) => perSecond)),
    cpuMillis: median(rounds.map(({ cpuMillis }) => cpuMillis)),
    failed: rounds.reduce((sum, { failed }) => sum + failed, 0),
  };
}

/** Calls one after another on each lane. */
async function callsOf(lanes: Fetch[], url: string, pids: number[], forSeconds: number): Promise<Calls> {
  let done = 0;
  let failed = 0;
  const before = cpuSeconds(pids);
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
  return { perSecond: done / seconds, cpuMillis: ((cpuSeconds(pids) - before) * 1000) / Math.max(1, done), failed };
}

/** An origin that knows nothing of payment but how to ask for it. */
const SHOP = `export default { fetch(request) {
  if (request.headers.get('x-pay-usage') !== 'none') return new Response('hello');
  return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
} };`;

/** Prepaid credit through the pay platform: for each call the 402, which has all offers, and the paid request. */
async function fromCredit(): Promise<{ figure: Figure; perCore: number }> {
  const host = await startHost({ builtins: ['pay'], flags: { 'log-level': 'error' } });
  try {
    await until(async () => (await fetch(`${host.url}/pay/healthz`)).ok || undefined, 60_000);
    await deploy(mppFetch(host.network, 0), host.url, { slug: 'shop', code: SHOP });
    await host.operator('PUT', '/pay/services/shop', { origin: '{app_url}/shop', name: 'Shop' });
    const meter = { priceUsd: '0.001', creditOnly: false, description: 'One look' };
    await host.operator('PUT', '/pay/services/shop/meters/look', meter);
    const accounts = await Promise.all(LANES.map(() => register(host)));
    for (const account of accounts) await grant(host, account, '50');
    const lanes = accounts.map(
      (account): Fetch =>
        (url) =>
          payFromCredit(String(url), account),
    );
    const url = `${host.url}/pay/shop/`;
    const { perSecond, cpuMillis, failed } = await calls(lanes, url, [host.pid], PAID_WARM_UP_SECONDS);
    const cells = { 'calls/s': round(perSecond), 'CPU ms a call': round(cpuMillis), failed: String(failed) };
    return { figure: { subject: 'prepaid credit', cells }, perCore: 1000 / cpuMillis };
  } finally {
    await host.stop();
  }
}

async function payments(): Promise<RowResult> {
  const subject = await startTurnpike(
    HELLO,
    {},
    {
      deployment: {
        paidRoutes: [
          { method: 'GET', path: '/paid', price: '0.001' },
          { method: 'GET', path: '/metered', price: '0.001', mode: 'metered' },
        ],
      },
    },
  );
  try {
    const { network } = subject.host;
    const ask = (seconds: number) => load({ url: `${subject.origin}/paid`, seconds }, subject.pids());
    await ask(WARM_UP_SECONDS);
    const rounds: LoadResult[] = [];
    for (let round = 0; round < ROUNDS; round++) rounds.push(await ask(2));
    const unpaid = medianOf(rounds);
    const figures: Figure[] = [
      {
        subject: 'unpaid 402',
        cells: {
          'calls/s': round(unpaid.perSecond),
          'CPU ms a call': round(unpaid.cpuMicros / 1000),
          'p99 ms': round(unpaid.p99Ms),
        },
      },
    ];
    const mpp = mppFetch(network, 1);
    const exact = x402Fetch(network, 2);
    const upto = x402Fetch(network, 3);
    // A session's client has one call in flight at a time: each lane has its own channel.
    const sessions = await Promise.all(LANES.map((lane) => mppSessionFetch(network, 4 + lane)));
    await Promise.all(sessions.map((pay) => pay(`${subject.origin}/metered`)));
    const rails: [string, Fetch[], string][] = [
      ['MPP charge', LANES.map(() => mpp), '/paid'],
      ['x402 exact', LANES.map(() => exact), '/paid'],
      ['MPP session voucher', sessions, '/metered'],
      ['x402 upto', LANES.map(() => upto), '/metered'],
    ];
    let session = 0;
    for (const [name, lanes, path] of rails) {
      const voucher = name === 'MPP session voucher';
      const warmUp = voucher ? PAID_WARM_UP_SECONDS : SECONDS;
      const { perSecond, cpuMillis, failed } = await calls(lanes, subject.origin + path, subject.pids(), warmUp);
      // The client signs in this process and shares the machine: the host's own limit is its CPU a call.
      if (voucher) session = 1000 / cpuMillis;
      figures.push({
        subject: name,
        cells: { 'calls/s': round(perSecond), 'CPU ms a call': round(cpuMillis), failed: String(failed) },
      });
    }
    const prepaid = await fromCredit();
    figures.push(prepaid.figure);
    return {
      id: 'payments',
      title: 'Paid routes (402, and calls with stock clients on four lanes)',
      figures,
      targets: [
        { text: 'unpaid 402 a second ≥ 3000', value: unpaid.perSecond, met: unpaid.perSecond >= 3000 },
        { text: 'session vouchers a second and core ≥ 150', value: session, met: session >= 150 },
        { text: 'prepaid calls a second and core ≥ 150', value: prepaid.perCore, met: prepaid.perCore >= 150 },
      ],
      skipped: [],
      note: 'unpaid: 402 answers count as errors for wrk and are not shown as such',
    };
  } finally {
    await subject.stop();
  }
}
