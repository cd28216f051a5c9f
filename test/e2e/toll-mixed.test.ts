/**
 * Hundreds of calls of every kind by every stock client, and from prepaid credit, to an ordinary tenant of the real host,
 * with handlers that fail, callers that leave and retries thrown in. Afterwards the chain, the receipts and the books agree to the last
 * micro-USD, payer by payer and payment by payment.
 */
import { Credential } from 'mppx';
import { tempo } from 'mppx/client';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { localTempoChain } from '../../host/payments/network/chains.ts';
import { tempoClient } from '../../host/payments/network/clients.ts';
import { parseUsd } from '../../host/shared/money.ts';
import { account, balances, batchClient, deploy, type Fetch, mppFetch, x402Fetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { openPrepaid, PREPAID_HANDLER, PREPAID_PRICE, type PrepaidCaller } from './support/prepaid-caller.ts';
import { until } from './support/until.ts';

const CALLS = Number(process.env.MIXED_CALLS ?? 250);
/** How often the host is killed meanwhile. */
const KILLS = Number(process.env.MIXED_KILLS ?? 0);
/** After a start connections of before are still found broken, and payments are recovered, ms. */
const NEAR_KILL_MS = 60_000;
const FEE_BPS = 250;
const PRICES = { '/fixed': 10_000n, '/metered': 20_000n };
type Route = keyof typeof PRICES;

const HANDLER = `${PREPAID_HANDLER}
export default {
  async fetch(request, env) {
    const asked = behindPlatform(request);
    if (asked) return asked;
    const { id, want, charge, delay } = await request.json();
    if (delay > 0) await scheduler.wait(delay);
    if (want === 'throw') throw new Error('thrown');
    if (want === 'fail') return new Response('no', { status: 500 });
    if (want === 'once' && (await env.STORE.get(id)) === null) {
      await env.STORE.put(id, 'failed');
      return new Response('not yet', { status: 503 });
    }
    const body = JSON.stringify({ id });
    const headers = { 'x-charge': charge };
    if (want !== 'stream') return new Response(body, { headers });
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    const write = async () => {
      for (const part of [body.slice(0, 3), body.slice(3, 6), body.slice(6)]) {
        await writer.write(new TextEncoder().encode(part));
        await scheduler.wait(4);
      }
      await writer.close();
    };
    write().catch(() => {});
    return new Response(readable, { headers });
  },
};`;

let host: TestHost;
let payTo: `0x${string}`;
let owner: Fetch;
let prepaid: PrepaidCaller;

beforeAll(async () => {
  const port = String(await freePort());
  host = await startHost({
    builtins: ['pay'],
    flags: { 'payments-fee-bps': String(FEE_BPS), 'payments-local-port': port },
  });
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, {
    slug: 'shop',
    code: HANDLER,
    bindings: { kv: true },
    payTo,
    paidRoutes: [
      { method: 'POST', path: '/fixed', price: '0.01' },
      { method: 'POST', path: '/metered', price: '0.02', mode: 'metered' },
    ],
  });
  prepaid = await openPrepaid(() => host, 6);
  await nothingIsOpen();
});
afterAll(() => host?.stop());

/** All that was earned is paid out. */
async function nothingIsOpen(): Promise<void> {
  await until(async () => {
    const { json } = await host.operator('GET', '/payments');
    return (json as { open: unknown[] }).open.length === 0;
  });
}

/** A small generator with a seed, so that a failure can be repeated. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

type Paid = Record<string, string>;

/** A payer's wallet, its stock client, and what that client sent to pay for the last call. */
interface Payer {
  wallet: number;
  routes: Route[];
  fetch: Fetch;
  /** What pays for the present call; undefined until it is sent. */
  sent: Paid | undefined;
  onSent: () => void;
  close(): Promise<unknown>;
}

