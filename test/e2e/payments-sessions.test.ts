/** MPP sessions with stock mppx clients: deposit, vouchers, top-up, close, refund of the unused; abandoned channels. */
import { Mppx, tempo } from 'mppx/client';
import { Session } from 'mppx/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { DEFAULT_SCHEDULE } from '../../host/payments/methods/channels/sweeper.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, mppOf, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: string;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, {
    payTo,
    routes: [
      { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
      { method: 'POST', path: '/work', price: '0.02', mode: 'metered' },
    ],
  });
});
afterEach(() => rig.close());

function wallet(index: number) {
  const found = network.wallets?.[index];
  if (!found) throw new Error('no such wallet');
  return privateKeyToAccount(found.privateKey);
}

function manager(index: number, options: { maxDeposit?: string; fetch?: typeof fetch } = {}) {
  const account = wallet(index);
  return {
    account,
    session: tempo.session.manager({
      account,
      getClient: () => mppOf(network).getClient(account) as never,
      maxDeposit: options.maxDeposit ?? '1',
      ...(options.fetch ? { fetch: options.fetch } : {}),
    }),
  };
}

test('a session pays what was used, and closing returns the rest of the deposit', async () => {
  const { account, session } = manager(0);
  const before = await balance(network, 'tempo', account.address);
  rig.handler = () => Response.json({ ok: true }, { headers: { 'x-charge': '0.0123' } });
  for (let i = 0; i < 5; i += 1) {
    const response = await session.fetch(`${rig.url}/metered`);
    expect(response.status).toBe(200);
    expect(response.headers.get('x-payment-amount')).toBe('0.0123');
    expect(response.receipt?.spent).toBe(String(12_300 * (i + 1)));
  }
  const receipt = await session.close();
  expect(receipt?.spent).toBe('61500');
  expect(before - (await balance(network, 'tempo', account.address))).toBe(61_500n);
  await until(async () => (await balance(network, 'tempo', payTo)) === 61_500n);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, differences: [] });
});

