/**
 * Stock clients pay by x402 where a facilitator elsewhere settles: one of x402's own packages, in a process of its own,
 * and with faults. Nothing is charged twice, nothing is given away, and what it says counts only where the chain says so.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { jsonPost, x402Fetch } from './support/callers.ts';
import { type Facilitator, startFacilitator } from './support/facilitators.ts';
import { startHost, type TestHost } from './support/host.ts';
import { balance, type Rig, startNetwork, startRig, x402Client } from './support/payments-rig.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

const PRICE = 50_000n;
const ROUTES = [
  { method: 'GET', path: '/a', price: '0.05' },
  { method: 'GET', path: '/m', price: '0.05', mode: 'metered' },
];

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let facilitator: Facilitator;
let payTo: Hex;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
  const { rpcUrl, network: name } = network.x402!;
  // Nothing costs gas there, so that any key can send.
  facilitator = await startFacilitator({ key: generatePrivateKey(), rpcUrl, network: name });
});
afterAll(async () => {
  facilitator.child.kill('SIGKILL');
  await stop();
});
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  for (const path of ['verify', 'settle', 'supported'] as const) await fault(path, 'none');
  await asked();
});
afterEach(async () => {
  await rig?.close();
  rig = undefined as never;
});

/** @param timeoutMs longest answer of the facilitator */
async function start(timeoutMs = 10_000): Promise<void> {
  rig = await startRig(network, {
    payTo,
    routes: ROUTES,
    facilitator: { url: `${facilitator.url}/`, key: 'k-secret', timeoutMs },
  });
  // With a length it is kept for whoever asks again.
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
}

const fault: Facilitator['fault'] = (path, kind) => facilitator.fault(path, kind);
const asked: Facilitator['asked'] = () => facilitator.asked();

const client = (index: number) => x402Client(network, network.wallets![index]!.privateKey);
const usdc = (address: string) => balance(network, 'usdc', address);
const states = async () =>
  (await rig.registry.client.execute('select state from payments order by created_at')).rows.map(({ state }) => state);
const again = (signature = '') => fetch(`${rig.url}/a`, { headers: { 'payment-signature': signature } });
const base64 = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64');
const reconciled = async () => expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);

test('exact and upto are settled by it, with its key, and the host sends nothing', async () => {
  await start();
  const paying = client(0);
  const { address } = network.hostAccounts.facilitator;
  const sentBefore = await network.x402!.getClient().getTransactionCount({ address });
  const before = await usdc(paying.address);
  const fixed = await paying.fetch(`${rig.url}/a`);
  expect(fixed.status).toBe(200);
  const receipt = JSON.parse(Buffer.from(fixed.headers.get('payment-response') ?? '', 'base64').toString());
  expect(receipt).toMatchObject({ success: true, transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/) });
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.02' } });
  expect((await paying.fetch(`${rig.url}/m`)).status).toBe(200);
  expect(await usdc(payTo)).toBe(PRICE + 20_000n);
  expect(await usdc(paying.address)).toBe(before - PRICE - 20_000n);
  expect(await network.x402!.getClient().getTransactionCount({ address })).toBe(sentBefore);
  const calls = await asked();
  expect(calls.map((call) => call.path)).toEqual(['supported', 'verify', 'settle', 'verify', 'settle']);
  expect(new Set(calls.map(({ headers }) => headers.authorization))).toEqual(new Set(['Bearer k-secret']));
  expect(calls[4]?.body).toMatchObject({
    x402Version: 2,
    paymentPayload: { resource: { url: `${rig.url}/m` }, extensions: expect.anything() },
    paymentRequirements: { scheme: 'upto', amount: '20000', payTo: payTo.toLowerCase() },
  });
  // A deploy, which goes to the host's own wallet.
  expect((await paying.fetch(`${rig.url}/_deploy`, { method: 'POST', body: 'app' })).status).toBe(201);
  await reconciled();
});

