/** An ordinary tenant on the real host sells its routes: stock clients and the stock command pay, through the edge. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch';
import { Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { erc20Abi, type Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { readContract } from 'viem/actions';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { localEvmChain, localTempoChain } from '../../host/payments/network/chains.ts';
import { tempoClient, x402Client } from '../../host/payments/network/clients.ts';
import { formatUsd, micro } from '../../host/shared/money.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const HANDLER = `let started = 0, gone = 0;
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const seen = { payer: request.headers.get('x-payer'), id: request.headers.get('x-payment-id') };
    switch (url.pathname) {
      case '/fixed': return Response.json(seen);
      case '/none': return new Response(null, { status: Number(url.searchParams.get('status')) });
      case '/echo': return new Response(request.body);
      case '/waits':
        const turn = ++started;
        while (gone < turn) await scheduler.wait(10);
        return Response.json(seen);
      case '/started': return Response.json({ started });
      case '/go': gone = started; break;
      case '/cheap':
      case '/metered': return Response.json(seen, { headers: { 'x-charge': '0.0123' } });
      case '/moody':
      case '/moody-metered': {
        const key = seen.payer + url.pathname + url.search;
        const before = await env.STORE.get(key);
        await env.STORE.put(key, 'called');
        if (before === null) switch (url.searchParams.get('first')) {
          case 'fails': return new Response('no', { status: 500 });
          case 'throws': throw new Error('thrown');
          case 'hangs': await scheduler.wait(3_600_000);
          case 'loops': for (;;) {}
          default: return Response.json(seen, { headers: { 'x-charge': url.searchParams.get('charge') } });
        }
        return Response.json(seen, { headers: { 'x-charge': '0.0123' } });
      }
      case '/quote': {
        const verified = await env.PAYMENTS.fetch('http://payments/verify', { method: 'POST', headers: request.headers, body: '{}' });
        if (!verified.ok) return env.PAYMENTS.fetch('http://payments/challenge', { method: 'POST', body: JSON.stringify({ amount: '0.03', description: 'Quoted now' }) });
        const { hold, payer } = await verified.json();
        const captured = await env.PAYMENTS.fetch('http://payments/capture', { method: 'POST', body: JSON.stringify({ hold }) });
        const { headers } = await captured.json();
        return Response.json({ payer }, { headers });
      }
    }
    return Response.json({ free: true, ...seen });
  },
};`;

let host: TestHost;
let payTo: string;
/** In the addresses that a handler knows again: a test that is tried again has a first time again. */
let attempt = 0;
beforeEach(() => {
  attempt += 1;
});

beforeAll(async () => {
  host = await startHost({ flags: { 'runtime-cpu-stall-ms': '2000', 'runtime-request-idle-ms': '5000' } });
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  const deployed = await mpp(0).fetch(`${host.url}/_admin/deploy`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      slug: 'shop',
      code: HANDLER,
      payTo,
      bindings: { payments: true, kv: true },
      paidRoutes: [
        ...['/fixed', '/none', '/waits', '/moody'].map((route) => ({ method: 'GET', path: route, price: '0.01' })),
        { method: 'POST', path: '/echo', price: '0.01' },
        { method: 'GET', path: '/cheap', price: '0.02', mode: 'metered' },
        ...['/metered', '/moody-metered'].map((route) => ({
          method: 'GET',
          path: route,
          price: '0.05',
          mode: 'metered',
        })),
      ],
    }),
  });
  expect(deployed.status, await deployed.clone().text()).toBe(201);
});
afterAll(() => host.stop());

const key = (index: number): Hex => host.network.wallets[index]?.privateKey ?? '0x';
const tempoChain = () => localTempoChain(host.network.chainId, host.network.rpcUrl);
const evmChain = () => localEvmChain(host.network.chainId, host.network.rpcUrl);

