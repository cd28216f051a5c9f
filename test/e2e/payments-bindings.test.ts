/** env.PAYMENTS over its unix socket: prices made at run time, in the tenant's own name and in nobody else's. */
import path from 'node:path';
import { Agent, fetch as undiciFetch } from 'undici';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { formatUsd, micro } from '../../host/shared/money.ts';
import {
  balance,
  mandateClient,
  mppClient,
  type Rig,
  revokeKey,
  startNetwork,
  startRig,
  x402Client,
} from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: string;
const agents: Agent[] = [];

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo });
});
afterEach(async () => {
  await Promise.all(agents.splice(0).map((agent) => agent.close()));
  await rig.close();
});

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

/** What a handler has as env.PAYMENTS. */
async function binding(tenant: string, address = payTo) {
  const socket = path.join(rig.folder, `${tenant}.sock`);
  await rig.payments.bindings.open({ tenant, slug: tenant, payTo: address.toLowerCase() as Hex, socket });
  const agent = new Agent({ connect: { socketPath: socket } });
  agents.push(agent);
  return async (route: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Response> =>
    (await undiciFetch(`http://payments${route}`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', ...headers },
      dispatcher: agent,
    })) as unknown as Response;
}

type Binding = Awaited<ReturnType<typeof binding>>;

/** A handler as a tenant would write it: asks for money, then captures what the work cost. */
function selling(
  payments: Binding,
  price: { amount: string; bind?: string; metadata?: Record<string, string> },
  cost?: string,
) {
  rig.handler = async (request) => {
    const caller = Object.fromEntries(
      [...request.headers].filter(([name]) => name === 'authorization' || name === 'payment-signature'),
    );
    const bind = price.bind === undefined ? {} : { bind: price.bind };
    const verified = await payments('/verify', bind, caller);
    if (!verified.ok)
      return payments('/challenge', { ...price, description: 'Priced just now', resource: request.url });
    const hold = (await verified.json()) as { hold: string; payer: string; metadata: unknown; amount: string };
    const captured = await payments('/capture', { hold: hold.hold, ...(cost === undefined ? {} : { amount: cost }) });
    const { headers } = (await captured.json()) as { headers: Record<string, string> };
    return Response.json(hold, { status: captured.status, headers });
  };
}