test('nothing is done for a payment that it does not take, whatever keeps it from that', async () => {
  await start(1_000);
  const paying = client(1);
  const before = await usdc(paying.address);
  for (const kind of ['hang', 'error', 'busy', 'unauthorized', 'refuse', 'garbage', 'huge', 'redirect']) {
    await fault('verify', kind);
    expect([(await paying.fetch(`${rig.url}/a`)).status, kind]).toEqual([402, kind]);
  }
  expect([rig.calls.length, await states()]).toEqual([0, []]);
  expect((await asked()).filter((call) => call.path === 'settle')).toEqual([]);
  // It is not asked about what this host refuses itself.
  await fault('verify', 'lie');
  const forged = JSON.parse(Buffer.from(paying.sent.signature ?? '', 'base64').toString());
  forged.payload.authorization.from = network.wallets![2]!.address;
  expect((await again(base64(forged))).status).toBe(402);
  expect(rig.calls).toHaveLength(0);
  // The same signature is good once it works again.
  await fault('verify', 'none');
  expect((await again(paying.sent.signature)).status).toBe(200);
  expect(await usdc(paying.address)).toBe(before - PRICE);
});

test('what it refuses to settle, and this host finds good, may be sent yet: it is found on the chain', async () => {
  await start(1_000);
  const paying = client(2);
  const before = await usdc(paying.address);
  await fault('settle', 'late');
  expect((await paying.fetch(`${rig.url}/a`)).status).toBe(503);
  await until(async () => (await usdc(payTo)) === PRICE);
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect((await again(paying.sent.signature)).status).toBe(200);
  // One that is not sent is asked for again.
  await fault('settle', 'refuse');
  expect((await paying.fetch(`${rig.url}/a`)).status).toBe(503);
  expect(await states()).toEqual(['answered', 'settling']);
  await fault('settle', 'none');
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect((await again(paying.sent.signature)).status).toBe(200);
  expect([rig.calls.length, await usdc(paying.address)]).toEqual([2, before - 2n * PRICE]);
  await reconciled();
});

test('a settlement that happened is found on the chain, whatever becomes of its answer', async () => {
  await start(2_000);
  const kinds = ['lost', 'silent', 'denied', 'pending'];
  const paying = client(3);
  const before = await usdc(paying.address);
  for (const kind of kinds) {
    await fault('settle', kind);
    const { status } = await paying.fetch(`${rig.url}/a`);
    expect([status, kind]).toEqual([kind === 'pending' ? 503 : 200, kind]);
  }
  // What was pending is found by the next start.
  await rig.restart();
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect((await again(paying.sent.signature)).status).toBe(200);
  expect((await asked()).filter((call) => call.path === 'settle')).toHaveLength(kinds.length);
  const paid = PRICE * BigInt(kinds.length);
  expect([await usdc(payTo), await usdc(paying.address)]).toEqual([paid, before - paid]);
  expect(rig.calls).toHaveLength(kinds.length);
  await reconciled();
});

test('a settlement that did not happen is asked for again, and answered once it has', async () => {
  await start(1_000);
  const kinds = ['hang', 'error', 'busy', 'unauthorized', 'poor', 'fail', 'lie', 'garbage', 'huge', 'redirect'];
  const paying = client(4);
  const before = await usdc(paying.address);
  for (const kind of kinds) {
    await fault('settle', kind);
    expect([(await paying.fetch(`${rig.url}/a`)).status, kind]).toEqual([503, kind]);
    // Nobody is asked for another payment.
    expect([(await again(paying.sent.signature)).status, kind]).toEqual([503, kind]);
  }
  expect([new Set(await states()), await usdc(payTo)]).toEqual([new Set(['settling']), 0n]);
  const told = () => rig.payments.ledger.facilitator();
  expect(told()).toEqual({ host: new URL(facilitator.url).host, problem: expect.stringMatching(/^\/settle: \w/) });
  await fault('settle', 'none');
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect((await again(paying.sent.signature)).status).toBe(200);
  expect(told()?.problem).toBeUndefined();
  const paid = PRICE * BigInt(kinds.length);
  expect([await usdc(payTo), await usdc(paying.address)]).toEqual([paid, before - paid]);
  expect(rig.calls).toHaveLength(kinds.length);
  await reconciled();
});