/** Sends requests, and keeps the headers that paid for the last one. */
function recording() {
  const sent: Record<string, string> = {};
  const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    for (const name of ['authorization', 'payment-signature']) {
      const value = request.headers.get(name);
      if (value) sent[name] = value;
    }
    return fetch(request);
  };
  return { sent, sender: sender as typeof fetch };
}

function mpp(index: number) {
  const account = privateKeyToAccount(key(index));
  const { sent, sender } = recording();
  const client = Mppx.create({
    polyfill: false,
    fetch: sender,
    methods: [tempo.charge({ account, getClient: () => tempoClient(tempoChain()) as never })],
  });
  return { address: account.address, sent, fetch: client.fetch as typeof fetch };
}

function x402(index: number) {
  const account = privateKeyToAccount(key(index));
  const { network, token } = host.network.x402;
  const { sent, sender } = recording();
  const paying = wrapFetchWithPaymentFromConfig(sender, {
    schemes: [
      { network: 'eip155:*', client: new ExactEvmScheme(account) },
      { network: 'eip155:*', client: new UptoEvmScheme(account, { rpcUrl: host.network.rpcUrl } as never) },
    ],
    spendControls: { allowedAssets: [{ network, asset: token, maxAmountPerPayment: '1000000' }] },
  } as never);
  return { address: account.address, sent, fetch: paying as typeof fetch };
}

function mppSession(index: number) {
  const account = privateKeyToAccount(key(index));
  const { sent, sender } = recording();
  const getClient = () => tempoClient(tempoChain(), account) as never;
  const manager = tempo.session.manager({ account, getClient, maxDeposit: '3', fetch: sender });
  return {
    address: account.address,
    sent,
    fetch: manager.fetch as typeof fetch,
    close: () => manager.close(),
  };
}

function balance(token: 'tempo' | 'usdc', address: string): Promise<bigint> {
  const client = token === 'tempo' ? tempoClient(tempoChain()) : x402Client(evmChain());
  const of = token === 'tempo' ? host.network.token : host.network.x402.token;
  return readContract(client as never, {
    address: of,
    abi: erc20Abi,
    functionName: 'balanceOf',
    args: [address as Hex],
  });
}

test('stock clients pay fixed and metered routes; free paths stay free and forgeries do not arrive', async () => {
  const free = await fetch(`${host.url}/shop/other`, { headers: { 'x-payer': 'me', 'x-payment-id': 'pay_x' } });
  expect(await free.json()).toEqual({ free: true, payer: null, id: null });
  const [m, x] = [mpp(1), x402(2)];
  // Of an earlier try of this test, too.
  const [t, u] = [await balance('tempo', payTo), await balance('usdc', payTo)];
  const fixed = await m.fetch(`${host.url}/shop/fixed`);
  expect(await fixed.json()).toEqual({
    payer: `did:pkh:eip155:1337:${m.address.toLowerCase()}`,
    id: fixed.headers.get('x-payment-id'),
  });
  expect(fixed.headers.get('payment-receipt')).toBeTruthy();
  expect((await x.fetch(`${host.url}/shop/fixed`)).headers.get('payment-response')).toBeTruthy();
  expect((await m.fetch(`${host.url}/shop/metered`)).headers.get('x-payment-amount')).toBe('0.0123');
  expect((await x.fetch(`${host.url}/shop/metered`)).headers.get('x-payment-amount')).toBe('0.0123');
  await until(async () => (await balance('tempo', payTo)) - t === 22_300n || undefined);
  expect((await balance('usdc', payTo)) - u).toBe(22_300n);
});

test('a free method does not stand in for one that has a price', async () => {
  const ask = (method: string, query: string, headers: Record<string, string>) =>
    fetch(`${host.url}/shop/fixed${query}`, { method, headers, redirect: 'manual' });
  expect((await ask('POST', '', {})).status).toBe(200);
  for (const name of ['X-HTTP-Method-Override', 'x-http-method', 'X-Method-Override']) {
    for (const value of ['GET', 'get', ' HEAD', 'PUT, GET']) {
      const refused = await ask('POST', '', { [name]: value });
      expect([refused.status, ((await refused.json()) as { code: string }).code], `${name}: ${value}`).toEqual([
        400,
        'bad_request',
      ]);
    }
    expect((await ask('POST', '', { [name]: 'PUT' })).status).toBe(200);
  }
  expect((await ask('POST', '?_method=GET', {})).status).toBe(400);
  expect((await ask('POST', '?a=b&%5Fmethod=get', {})).status).toBe(400);
  // The method that is sent has the price already.
  expect((await ask('GET', '', { 'x-http-method-override': 'GET' })).status).toBe(402);
});