function payer(
  wallet: number,
  routes: Route[],
  client: (sender: typeof fetch) => { fetch: Fetch; close?(): Promise<unknown> },
): Payer {
  const self = { wallet, routes, sent: undefined, onSent: () => {} } as unknown as Payer;
  const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    for (const name of ['authorization', 'payment-signature']) {
      const value = request.headers.get(name);
      if (!value || (name === 'authorization' && managesChannel(value))) continue;
      self.sent = { [name]: value };
      self.onSent();
    }
    return fetch(request);
  };
  const { fetch: paying, close } = client(sender as typeof fetch);
  return Object.assign(self, { fetch: paying, close: async () => await close?.() });
}

/** Top-ups and closes of a session's channel pay for no call. */
function managesChannel(authorization: string): boolean {
  const { action } = Credential.deserialize<{ action?: string }>(authorization).payload;
  return action === 'topUp' || action === 'close';
}

function sessionOf(wallet: number, sender: typeof fetch) {
  const from = account(host.network, wallet);
  const chain = localTempoChain(host.network.chainId, host.network.rpcUrl);
  const getClient = () => tempoClient(chain, from) as never;
  const manager = tempo.session.manager({ account: from, getClient, maxDeposit: '50', fetch: sender });
  return { fetch: manager.fetch as Fetch, close: () => manager.close() };
}

function channelOf(wallet: number, sender: typeof fetch) {
  const { scheme, fetch: paying } = batchClient(host.network, wallet, sender);
  // Its client asks for what is left by GET, of which nothing is sold here.
  const post = ((input, init) => fetch(input, { ...init, method: 'POST', body: '{}' })) as typeof fetch;
  return { fetch: paying, close: () => scheme.refund(`${host.url}/shop/metered`, { fetch: post }) };
}

/** What handlers are asked to do, up to which of the numbers below one it is chosen, and the status it comes to. */
const WANTS = [
  ['fail', 0.06, 500],
  ['once', 0.12, 503],
  ['throw', 0.15, 500],
  ['nonsense', 0.19, 502],
  ['stream', 0.31, 200],
  ['ok', 1, 200],
] as const;