test('payments that it never settles keep no other one from its turn, nor it busy', async () => {
  await start(1_000);
  const [poor, honest] = [client(5), client(6)];
  await fault('settle', 'busy');
  for (let count = 0; count < 5; count += 1) expect((await poor.fetch(`${rig.url}/a`)).status).toBe(503);
  expect((await honest.fetch(`${rig.url}/a`)).status).toBe(503);
  await fault('settle', `poor of ${poor.address}`);
  await asked();
  await until(async () => (await states()).includes('answered'));
  expect((await again(honest.sent.signature)).status).toBe(200);
  expect((await states()).filter((state) => state === 'settling')).toHaveLength(5);
  expect((await asked()).filter((call) => call.path === 'settle').length).toBeLessThanOrEqual(11);
});

test('x402 is offered for what it supports, and once it has said so', async () => {
  await start();
  const offered = async () => (await fetch(`${rig.url}/a`)).headers.get('payment-required');
  // A start does not wait for an answer that does not come.
  for (const kind of ['hang', 'error', 'garbage', 'huge']) {
    await fault('supported', kind);
    await rig.restart();
    expect([kind, await offered()]).toEqual([kind, null]);
  }
  await fault('supported', 'none');
  await rig.restart();
  expect(await offered()).not.toBeNull();
});

test('one signature that is shown thirty times at once is settled once', async () => {
  await start();
  const paying = client(6);
  const before = await usdc(paying.address);
  await fault('verify', 'refuse');
  await paying.fetch(`${rig.url}/a`);
  await fault('verify', 'none');
  const answers = await Promise.all(Array.from({ length: 30 }, () => again(paying.sent.signature)));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect([rig.calls.length, await usdc(paying.address)]).toEqual([1, before - PRICE]);
});

test('a payment of x402 v1 is settled by it as one of v2', async () => {
  await start();
  const paying = client(5);
  await fault('verify', 'refuse');
  await paying.fetch(`${rig.url}/a`);
  await fault('verify', 'none');
  const { payload } = JSON.parse(Buffer.from(paying.sent.signature ?? '', 'base64').toString());
  const version1 = base64({ x402Version: 1, scheme: 'exact', network: 'base-sepolia', payload });
  expect((await fetch(`${rig.url}/a`, { headers: { 'x-payment': version1 } })).status).toBe(200);
  expect(await usdc(payTo)).toBe(PRICE);
});

test('a host that is killed before it hears of a settlement has sold one deploy for one payment', async () => {
  const port = await freePort();
  const elsewhere = await startFacilitator({
    key: generatePrivateKey(),
    rpcUrl: `http://127.0.0.1:${port}`,
    network: 'eip155:84532',
  });
  const data = await mkdtemp(path.join(tmpdir(), 'tp-'));
  let host: TestHost | undefined;
  try {
    const flags = { 'payments-local-port': String(port), 'payments-x402-facilitator-url': elsewhere.url };
    host = await startHost({ flags, data });
    const sent = { signature: '' };
    const recorded = (async (input: Request, init?: RequestInit) => {
      const request = new Request(input, init);
      sent.signature = request.headers.get('payment-signature') ?? sent.signature;
      return await fetch(request);
    }) as typeof fetch;
    const pay = x402Fetch(host.network, 0, recorded);
    const body = { slug: 'hello', code: `export default { fetch: () => new Response('hi') }` };
    await elsewhere.fault('verify', 'error');
    expect((await pay(`${host.url}/_admin/deploy`, jsonPost(body))).status).toBe(402);
    expect((await host.operator('GET', '/attention')).text).toContain('/verify: it answered 500');
    await elsewhere.fault('verify', 'none');
    await elsewhere.fault('settle', 'pending');
    expect((await pay(`${host.url}/_admin/deploy`, jsonPost(body))).status).toBe(503);
    await host.kill();
    host = await host.restart({ flags });
    const { url } = host;
    const hi = () => fetch(`${url}/hello`).then((answer) => answer.text());
    await until(async () => (await hi()) === 'hi');
    const again = jsonPost(body, { 'payment-signature': sent.signature });
    expect((await fetch(`${url}/_admin/deploy`, again)).status).toBe(201);
    const { json } = await host.operator('GET', '/payments');
    expect(JSON.stringify(json)).toContain('0.20');
  } finally {
    await host?.stop();
    elsewhere.child.kill('SIGKILL');
    await rm(data, { recursive: true, force: true });
  }
});