test('a payment is bound to the body that it was asked for with', async () => {
  const client = mpp(1);
  const url = `${host.url}/shop/echo`;
  expect(await (await client.fetch(url, { method: 'POST', body: 'mine' })).text()).toBe('mine');
  const first = await fetch(url, { method: 'POST', body: 'one' });
  expect(first.status).toBe(402);
  const digest = createHash('sha256').update('one').digest('base64');
  expect(first.headers.get('www-authenticate')).toContain(`digest="sha-256=${digest}"`);
  const mine = { authorization: client.sent.authorization ?? '' };
  const replayed = await fetch(url, { method: 'POST', body: 'mine', headers: mine });
  expect(await replayed.text()).toBe('mine');
  const head = await fetch(`${host.url}/shop/fixed`, { method: 'HEAD' });
  expect([head.status, await head.text(), head.headers.has('payment-required')]).toEqual([402, '', true]);
  const large = 'x'.repeat(100_000);
  expect(await (await client.fetch(url, { method: 'POST', body: large })).text()).toBe(large);
});

test('a session with top-up runs through the edge, and closes by the client', async () => {
  const session = mppSession(3);
  const before = await balance('tempo', session.address);
  for (let i = 0; i < 25; i += 1) expect((await session.fetch(`${host.url}/shop/metered`)).status).toBe(200);
  // The voucher of a call that failed stands for more than the next, cheaper call needs.
  expect((await session.fetch(`${host.url}/shop/moody-metered?first=fails&token=cheap&try=${attempt}`)).status).toBe(
    500,
  );
  expect((await session.fetch(`${host.url}/shop/cheap`)).status).toBe(200);
  const { challenge, payload, source } = Credential.deserialize<{ channelId: string; descriptor: unknown }>(
    session.sent.authorization ?? '',
  );
  const { channelId, descriptor } = payload;
  const topUp = {
    action: 'topUp',
    type: 'transaction',
    channelId,
    descriptor,
    additionalDeposit: '1',
    transaction: '0x76',
  };
  const authorization = Credential.serialize({ challenge, source, payload: topUp } as never);
  // Clients send it by POST, whatever the route's method is, and pay what the answer asks.
  const refused = await fetch(`${host.url}/shop/cheap`, { method: 'POST', headers: { authorization } });
  expect([refused.status, await refused.text()]).toEqual([402, expect.stringContaining('The top-up failed')]);
  expect(refused.headers.get('www-authenticate')).toMatch(/^Payment .*intent="session"/);
  const receipt = await session.close();
  expect(receipt?.spent).toBe(String(26 * 12_300));
  expect(before - (await balance('tempo', session.address))).toBe(26n * 12_300n);
});

test('the stock mppx command pays a fixed and a metered route', async () => {
  const bin = fileURLToPath(new URL('../../node_modules/mppx/dist/bin.js', import.meta.url));
  const env = { PATH: process.env.PATH, HOME: host.data, MPPX_PRIVATE_KEY: key(4), MPPX_RPC_URL: host.network.rpcUrl };
  for (const route of ['fixed', 'metered']) {
    const args = [bin, `${host.url}/shop/${route}`, '-r', host.network.rpcUrl];
    const { stdout } = await promisify(execFile)(process.execPath, args, { env, cwd: path.dirname(bin) });
    expect(stdout.toLowerCase()).toContain(privateKeyToAccount(key(4)).address.toLowerCase());
  }
});