test('a price made at run time is paid by stock clients, with its metadata', async () => {
  const payments = await binding('tone0000000000000000a');
  selling(payments, { amount: '0.07', bind: 'order 1', metadata: { order: '1', note: 'ünïcode' } });
  for (const [client, token] of [
    [mppClient(network, key(0)), 'tempo'],
    [x402Client(network, key(1)), 'usdc'],
  ] as const) {
    const before = await balance(network, token, client.address);
    const response = await client.fetch(`${rig.url}/buy`);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({
      payer: `did:pkh:eip155:1337:${client.address.toLowerCase()}`,
      amount: '0.07',
      metadata: { order: '1', note: 'ünïcode' },
    });
    expect(response.headers.get('x-payment-amount')).toBe('0.07');
    expect(before - (await balance(network, token, client.address))).toBe(70_000n);
    await until(async () => (await balance(network, token, payTo)) === 70_000n);
  }
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('a capture of less gives the rest back', async () => {
  const payments = await binding('tone0000000000000000a');
  selling(payments, { amount: '1' }, '0.25');
  const client = mppClient(network, key(0));
  const before = await balance(network, 'tempo', client.address);
  expect((await client.fetch(`${rig.url}/buy`)).status).toBe(200);
  await until(async () => before - (await balance(network, 'tempo', client.address)) === 250_000n);
  await until(async () => (await balance(network, 'tempo', payTo)) === 250_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

/** Pays a challenge of `seller` and gives the credential's headers, not yet verified by anybody. */
async function credentialFor(seller: Binding, price: object, index = 2): Promise<Record<string, string>> {
  const client = mppClient(network, key(index));
  rig.handler = async (request) =>
    request.headers.get('authorization') ? new Response('kept') : seller('/challenge', price);
  await client.fetch(`${rig.url}/buy`);
  return { authorization: client.sent.authorization ?? '' };
}

test('holds belong to their tenant: nobody else verifies, captures or releases them', async () => {
  const one = await binding('tone0000000000000000a');
  const two = await binding('ttwo0000000000000000b', privateKeyToAccount(generatePrivateKey()).address);
  const credential = await credentialFor(one, { amount: '0.05' });
  expect((await two('/verify', {}, credential)).status).toBe(402);
  const verified = await one('/verify', {}, credential);
  expect(verified.status).toBe(200);
  const { hold } = (await verified.json()) as { hold: string };
  expect((await two('/capture', { hold })).status).toBe(404);
  expect((await two('/release', { hold })).status).toBe(404);
  expect((await one('/capture', { hold, amount: '0.06' })).status).toBe(400);
  expect((await one('/capture', { hold })).status).toBe(200);
});

test('what a payment was bound to must be named again', async () => {
  const payments = await binding('tone0000000000000000a');
  const credential = await credentialFor(payments, { amount: '0.05', bind: 'body digest' });
  expect((await payments('/verify', {}, credential)).status).toBe(402);
  expect((await payments('/verify', { bind: 'another' }, credential)).status).toBe(402);
  expect((await payments('/verify', { bind: 'body digest', amount: '0.01' }, credential)).status).toBe(402);
  expect((await payments('/verify', { bind: 'body digest', amount: '0.05' }, credential)).status).toBe(200);
});

test('verify, capture and release can be repeated; a released hold costs nothing', async () => {
  const payments = await binding('tone0000000000000000a');
  const client = privateKeyToAccount(key(2));
  const before = await balance(network, 'tempo', client.address);
  const credential = await credentialFor(payments, { amount: '0.05' });
  const first = (await (await payments('/verify', {}, credential)).json()) as { hold: string };
  const second = (await (await payments('/verify', {}, credential)).json()) as { hold: string; again: boolean };
  expect(second).toMatchObject({ payment: first.hold, again: true });
  expect(await (await payments('/release', { hold: first.hold })).json()).toMatchObject({ state: 'released' });
  expect(await (await payments('/release', { hold: first.hold })).json().catch(() => ({}))).toMatchObject({
    state: 'released',
  });
  expect((await payments('/capture', { hold: first.hold })).status).toBe(409);
  expect(await balance(network, 'tempo', client.address)).toBe(before);
  const other = await credentialFor(payments, { amount: '0.05' });
  const { hold } = (await (await payments('/verify', {}, other)).json()) as { hold: string };
  const captures = await Promise.all(Array.from({ length: 5 }, () => payments('/capture', { hold, amount: '0.05' })));
  for (const capture of captures) expect(capture.status).toBe(200);
  expect((await payments('/capture', { hold })).status).toBe(409);
  const later = (await (await payments('/verify', {}, other)).json()) as { hold: string };
  expect((await payments('/capture', { hold: later.hold, amount: '0.05' })).status).toBe(409);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(50_000n);
});

test('holds of a wallet are covered together', async () => {
  const payments = await binding('tone0000000000000000a');
  const held = await balance(network, 'tempo', privateKeyToAccount(key(2)).address);
  const amount = formatUsd(micro((held * 6n) / 10n));
  const first = await credentialFor(payments, { amount });
  const second = await credentialFor(payments, { amount });
  const { hold } = (await (await payments('/verify', {}, first)).json()) as { hold: string };
  // The same one again is no other one.
  expect((await payments('/verify', {}, first)).status).toBe(200);
  const refused = await payments('/verify', {}, second);
  expect([refused.status, await refused.text()]).toEqual([402, expect.stringContaining('are promised')]);
  expect((await payments('/release', { hold })).status).toBe(200);
  expect((await payments('/verify', {}, second)).status).toBe(200);
});

test('a hold is settled before its signature runs out, and goes back when it is released', async () => {
  const payments = await binding('tone0000000000000000a');
  const client = privateKeyToAccount(key(3));
  const before = await balance(network, 'tempo', client.address);
  const credential = await credentialFor(payments, { amount: '0.05' }, 3);
  const { hold } = (await (await payments('/verify', {}, credential)).json()) as { hold: string };
  await until(async () => before - (await balance(network, 'tempo', client.address)) === 50_000n);
  await until(async () =>
    ((await (await payments('/release', { hold })).json()) as { state: string }).state.startsWith('refund'),
  );
  await until(async () => (await balance(network, 'tempo', client.address)) === before);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('a proof names the caller to the tenant', async () => {
  const payments = await binding('tone0000000000000000a');
  const client = mppClient(network, key(4));
  rig.handler = (request) => {
    const authorization = request.headers.get('authorization');
    return payments('/proof', { scope: 'me' }, authorization ? { authorization } : {});
  };
  const response = await client.fetch(`${rig.url}/me`);
  expect(await response.json()).toEqual({
    payer: `did:pkh:eip155:1337:${client.address.toLowerCase()}`,
    address: client.address.toLowerCase(),
  });
  expect(
    (await payments('/proof', { scope: 'other' }, { authorization: client.sent.authorization ?? '' })).status,
  ).toBe(402);
});

test('bad input is refused with the field that is bad; closing removes the socket', async () => {
  const payments = await binding('tone0000000000000000a');
  for (const body of [{}, { amount: 1 }, { amount: '0' }, { amount: '-1' }, { amount: '1', surprise: 1 }]) {
    const response = await payments('/challenge', body);
    expect(response.status).toBe(400);
  }
  expect((await payments('/steal')).status).toBe(404);
  expect((await payments('/verify')).status).toBe(402);
  await rig.payments.bindings.close({ tenant: 'tone0000000000000000a' });
  await expect(payments('/verify')).rejects.toThrow();
});

interface Signed {
  mandate: string;
  payer: string;
  key: string;
  days: number;
  metadata: Record<string, string>;
}

/** Has a stock client sign a mandate of a tenant. @returns what the tenant keeps, and what the client sent */
async function signed(payments: Binding, client: ReturnType<typeof mandateClient>, more: object = {}) {
  const until = new Date(Date.now() + 5 * 86_400_000).toISOString();
  const asked = { amount: '0.50', days: 1, until, metadata: { account: 'a1' }, bind: 'b', ...more };
  rig.handler = async (request) => {
    const authorization = request.headers.get('authorization');
    return authorization === null
      ? payments('/mandate', asked)
      : payments('/mandate/accept', { bind: asked.bind }, { authorization });
  };
  const answer = await client.fetch(`${rig.url}/mandate`, { method: 'POST' });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Signed;
}

const DRAW = { amount: '0.20', bind: 'draw 1', resource: 'http://localhost:8402/draw' };

/** Draws as a tenant would. @returns the answer of `/verify`, or why nothing was signed */
async function draw(payments: Binding, mandate: string, challenge: typeof DRAW = DRAW) {
  const paid = await payments('/mandate/pay', { mandate, challenge });
  const body = (await paid.json()) as { authorization?: string; mandate?: string; code?: string };
  if (body.authorization === undefined) return { status: paid.status, ...body };
  const verified = await payments('/verify', challenge, { authorization: body.authorization });
  // The chain may know of the other one by now.
  if (!verified.ok) return { status: verified.status };
  const held = (await verified.json()) as { hold: string; state: string };
  const captured = await payments('/capture', { hold: held.hold, amount: challenge.amount });
  return { status: captured.status, authorization: body.authorization, hold: held.hold };
}

test('a mandate that a stock client signs once is drawn on up to its limit, which the chain keeps, too', async () => {
  const payments = await binding('tone0000000000000000a');
  const client = mandateClient(network, key(3));
  const before = await balance(network, 'tempo', client.address);
  const { mandate, payer, key: address, ...rest } = await signed(payments, client);
  expect({ payer, ...rest }).toMatchObject({
    payer: client.address.toLowerCase(),
    days: 1,
    metadata: { account: 'a1' },
  });
  expect(before - (await balance(network, 'tempo', client.address))).toBe(0n);
  for (const bind of ['1', '2']) expect((await draw(payments, mandate, { ...DRAW, bind })).status).toBe(200);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(400_000n);
  expect(await draw(payments, mandate)).toMatchObject({ status: 402, code: 'payment_invalid', mandate: 'limit' });
  // Two at once of what is left: both are signed, and the chain lets one happen.
  const both = await Promise.all(['3', '4'].map((bind) => draw(payments, mandate, { ...DRAW, amount: '0.10', bind })));
  expect(both.map(({ status }) => status).sort()).toEqual([200, 402]);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(500_000n);
  await revokeKey(network, key(3), address);
  expect(await draw(payments, mandate, { ...DRAW, amount: '0.01' })).toMatchObject({ status: 402, mandate: 'revoked' });
  await until(async () => (await balance(network, 'tempo', payTo)) === 500_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('a mandate is of one tenant, for what it was signed for, and pays for nothing by itself', async () => {
  const payments = await binding('tone0000000000000000a');
  const other = await binding('ttwo0000000000000000a');
  const client = mandateClient(network, key(4));
  const { mandate } = await signed(payments, client);
  const authorization = client.sent.authorization ?? '';
  // Again is the same mandate: nothing is noted of it here.
  expect(await (await payments('/mandate/accept', { bind: 'b' }, { authorization })).json()).toMatchObject({ mandate });
  for (const [by, body] of [
    [other, { bind: 'b' }],
    [payments, { bind: 'other' }],
    [payments, {}],
  ] as const)
    expect((await by('/mandate/accept', body, { authorization })).status).toBe(402);
  expect((await payments('/verify', { bind: 'b' }, { authorization })).status).toBe(402);
  expect((await fetch(`${rig.url}/_deploy`, { method: 'POST', headers: { authorization }, body: 'x' })).status).toBe(
    402,
  );
  expect(await draw(other, mandate)).toMatchObject({ status: 404 });
  expect(await draw(payments, `${mandate.slice(0, -2)}xx`)).toMatchObject({ status: 404 });
  // A payment is no mandate.
  const paid = await payments('/mandate/pay', { mandate, challenge: DRAW });
  const charge = ((await paid.json()) as { authorization: string }).authorization;
  expect((await payments('/mandate/accept', { bind: 'b' }, { authorization: charge })).status).toBe(402);
});

test('a wallet that cannot pay is told from a mandate that has ended', async () => {
  const payments = await binding('tone0000000000000000a');
  const poor = generatePrivateKey();
  const { mandate } = await signed(payments, mandateClient(network, poor));
  expect(await draw(payments, mandate)).toMatchObject({ status: 402, mandate: 'funds' });
});

test.each([
  [{ days: 0 }],
  [{ days: 1.5 }],
  [{ until: new Date(Date.now() + 3_600_000).toISOString() }],
  [{ until: new Date(Date.now() + 400 * 86_400_000).toISOString() }],
  [{ until: 'tomorrow' }],
  [{ amount: '0' }],
])('a mandate with %j is not asked for', async (more) => {
  const payments = await binding('tone0000000000000000a');
  const until = new Date(Date.now() + 5 * 86_400_000).toISOString();
  expect((await payments('/mandate', { amount: '1', days: 30, until, ...more })).status).toBe(400);
});
