/**
 * Memory of the host's own processes over many paid calls: vouchers and prepaid ones, then credentials that are refused.
 * PAID_CALLS takes more of them than the bench has time for.
 */
import { randomBytes } from 'node:crypto';
import { type Fetch, mppFetch, paymentFor } from '../../e2e/support/callers.ts';
import { grant, register } from '../../e2e/support/deals-host.ts';
import type { TestHost } from '../../e2e/support/host.ts';
import { payFromCredit } from '../../e2e/support/pay-callers.ts';
import { until } from '../../e2e/support/until.ts';
import { growth, sample } from '../part-memory.ts';
import { startPaymentChain } from '../peers/payment-chain.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { sessionPayer } from '../session-payer.ts';
import type { Figure, RowResult } from '../table.ts';

const CALLS = Number(process.env.PAID_CALLS ?? 2_000);
const REFUSED = CALLS / 10;
const SAMPLES = 10;
const LANES = [0, 1, 2, 3];
/** Of a lane for all its vouchers, USD: 200,000 of them. */
const DEPOSIT = '20';

/** Answers paid calls, and tells the pay platform what one costs. */
const SHOP = `export default { fetch(request) {
  if (request.headers.get('x-pay-usage') !== 'none') return new Response('hello');
  return Response.json({ serviceSlug: 'bench', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
} };`;

export async function paymentMemory(): Promise<RowResult> {
  const chain = await startPaymentChain();
  try {
    const paidRoutes = [{ method: 'GET', path: '/metered', price: '0.0001', mode: 'metered' }];
    const subject = await startTurnpike(SHOP, {}, { ...chain.options, builtins: ['pay'], deployment: { paidRoutes } });
    try {
      return await measured(subject.host, `${subject.origin}/metered`);
    } finally {
      await subject.stop();
    }
  } finally {
    await chain.stop();
  }
}

async function measured(host: TestHost, metered: string): Promise<RowResult> {
  const vouchers = await Promise.all(LANES.map((lane) => sessionPayer(host.network, lane, metered, DEPOSIT, told)));
  const prepaid = await prepaidLanes(host);
  const paid = [
    ...vouchers.map((pay) => () => pay(metered)),
    ...prepaid.map((pay) => () => pay(`${host.url}/pay/bench/`)),
  ];
  const figures: Figure[] = [await sample(host, 'start')];
  for (let turn = 1; turn <= SAMPLES; turn++) {
    await each(paid, CALLS / SAMPLES, 200);
    figures.push(await sample(host, `${(turn * CALLS) / SAMPLES} paid`));
    // A run of 100,000 takes most of an hour.
    if (CALLS > 10_000) console.error(JSON.stringify(figures.at(-1)));
  }
  const refuse = await refused(host, metered);
  await each(
    LANES.map(() => refuse),
    REFUSED,
    402,
  );
  figures.push(await sample(host, `and ${REFUSED} refused`));
  return {
    id: 'payment-memory',
    title: 'Private memory over paid calls, MB (vouchers and prepaid calls on four lanes each; garbage collected)',
    figures,
    targets: growth(figures),
    skipped: [],
  };
}

/** A stock client that gets a 402 without a challenge says nothing of what the host told it. */
const told: typeof fetch = async (input, init) => {
  const answer = await fetch(input, init);
  if (answer.status !== 402 || answer.headers.has('www-authenticate')) return answer;
  throw new Error(await answer.text());
};

async function prepaidLanes(host: TestHost): Promise<Fetch[]> {
  await until(async () => (await fetch(`${host.url}/pay/healthz`)).ok || undefined);
  await host.operator('PUT', '/pay/services/bench', { origin: '{app_url}/bench', name: 'Bench' });
  const meter = { priceUsd: '0.0001', creditOnly: false, description: 'One look' };
  await host.operator('PUT', '/pay/services/bench/meters/look', meter);
  const accounts = await Promise.all(LANES.map(() => register(host)));
  for (const account of accounts) await grant(host, account, '50');
  return accounts.map(
    (account): Fetch =>
      (url) =>
        payFromCredit(String(url), account),
  );
}

/** Sends a charge of a wallet with a damaged signature, each time another. */
async function refused(host: TestHost, url: string): Promise<() => Promise<Response>> {
  const { authorization = '' } = await paymentFor(url, (sender) => mppFetch(host.network, 5, sender) as typeof fetch);
  const [scheme, text = ''] = authorization.split(' ');
  const credential = JSON.parse(Buffer.from(text, 'base64url').toString()) as { payload: { signature: string } };
  // The last 65 bytes are r, s and v.
  const signed = credential.payload.signature.slice(0, -130);
  const tail = credential.payload.signature.slice(-66);
  return () => {
    const payload = { ...credential.payload, signature: `${signed}${randomBytes(32).toString('hex')}${tail}` };
    const sent = Buffer.from(JSON.stringify({ ...credential, payload })).toString('base64url');
    return fetch(url, { headers: { authorization: `${scheme} ${sent}` } });
  };
}

/** So many calls, shared by all lanes. @throws Error for an answer that is not as expected */
async function each(lanes: (() => Promise<Response>)[], count: number, status: number): Promise<void> {
  let left = count;
  await Promise.all(
    lanes.map(async (call) => {
      while (left-- > 0) {
        const answer = await call();
        const text = await answer.text();
        if (answer.status !== status) throw new Error(`${answer.status} instead of ${status}: ${text.slice(0, 300)}`);
      }
    }),
  );
}