/** Payers of each kind with what their calls of the moody routes cost; those of sessions pay when they close. */
const moodyPayers = () => {
  const session = mppSession(7);
  return {
    session,
    payers: [
      { client: mpp(5), token: 'tempo', route: 'moody', cost: 10_000n },
      { client: mpp(6), token: 'tempo', route: 'moody-metered', cost: 12_300n },
      { client: x402(5), token: 'usdc', route: 'moody', cost: 10_000n },
      { client: x402(6), token: 'usdc', route: 'moody-metered', cost: 12_300n },
      { client: session, token: undefined, route: 'moody-metered', cost: 12_300n },
    ] as const,
  };
};
type MoodyPayer = ReturnType<typeof moodyPayers>['payers'][number];

const LOOPS = 'first=loops';

/**
 * A call whose handler is good only the second time: nothing is charged at first, then the same credential is, once.
 * @param statuses of the first answer
 */
async function payAtSecondAttempt(payer: MoodyPayer, query: string, statuses: number[]): Promise<void> {
  const { client, token, route, cost } = payer;
  const what = `${token ?? 'session'} ${route} ${query}`;
  const money = async () => (token ? await balance(token, client.address) : 0n);
  const before = await money();
  // A wallet pays in both tokens: each of its clients has its own first time.
  const url = `${host.url}/shop/${route}?${query}&token=${token}&try=${attempt}`;
  const first = await client.fetch(url);
  expect(statuses, `${what}: ${await first.text()}`).toContain(first.status);
  expect(first.headers.get('x-payment-amount'), what).toBeNull();
  expect(await money(), what).toBe(before);
  const headers = { ...client.sent };
  // A tenant that was killed is started again after a pause, and one that hung may still be about to be killed.
  const second = await until(async () => {
    const answer = await fetch(url, { headers });
    return query === LOOPS && statuses.includes(answer.status) ? undefined : answer;
  });
  expect(second.status, `${what}: ${await second.clone().text()}`).toBe(200);
  expect(second.headers.get('x-payment-amount'), what).toBe(formatUsd(micro(cost)));
  const { id } = (await second.json()) as { id: string };
  expect(second.headers.get('x-payment-id'), what).toBe(id);
  const third = await fetch(url, { headers });
  expect([third.status, third.headers.get('x-payment-replayed')], what).toEqual([200, '1']);
  expect(third.headers.get('x-payment-id'), what).toBe(id);
  // What a plain charge held beyond the cost goes back after the answer.
  if (token) await until(async () => before - (await money()) === cost || undefined);
}

test('a handler that fails, throws, hangs or is killed: nothing is charged, and the same credential pays later, once', async () => {
  const { payers, session } = moodyPayers();
  const before = await Promise.all(payers.map(({ client, token }) => balance(token ?? 'tempo', client.address)));
  for (const [first, statuses] of [
    ['fails', [500]],
    ['throws', [500]],
    ['hangs', [504]],
  ] as const)
    await Promise.all(payers.map((payer) => payAtSecondAttempt(payer, `first=${first}`, [...statuses])));
  // Killed for its CPU: the forwarding sees the connection break, or hears why, unless its deadline comes first. One
  // after the other, as a kill takes along all that the instance has in hand.
  const [charge, , , upto, voucher] = payers;
  for (const payer of [charge, upto, voucher]) await payAtSecondAttempt(payer, LOOPS, [502, 503, 504]);
  expect((await session.close())?.spent).toBe(String(4n * 12_300n));
  for (const [index, payer] of payers.entries()) {
    const { client, token, cost } = payer;
    const calls = payer === charge || payer === upto || payer === voucher ? 4n : 3n;
    expect((before[index] ?? 0n) - (await balance(token ?? 'tempo', client.address)), String(index)).toBe(calls * cost);
  }
});