test('the client tops its channel up by itself when vouchers reach the deposit', async () => {
  const { account, session } = manager(1, { maxDeposit: '5' });
  const before = await balance(network, 'tempo', account.address);
  // The suggested deposit covers 20 calls.
  for (let i = 0; i < 45; i += 1) expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  const receipt = await session.close();
  expect(receipt?.spent).toBe(String(45 * 50_000));
  expect(before - (await balance(network, 'tempo', account.address))).toBe(45n * 50_000n);
  await until(async () => (await balance(network, 'tempo', payTo)) === 45n * 50_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('the low-level session method pays within an ordinary mppx client', async () => {
  const account = wallet(2);
  const client = Mppx.create({
    polyfill: false,
    methods: [tempo.session({ account, getClient: () => mppOf(network).getClient(account) as never, maxDeposit: '1' })],
  });
  for (let i = 0; i < 3; i += 1) {
    const response = await client.fetch(`${rig.url}/work`, { method: 'POST', body: `call ${i}` });
    expect(response.status).toBe(200);
  }
  expect(rig.calls).toHaveLength(3);
  expect(await rig.calls[2]?.text()).toBe('call 2');
});

test('a failed call costs nothing, and the same session goes on', async () => {
  const { account, session } = manager(3);
  const before = await balance(network, 'tempo', account.address);
  rig.handler = () => new Response('no', { status: 500 });
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(500);
  rig.handler = () => Response.json({ ok: true });
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  rig.handler = () => new Response('no', { status: 502 });
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(502);
  rig.handler = () => Response.json({ ok: true });
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  await session.close();
  expect(before - (await balance(network, 'tempo', account.address))).toBe(100_000n);
});

test('a voucher that arrives twice is answered once more and charged once; late ones still count', async () => {
  const sent: Request[] = [];
  const recorder = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    if (request.headers.get('authorization')) sent.push(request.clone());
    return fetch(request);
  };
  const { session } = manager(4, { fetch: recorder as typeof fetch });
  let count = 0;
  rig.handler = () => Response.json({ n: ++count });
  for (let i = 0; i < 3; i += 1) await session.fetch(`${rig.url}/metered`);
  const again = await fetch(sent[1]!.clone());
  expect(again.status).toBe(200);
  expect(await again.json()).toEqual({ n: 2 });
  expect(again.headers.get('x-payment-replayed')).toBe('1');
  expect(count).toBe(3);
  const receipt = await session.close();
  expect(receipt?.spent).toBe('150000');
});

test('vouchers out of order: each call is served as long as the greatest voucher covers them all', async () => {
  const account = wallet(0);
  const held: Request[] = [];
  let hold = false;
  const recorder = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    if (hold && request.headers.get('authorization')) {
      held.push(request.clone());
      return new Response('held', { status: 200, headers: {} });
    }
    return fetch(request);
  };
  const client = Mppx.create({
    polyfill: false,
    fetch: recorder as typeof fetch,
    methods: [tempo.session({ account, getClient: () => mppOf(network).getClient(account) as never, maxDeposit: '1' })],
  });
  expect((await client.fetch(`${rig.url}/metered`)).status).toBe(200);
  hold = true;
  await client.fetch(`${rig.url}/metered`);
  await client.fetch(`${rig.url}/metered`);
  expect((await fetch(held[1]!)).status).toBe(200);
  expect((await fetch(held[0]!)).status).toBe(200);
});

test('an abandoned channel is closed by the host: spent is collected, the rest goes back', async () => {
  const { account, session } = manager(1);
  const before = await balance(network, 'tempo', account.address);
  await session.fetch(`${rig.url}/metered`);
  await session.fetch(`${rig.url}/metered`);
  rig.clock.setOffset(DEFAULT_SCHEDULE.idleMs + 1000);
  const report = await rig.payments.ledger.reconcile();
  expect(report.differences).toEqual([]);
  expect(before - (await balance(network, 'tempo', account.address))).toBe(100_000n);
  await until(async () => (await balance(network, 'tempo', payTo)) === 100_000n);
});

test('a channel is settled on schedule while it stays open', async () => {
  await rig.close();
  rig = await startRig(network, {
    payTo,
    routes: [{ method: 'GET', path: '/metered', price: '0.05', mode: 'metered' }],
    schedule: { ...DEFAULT_SCHEDULE, settleAmount: 100_000n as never },
  });
  const { session } = manager(2);
  for (let i = 0; i < 3; i += 1) expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  // What still streams may have to be given back, and is not collected.
  const states = async () => (await rig.registry.client.execute('SELECT DISTINCT state FROM payments')).rows;
  await until(async () => (await states()).every(({ state }) => state === 'answered'));
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
  await until(async () => (await balance(network, 'tempo', payTo)) === 150_000n);
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  await session.close();
  await until(async () => (await balance(network, 'tempo', payTo)) === 200_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('a settlement whose answer was lost is in the books when its payer closes the channel', async () => {
  const { session } = manager(5);
  await (await session.fetch(`${rig.url}/metered`)).text();
  const [channel] = (await rig.registry.client.execute('SELECT * FROM payment_channels')).rows;
  const { settler } = network.hostAccounts;
  const client = mppOf(network).getClient(settler);
  const hash = await Session.Precompile.Chain.settleOnChain(
    client as never,
    JSON.parse(String(channel?.descriptor)),
    BigInt(Number(channel?.voucher)),
    channel?.voucher_signature as Hex,
    channel?.escrow as Hex,
    { account: settler, candidateFeeTokens: [mppOf(network).currency] } as never,
  );
  await Session.Precompile.Chain.waitForSuccessfulReceipt(client as never, hash);
  await (await session.fetch(`${rig.url}/metered`)).text();
  expect((await session.close())?.spent).toBe('100000');
  await until(async () => (await balance(network, 'tempo', payTo)) === 100_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('channels and their vouchers survive a restart', async () => {
  const { session } = manager(3);
  await session.fetch(`${rig.url}/metered`);
  await rig.restart();
  expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  expect((await session.close())?.spent).toBe('100000');
});

test('a payer who asks the chain for its deposit cannot outrun the host', async () => {
  const { account, session } = manager(4);
  await session.fetch(`${rig.url}/metered`);
  const client = mppOf(network).getClient(account);
  const [channel] = (await rig.registry.client.execute('SELECT * FROM payment_channels')).rows;
  const hash = await Session.Precompile.Chain.requestCloseOnChain(
    client,
    JSON.parse(String(channel?.descriptor)),
    channel?.escrow as Hex,
    { account },
  );
  await Session.Precompile.Chain.waitForSuccessfulReceipt(client as never, hash);
  const report = await rig.payments.ledger.reconcile();
  expect(report.differences).toEqual([]);
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
});

test('a stream that breaks after its channel was closed is refunded, and its payout never goes out', async () => {
  const { account } = manager(0);
  const { settler } = network.hostAccounts;
  const payer = await balance(network, 'tempo', account.address);
  const host = await balance(network, 'tempo', settler.address);
  let breakOff = () => {};
  rig.handler = () =>
    new Response(
      new ReadableStream({
        start(c) {
          c.enqueue(Buffer.from('x'));
          breakOff = () => c.error(new Error('gone'));
        },
      }),
      { headers: { 'x-charge': '0.05' } },
    );
  for (let round = 0; round < 2; round += 1) {
    const { session } = manager(0);
    const response = await session.fetch(`${rig.url}/metered`);
    await session.close();
    // Rounds of payouts go by.
    await rig.payments.ledger.reconcile();
    breakOff();
    await response.text().catch(() => undefined);
    const refunded = async () =>
      (await rig.registry.client.execute("SELECT id FROM payments WHERE state = 'refunded'")).rows.length === round + 1;
    await until(refunded);
    await rig.payments.ledger.reconcile();
  }
  expect(await balance(network, 'tempo', payTo)).toBe(0n);
  expect(await balance(network, 'tempo', account.address)).toBe(payer);
  expect(host - (await balance(network, 'tempo', settler.address))).toBeLessThan(50_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('a stream that ends after its channel was closed is paid out', async () => {
  const { session } = manager(1);
  let end = () => {};
  rig.handler = () =>
    new Response(
      new ReadableStream({
        start(c) {
          c.enqueue(Buffer.from('x'));
          end = () => c.close();
        },
      }),
      { headers: { 'x-charge': '0.05' } },
    );
  const response = await session.fetch(`${rig.url}/metered`);
  await session.close();
  await rig.payments.ledger.reconcile();
  expect(await balance(network, 'tempo', payTo)).toBe(0n);
  end();
  expect(await response.text()).toBe('x');
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});
