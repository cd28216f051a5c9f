/** Clients of x402 v1 pay for a tenant's routes and the host's own calls: charged once, whatever is shown again, and how. */
import path from 'node:path';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { ExactEvmSchemeV1 } from '@x402/evm/exact/v1/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { requestSocket } from './support/host.ts';
import { balance, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: Hex;

const ROUTES = [
  { method: 'GET', path: '/report', price: '0.01' },
  { method: 'GET', path: '/other', price: '0.01' },
  { method: 'GET', path: '/dear', price: '0.02' },
  { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
];

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: ROUTES });
});
afterEach(() => rig.close());

/** A stock client that pays by v1 alone, with default settings: it does not see the terms of v2. `sent`: what it paid with last. */
function clientOf(index: number) {
  const account = privateKeyToAccount(network.wallets?.[index]?.privateKey ?? '0x');
  const sent: { payment: string | undefined } = { payment: undefined };
  const fetchV1 = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    sent.payment = request.headers.get('x-payment') ?? sent.payment;
    const answer = await fetch(request);
    const headers = new Headers(answer.headers);
    headers.delete('payment-required');
    return new Response(answer.body, { status: answer.status, headers });
  };
  const client = new x402Client().registerV1('base-sepolia', new ExactEvmSchemeV1(account) as never);
  return { address: account.address, sent, fetch: wrapFetchWithPayment(fetchV1 as typeof fetch, client) };
}

const usdc = (address: string) => balance(network, 'usdc', address);
const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());
const show = (path: string, headers: Record<string, string>, init: RequestInit = {}) =>
  fetch(`${rig.url}${path}`, { ...init, headers });
const reconciled = async () => expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);

test('a route is paid, with the receipt that v1 reads, and the handler sees no payment', async () => {
  const client = clientOf(0);
  const before = await usdc(client.address);
  const answer = await client.fetch(`${rig.url}/report`);
  expect(answer.status).toBe(200);
  expect(decoded(answer.headers.get('x-payment-response'))).toMatchObject({
    success: true,
    network: 'base-sepolia',
    payer: client.address.toLowerCase(),
    transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/),
  });
  expect(answer.headers.get('access-control-expose-headers')).toContain('X-PAYMENT-RESPONSE');
  expect(rig.calls[0]?.headers.get('x-payment')).toBeNull();
  expect([before - (await usdc(client.address)), await usdc(payTo)]).toEqual([10_000n, 10_000n]);
  await reconciled();
});

test('a metered route takes the whole price of who knows only exact, and sends back what was not used', async () => {
  const account = privateKeyToAccount(network.wallets?.[6]?.privateKey ?? '0x');
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account));
  const v2 = { address: account.address, fetch: wrapFetchWithPayment(fetch, client) };
  const accepted = decoded((await fetch(`${rig.url}/metered`)).headers.get('payment-required'));
  expect(accepted.accepts.map(({ scheme }: { scheme: string }) => scheme)).toEqual([
    'upto',
    'exact',
    'batch-settlement',
  ]);
  expect(accepted.resource.description).toContain('sent back');
  let used = 0n;
  for (const payer of [v2, clientOf(0)]) {
    const before = await usdc(payer.address);
    const call = async (charge: string, status = 200) => {
      rig.handler = () => new Response('work', { status, headers: { 'x-charge': charge } });
      return await payer.fetch(`${rig.url}/metered`);
    };
    const answers = [await call('0.0123'), await call('0.05'), await call('9'), await call('0.000001')];
    expect(answers.map(({ headers }) => headers.get('x-payment-amount'))).toEqual([
      '0.0123',
      '0.05',
      '0.05',
      '0.000001',
    ]);
    expect((await call('0')).status).toBe(200);
    expect((await call('0.01', 500)).status).toBe(500);
    used += 112_301n;
    await until(async () => before - (await usdc(payer.address)) === 112_301n);
  }
  await until(async () => (await usdc(payTo)) === used);
  await reconciled();
});

test('a call of the host’s own is paid, and its body is read with the payment', async () => {
  const answer = await clientOf(1).fetch(`${rig.url}/_deploy`, { method: 'POST', body: 'x' });
  expect(answer.status).toBe(201);
  expect(decoded(answer.headers.get('x-payment-response')).network).toBe('base-sepolia');
  expect(rig.completed).toHaveLength(1);
  await reconciled();
});