test('x-charge: more than the price is clamped, nothing is free, and what is no amount is refused at no cost', async () => {
  const { payers, session } = moodyPayers();
  const metered = payers.filter(({ route }) => route === 'moody-metered');
  const before = await Promise.all(metered.map(({ client, token }) => balance(token ?? 'tempo', client.address)));
  const nonsense = ['-1', '-0.01', 'NaN', 'Infinity', '1e-2', '0.0000001', '0.01, 0.02', '$1'];
  await Promise.all(
    metered.map(async (payer) => {
      const refused = (charge: string) =>
        payAtSecondAttempt(payer, `first=says&charge=${encodeURIComponent(charge)}`, [502]);
      // The very first call of a session opens its channel, whatever the handler says.
      for (const charge of nonsense.slice(0, 2)) await refused(charge);
      for (const [charge, taken] of [
        ['0.06', '0.05'],
        ['999999999999', '0.05'],
        ['0', '0.00'],
      ] as const) {
        const url = `${host.url}/shop/moody-metered?first=says&charge=${charge}&token=${payer.token}&try=${attempt}`;
        const answer = await payer.client.fetch(url);
        expect([answer.status, answer.headers.get('x-payment-amount')], charge).toEqual([200, taken]);
        expect(answer.headers.get('x-charge')).toBeNull();
      }
      for (const charge of nonsense.slice(2)) await refused(charge);
    }),
  );
  const cost = BigInt(nonsense.length) * 12_300n + 100_000n;
  expect((await session.close())?.spent).toBe(String(cost));
  for (const [index, { client, token }] of metered.entries()) {
    const paid = async () => (before[index] ?? 0n) - (await balance(token ?? 'tempo', client.address));
    await until(async () => (await paid()) === cost || undefined);
  }
});

test('env.PAYMENTS sells at a price that the handler makes', async () => {
  const [m, x] = [mpp(1), x402(2)];
  const [t, u] = [await balance('tempo', m.address), await balance('usdc', x.address)];
  expect(await (await m.fetch(`${host.url}/shop/quote`)).json()).toEqual({
    payer: `did:pkh:eip155:1337:${m.address.toLowerCase()}`,
  });
  expect((await x.fetch(`${host.url}/shop/quote`)).status).toBe(200);
  expect(t - (await balance('tempo', m.address))).toBe(30_000n);
  expect(u - (await balance('usdc', x.address))).toBe(30_000n);
});

test('a caller that leaves after it paid is not charged again when it comes back', async () => {
  const client = mpp(1);
  const before = await balance('tempo', client.address);
  const abort = new AbortController();
  const shop = async (path: string) => (await (await fetch(`${host.url}/shop/${path}`)).json()) as { started: number };
  const earlier = (await shop('started')).started;
  const call = client.fetch(`${host.url}/shop/waits`, { signal: abort.signal }).catch(() => 'left');
  await until(async () => (await shop('started')).started === earlier + 1 || undefined);
  abort.abort();
  expect(await call).toBe('left');
  await shop('go');
  const headers = { authorization: client.sent.authorization ?? '' };
  const answer = await fetch(`${host.url}/shop/waits`, { headers });
  expect([answer.status, answer.headers.get('x-payment-replayed')]).toEqual([200, '1']);
  expect(((await answer.json()) as { id: string }).id).toBe(answer.headers.get('x-payment-id'));
  expect((await shop('started')).started).toBe(earlier + 1);
  expect(before - (await balance('tempo', client.address))).toBe(10_000n);
});

test('usage counts each request of a caller once, and revenue what was charged', async () => {
  const client = mpp(0);
  const usage = async () => {
    const answer = await client.fetch(`${host.url}/_admin/shop/usage`);
    const { days, revenue } = (await answer.json()) as {
      days: { requests: number }[];
      revenue: { route: string; payments: number; grossUsd: string }[];
    };
    return { requests: days.reduce((sum, day) => sum + day.requests, 0), revenue };
  };
  // The edges report every second: until then, earlier calls are not in it.
  const steady = async (least: number) => {
    let [last, since] = [-1, 0];
    return await until(async () => {
      const now = await usage();
      if (now.requests !== last) [last, since] = [now.requests, performance.now()];
      return now.requests >= least && performance.now() - since > 2_500 ? now : undefined;
    });
  };
  const before = await steady(0);
  for (let i = 0; i < 3; i += 1) expect((await mpp(1).fetch(`${host.url}/shop/fixed`)).status).toBe(200);
  // Each of them was asked to pay first.
  const after = await steady(before.requests + 6);
  expect(after.requests - before.requests).toBe(6);
  const fixed = ({ revenue }: typeof after) => revenue.find(({ route }) => route === 'GET /fixed');
  expect((fixed(after)?.payments ?? 0) - (fixed(before)?.payments ?? 0)).toBe(3);
});