test('mixed calls: chain, receipts and ledger agree', { timeout: 3_600_000 }, async () => {
  const { network } = host;
  const both: Route[] = ['/fixed', '/metered'];
  const payers = [
    payer(1, both, (sender) => ({ fetch: mppFetch(network, 1, sender) })),
    payer(2, both, (sender) => ({ fetch: mppFetch(network, 2, sender) })),
    // Sessions are offered where calls are metered.
    payer(3, ['/metered'], (sender) => sessionOf(3, sender)),
    payer(4, both, (sender) => ({ fetch: x402Fetch(network, 4, sender) })),
    payer(5, both, (sender) => channelOf(5, sender)),
  ];
  const operatorsCsv = records((await host.operator('GET', '/payments/csv')).text);
  const operator = operatorsCsv.find(({ what }) => what === 'deploy')?.pay_to as `0x${string}`;
  const holds = async (address: `0x${string}`) => {
    const { mpp, x402 } = await balances(network, address);
    return mpp + x402;
  };
  const money = async () => ({
    payers: await Promise.all(payers.map(({ wallet }) => holds(account(network, wallet).address))),
    payTo: await holds(payTo),
    operator: await holds(operator),
  });
  const before = await money();
  /** By payment: what its receipt says, and of whom. */
  const receipts = new Map<string, { wallet: number; amount: bigint }>();
  const seen: Record<string, number> = {};
  const count = (what: string) => {
    seen[what] = (seen[what] ?? 0) + 1;
  };

  async function call(by: Payer, id: string, route: Route, random: () => number): Promise<void> {
    const kind = random();
    const [want, , failure] = WANTS.find(([, below]) => kind < below) ?? WANTS[5];
    const leaves = random() < 0.06;
    const repeats = random() < 0.1;
    const amount = BigInt(Math.floor(random() * 30_000));
    const nonsense = random() < 0.5 ? '-1' : 'NaN';
    const charge = want === 'nonsense' ? nonsense : `0.${String(amount).padStart(6, '0')}`;
    const body = JSON.stringify({ id, want, charge, delay: leaves ? 40 : 0 });
    const price = PRICES[route];
    const cost = route === '/fixed' || amount > price ? price : amount;
    // A fixed route does not look at what its handler says.
    const status = want === 'nonsense' && route === '/fixed' ? 200 : failure;

    by.sent = undefined;
    const abort = new AbortController();
    const patience = random() * 60;
    by.onSent = leaves ? () => setTimeout(() => abort.abort(), patience) : () => {};
    const url = `${host.url}/shop${route}`;
    const read = async (response: Response) => ({ response, text: await response.text() });
    /** What a host that was killed has not said, or cannot say yet, it says later. */
    const asked = async (ask: () => Promise<Response>) => {
      const answer = await ask()
        .then(read)
        .catch((error) => {
          if (!abort.signal.aborted && !isNearKill()) throw error;
          return undefined;
        });
      const isLater = [409, 503].includes(answer?.response.status ?? 0) && answer?.text.includes('"code"');
      // A chain on a busy machine takes longer than a caller is kept waiting for it.
      const isPending = answer?.text.includes('"payment_pending"');
      return isPending || (isLater && isNearKill()) ? undefined : answer;
    };
    let final = await asked(() => by.fetch(url, { method: 'POST', body, signal: abort.signal }));
    const again = async () => {
      const { sent } = by;
      return sent && (await asked(() => fetch(url, { method: 'POST', body, headers: sent })));
    };
    if (final === undefined) {
      // The caller comes back with what it has: it is answered, and not charged twice.
      count('left');
      final = await until(async () => {
        await running;
        const answer = await again();
        // Nothing was sent, or by a client that had lost count of its channel and left before it heard of that.
        const isUnpaid = !by.sent || answer?.response.status === 402;
        return isUnpaid ? asked(() => by.fetch(url, { method: 'POST', body })) : answer;
      });
    }
    if (kills > 0 && final.response.status === 502 && final.text.includes('"refund"')) return count('given back');
    expect([status, want === 'once' && 200], `${id} ${want}: ${final.text}`).toContain(final.response.status);
    if (want === 'once' && !final.response.ok) {
      count('paid at the second attempt');
      final = await until(again);
      expect(final.response.status, `${id}: ${final.text}`).toBe(200);
    } else if (repeats) {
      count('sent again');
      const repeated = await until(again);
      expect(repeated.response.status, `${id}: ${repeated.text}`).toBe(final.response.status);
      for (const name of ['x-payment-id', 'x-payment-amount'])
        expect(repeated.response.headers.get(name), id).toBe(final.response.headers.get(name));
    }
    count(`${want} ${final.response.status}`);
    const { headers, ok } = final.response;
    if (!ok) return;
    if (headers.get('content-length') === null) count('without a length');
    expect(JSON.parse(final.text)).toEqual({ id });
    const payment = headers.get('x-payment-id') ?? '';
    expect(receipts.has(payment), payment).toBe(false);
    receipts.set(payment, { wallet: by.wallet, amount: parseUsd(headers.get('x-payment-amount') ?? 'none') });
    expect(receipts.get(payment)?.amount, id).toBe(cost);
  }

  let kills = 0;
  let done = 0;
  let running: Promise<unknown> = Promise.resolve();
  let startedAt = Number.NEGATIVE_INFINITY;
  const isNearKill = () => performance.now() - startedAt < NEAR_KILL_MS;
  const killing = async () => {
    for (let turn = 1; turn <= KILLS; turn += 1) {
      await until(() => done >= (turn * CALLS) / (KILLS + 1), 'calls', 3_000_000);
      kills += 1;
      startedAt = Number.POSITIVE_INFINITY;
      const killed = host;
      running = killed.kill().then(async () => {
        host = await killed.restart();
        startedAt = performance.now();
      });
      await running;
    }
  };
  const each = CALLS / (payers.length + 1);
  const lanes = payers.map(async (by) => {
    const random = seeded(by.wallet);
    for (let i = 0; i < each; i += 1) {
      await running;
      await call(by, `${by.wallet}-${i}`, by.routes[i % by.routes.length] ?? '/metered', random);
      done += 1;
    }
    await by.close();
  });
  let prepaidCalls = 0;
  const credit = async () => {
    const random = seeded(6);
    for (let i = 0; i < each; i += 1) {
      await running;
      const kind = random();
      const want = kind < 0.08 ? 'fail' : kind < 0.16 ? 'once' : 'ok';
      const leavesAfter = random() < 0.06 ? Math.floor(random() * 60) : undefined;
      const came = await prepaid.call({ id: `6-${i}`, want, leavesAfter, repeats: random() < 0.1 });
      if (came === 'charged') prepaidCalls += 1;
      count(`prepaid ${came}`);
      done += 1;
    }
  };
  await Promise.all([...lanes, credit(), killing()]);
  prepaidCalls += await prepaid.rest();
  expect(await prepaid.spent()).toBe(BigInt(prepaidCalls) * PREPAID_PRICE);
  await nothingIsOpen();

  const { json, text: reconciled } = await host.operator('POST', '/payments/reconcile');
  expect(json, reconciled).toMatchObject({ ok: true, differences: [] });
  const { accounts } = json as { accounts: { account: string }[] };
  expect(accounts.filter((each) => each.account.startsWith('claim:'))).toEqual([]);

  const usage = await owner(`${host.url}/_admin/shop/usage`, { headers: { accept: 'text/csv' } });
  const rows = records(await usage.text());
  const charged = rows.filter(({ state }) => state === 'answered');
  expect(['answered', 'released', 'refunded']).toEqual(expect.arrayContaining(rows.map(({ state }) => state)));
  const usd = (text: string | undefined) => parseUsd(text ?? 'none');
  expect(new Map(charged.map((row) => [row.payment, usd(row.charged_usd)]))).toEqual(
    new Map([...receipts].map(([payment, { amount }]) => [payment, amount])),
  );
  for (const row of rows) expect(row.state === 'released' ? 0n : usd(row.charged_usd)).toBe(usd(row.charged_usd));
  const gross = charged.reduce((sum, row) => sum + usd(row.charged_usd), 0n);
  const fee = charged.reduce((sum, row) => sum + usd(row.fee_usd), 0n);

  const after = await money();
  for (const [index, { wallet }] of payers.entries()) {
    const own = [...receipts.values()].filter((receipt) => receipt.wallet === wallet);
    const spent = (before.payers[index] ?? 0n) - (after.payers[index] ?? 0n);
    expect(spent, `wallet ${wallet}`).toBe(own.reduce((sum, { amount }) => sum + amount, 0n));
  }
  expect(after.payTo - before.payTo).toBe(gross - fee);
  expect(after.operator - before.operator).toBe(fee);

  // That all of it was tried at all.
  expect(new Set(charged.map(({ rail, what }) => `${rail} ${what}`))).toEqual(
    new Set([
      'tempo/charge POST /fixed',
      'tempo/charge POST /metered',
      'tempo/session POST /metered',
      'x402/exact POST /fixed',
      'x402/upto POST /metered',
      'x402/batch-settlement POST /fixed',
      'x402/batch-settlement POST /metered',
    ]),
  );
  for (const what of [
    'fail 500',
    'throw 500',
    'nonsense 502',
    'once 200',
    'without a length',
    'left',
    'sent again',
    'prepaid charged',
  ])
    expect(seen[what], `${what}: ${JSON.stringify(seen)}`).toBeGreaterThan(0);
});

/** Lines of a CSV whose fields need no quotes, by the names of its head. */
function records(csv: string): Record<string, string>[] {
  const [head = [], ...lines] = csv
    .trim()
    .split('\r\n')
    .map((line) => line.split(','));
  return lines.map((line) => Object.fromEntries(head.map((name, index) => [name, line[index] ?? ''])));
}