test('a payment is good once: shown again, as v2, elsewhere, or by many at once', async () => {
  const client = clientOf(2);
  const before = await usdc(client.address);
  expect((await client.fetch(`${rig.url}/report`)).status).toBe(200);
  const payment = client.sent.payment ?? '';
  const again = await show('/report', { 'x-payment': payment });
  expect([again.status, again.headers.get('x-payment-replayed')]).toEqual([200, '1']);
  const { accepts } = decoded((await fetch(`${rig.url}/report`)).headers.get('payment-required'));
  const [accepted] = accepts;
  const { payload } = decoded(payment);
  const v2 = Buffer.from(JSON.stringify({ x402Version: 2, accepted, payload })).toString('base64');
  expect((await show('/report', { 'payment-signature': v2 })).status).toBe(402);
  for (const path of ['/other', '/dear', '/report?a=b'])
    expect((await show(path, { 'x-payment': payment })).status, path).toBe(402);
  expect((await show('/_deploy', { 'x-payment': payment }, { method: 'POST', body: 'x' })).status).toBe(402);
  const many = await Promise.all(Array.from({ length: 10 }, () => show('/report', { 'x-payment': payment })));
  expect(new Set(many.map(({ headers }) => headers.get('x-payment-id'))).size).toBe(1);
  expect(rig.calls).toHaveLength(1);
  expect(before - (await usdc(client.address))).toBe(10_000n);
  await reconciled();
});

test('both versions of one authorization at once are one payment', async () => {
  const client = clientOf(3);
  const before = await usdc(client.address);
  // Signed, and not used: the handler fails.
  rig.handler = () => new Response('no', { status: 500 });
  await client.fetch(`${rig.url}/report`);
  rig.handler = () => Response.json({});
  const payment = client.sent.payment ?? '';
  const [accepted] = decoded((await fetch(`${rig.url}/report`)).headers.get('payment-required')).accepts;
  const { payload } = decoded(payment);
  const v2 = Buffer.from(JSON.stringify({ x402Version: 2, accepted, payload })).toString('base64');
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      show('/report', index % 2 === 0 ? { 'x-payment': payment } : { 'payment-signature': v2 }),
    ),
  );
  const good = answers.filter(({ status }) => status === 200);
  expect(good).toHaveLength(6);
  expect(new Set(good.map(({ headers }) => headers.get('x-payment-id'))).size).toBe(1);
  expect(before - (await usdc(client.address))).toBe(10_000n);
  await reconciled();
});

test('a payment that says another price, payee or network than is sold, or is signed for it, buys nothing', async () => {
  const client = clientOf(4);
  const before = await usdc(client.address);
  rig.handler = () => new Response('no', { status: 500 });
  await client.fetch(`${rig.url}/report`);
  rig.handler = () => Response.json({});
  const good = decoded(client.sent.payment ?? '');
  const { authorization } = good.payload;
  const changed = (change: object) => ({
    ...good,
    payload: { ...good.payload, authorization: { ...authorization, ...change } },
  });
  for (const bad of [
    { ...good, network: 'base' },
    changed({ value: '1' }),
    changed({ value: '20000' }),
    changed({ to: client.address }),
    changed({ from: payTo }),
    changed({ nonce: `0x${'7'.repeat(64)}` }),
    changed({ validBefore: '1' }),
  ]) {
    const payment = Buffer.from(JSON.stringify(bad)).toString('base64');
    const answer = await show('/report', { 'x-payment': payment });
    expect(answer.status, JSON.stringify(bad)).toBe(402);
    const { x402Version, accepts, error, detail } = (await answer.json()) as Record<string, unknown>;
    expect({ x402Version, error }).toEqual({ x402Version: 1, error: detail });
    expect(accepts).toHaveLength(1);
  }
  expect(rig.calls).toHaveLength(1);
  expect(before - (await usdc(client.address))).toBe(0n);
});