test('the operator’s metrics count payments by what became of them', async () => {
  const text = await until(async () => {
    const metrics = (await host.operator('GET', '/metrics')).text;
    // Until the last payout is on the chain, it is owed.
    return /^turnpike_payments_owed_usd\{[^}]*\} 0$/m.test(metrics) ? metrics : undefined;
  });
  const count = (name: string, rail: string, outcome: string) => {
    const line = text.split('\n').find((each) => {
      const labels = [`rail="${rail}"`, 'kind="route"', `outcome="${outcome}"`];
      return each.startsWith(`${name}{`) && labels.every((label) => each.includes(label));
    });
    return Number(line?.split(' ').at(-1));
  };
  // At least: tests that were tried again have paid again. 7 calls that paid for what failed at first, and 8 + 2 of the metered route for its charges.
  expect(count('turnpike_payments_total', 'tempo/charge', 'charged')).toBeGreaterThanOrEqual(10 + 7 + 10);
  expect(count('turnpike_payments_total', 'tempo/charge', 'free')).toBeGreaterThanOrEqual(1);
  expect(count('turnpike_payments_total', 'tempo/charge', 'released')).toBeGreaterThanOrEqual(7 + 8);
  expect(count('turnpike_payments_total', 'x402/exact', 'charged')).toBeGreaterThanOrEqual(1 + 3);
  expect(count('turnpike_payments_total', 'x402/upto', 'charged')).toBeGreaterThanOrEqual(1 + 4 + 10);
  expect(count('turnpike_payments_total', 'tempo/session', 'charged')).toBeGreaterThanOrEqual(26 + 4 + 10);
  const session = (26 + 4 + 8) * 0.0123 + 2 * 0.05;
  expect(count('turnpike_payments_usd_total', 'tempo/session', 'charged')).toBeGreaterThan(session - 1e-6);
});

test.each([204, 205, 304])(
  'an answer %i without a body is charged, passed on and replayed as it is',
  async (status) => {
    const client = mpp(1);
    const url = `${host.url}/shop/none?status=${status}`;
    const before = await balance('tempo', payTo);
    const paid = await client.fetch(url);
    expect([paid.status, paid.headers.get('x-payment-amount'), await paid.text()]).toEqual([status, '0.01', '']);
    const again = await fetch(url, { headers: client.sent });
    expect([again.status, again.headers.get('x-payment-replayed')]).toEqual([status, '1']);
    expect((await balance('tempo', payTo)) - before).toBe(10_000n);
  },
);

test('the host is killed in the middle of a paid call: the retry settles it once', async () => {
  const client = mpp(1);
  const before = await balance('tempo', client.address);
  const call = client.fetch(`${host.url}/shop/fixed`).catch(() => undefined);
  await until(() => client.sent.authorization || undefined);
  await host.kill();
  await call;
  host = await host.restart();
  const retry = await fetch(`${host.url}/shop/fixed`, { headers: { authorization: client.sent.authorization ?? '' } });
  expect(retry.status).toBe(200);
  expect(before - (await balance('tempo', client.address))).toBe(10_000n);
});

test('the operator’s reconciliation finds no difference', async () => {
  const { status, json } = await host.operator('POST', '/payments/reconcile');
  expect(json).toMatchObject({ ok: true, differences: [] });
  expect(status).toBe(200);
});