/** What a handler has as env.PAYMENTS. */
async function bindingOf(tenant: string) {
  const socketPath = path.join(rig.folder, `${tenant}.sock`);
  await rig.payments.bindings.open({ tenant, slug: tenant, payTo: payTo.toLowerCase() as Hex, socket: socketPath });
  return async (route: string, body: object, payment?: string) => {
    const headers = payment === undefined ? {} : { 'x-payment': payment };
    const { status, json } = await requestSocket(socketPath, 'POST', route, body, headers);
    return { status, body: json as Record<string, unknown> & { hold: string; detail: string; headers: object } };
  };
}
const ORDER = { amount: '0.05', bind: 'order 1', x402v1: true };

test('what a handler sells is paid, where the handler says all that the payment is for', async () => {
  const payments = await bindingOf('tseller0000000000000');
  rig.handler = async (request) => {
    const verified = await payments('/verify', ORDER, request.headers.get('x-payment') ?? undefined);
    if (verified.status !== 200) {
      const { body } = await payments('/challenge', { ...ORDER, resource: request.url });
      return Response.json(body, { status: 402 });
    }
    const captured = await payments('/capture', { hold: verified.body.hold, amount: '0.03' });
    return Response.json(verified.body, { headers: captured.body.headers as Record<string, string> });
  };
  const client = clientOf(5);
  const before = await usdc(client.address);
  const answer = await client.fetch(`${rig.url}/shop`);
  expect(answer.status).toBe(200);
  expect(decoded(answer.headers.get('x-payment-response'))).toMatchObject({ success: true, network: 'base-sepolia' });
  expect(await answer.json()).toMatchObject({ amount: '0.05', rail: 'x402/exact', metadata: {}, again: false });
  // All that is signed moves; what was not captured comes back.
  await until(async () => before - (await usdc(client.address)) === 30_000n && (await usdc(payTo)) === 30_000n);
  await reconciled();
});

test('a payment that says nothing buys what it was first taken for, once, from who asks for it in full', async () => {
  const [payments, others] = [await bindingOf('tseller0000000000000'), await bindingOf('tother00000000000000')];
  const client = clientOf(5);
  const terms = async (challenge: object) => (await payments('/challenge', challenge)).body;
  for (const challenge of [{ amount: '0.05' }, { amount: '0.05', bind: 'order 1', metadata: { order: '1' } }])
    expect(await terms(challenge)).not.toHaveProperty('accepts');
  rig.handler = async () => Response.json(await terms(ORDER), { status: 402 });
  await client.fetch(`${rig.url}/shop`).catch(() => undefined);
  const payment = client.sent.payment ?? '';
  const before = await usdc(client.address);
  const refused = async (wanted: object, status: number, at = payments) =>
    expect((await at('/verify', wanted, payment)).status, JSON.stringify(wanted)).toBe(status);
  // Without "x402v1", a handler is not given payments that name neither the order nor the price.
  for (const wanted of [{}, { amount: '0.05' }, { amount: '0.05', bind: 'order 1' }]) await refused(wanted, 402);
  for (const wanted of [{ x402v1: true }, { x402v1: true, amount: '0.05' }, { x402v1: true, bind: 'order 1' }])
    await refused(wanted, 400);
  await refused({ ...ORDER, amount: '5.00' }, 402);
  await refused({ ...ORDER, amount: '0.01' }, 402);
  const many = await Promise.all(
    Array.from({ length: 10 }, (_, index) => (index % 2 === 0 ? payments : others)('/verify', ORDER, payment)),
  );
  const taken = many.filter(({ status }) => status === 200);
  expect(new Set(taken.map(({ body }) => body.payment)).size).toBe(1);
  expect(taken).toHaveLength(5);
  const sold = many[0]?.status === 200 ? payments : others;
  await refused({ ...ORDER, bind: 'order 2' }, 402, sold);
  await refused(ORDER, 402, sold === payments ? others : payments);
  for (const route of ['/report', '/metered']) expect((await show(route, { 'x-payment': payment })).status).toBe(402);
  const captures = await Promise.all(
    taken.map(({ body }) => sold('/capture', { hold: body.hold, amount: '0.05' }).then(({ status }) => status)),
  );
  expect(captures.filter((status) => status === 200)).toHaveLength(1);
  await until(async () => (await usdc(payTo)) === 50_000n);
  expect(before - (await usdc(client.address))).toBe(50_000n);
  await reconciled();
});
