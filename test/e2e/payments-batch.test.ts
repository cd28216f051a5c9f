/** x402's batch-settlement with its stock client: one deposit, a signature a call, and the rest back. */
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { BATCH_SETTLEMENT_ADDRESS, localBatchSettlement } from '../../host/local-network/contracts/index.ts';
import type { BatchPayload } from '../../host/payments/methods/x402/credential.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: Hex;

const ROUTES = [
  { method: 'GET', path: '/report', price: '0.01' },
  { method: '*', path: '/other', price: '0.01' },
  { method: 'GET', path: '/dear', price: '0.02' },
  { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
];

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: ROUTES, feeBps: 1_000 });
});
afterEach(() => rig.close());

/** The stock client with a channel of its own. `sent`: its payments, in order. */
function clientOf(index: number, salt: number) {
  const account = privateKeyToAccount(network.wallets?.[index]?.privateKey ?? '0x');
  const { x402 } = network;
  if (!x402) throw new Error('no x402');
  const signer = Object.assign(account, {
    readContract: (asked: never) => x402.getClient().readContract(asked),
  });
  const scheme = new BatchSettlementEvmScheme(signer as never, {
    salt: `0x${Buffer.from(`${payTo} ${salt}`.slice(2, 34).padEnd(32)).toString('hex')}`,
  });
  const sent: Request[] = [];
  const recorder = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    if (request.headers.has('payment-signature')) sent.push(request.clone());
    return fetch(request);
  };
  const paying = wrapFetchWithPayment(recorder as typeof fetch, new x402Client().register('eip155:*', scheme));
  return { address: account.address, scheme, sent, fetch: paying };
}

const usdc = (address: string) => balance(network, 'usdc', address);
const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());
const channels = async () => (await rig.registry.client.execute('SELECT * FROM payment_channels')).rows;
const reconciled = async () => expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);

test('one deposit pays for calls of several routes, and what is left comes back on request', async () => {
  const client = clientOf(0, 1);
  const before = await usdc(client.address);
  const first = await client.fetch(`${rig.url}/report`);
  expect(first.status).toBe(200);
  expect(decoded(first.headers.get('payment-response'))).toMatchObject({
    success: true,
    amount: '100000',
    extra: { chargedAmount: '10000', channelState: { balance: '100000', chargedCumulativeAmount: '10000' } },
  });
  expect(await usdc(client.address)).toBe(before - 100_000n);
  expect((await client.fetch(`${rig.url}/dear`)).status).toBe(200);
  rig.handler = () => Response.json({ ok: true }, { headers: { 'x-charge': '0.003' } });
  for (let i = 0; i < 3; i += 1) expect((await client.fetch(`${rig.url}/metered`)).status).toBe(200);
  expect(client.sent.map((request) => decoded(request.headers.get('payment-signature')).payload.type)).toEqual([
    'deposit',
    'voucher',
    'voucher',
    'voucher',
    'voucher',
  ]);
  expect(await client.scheme.refund(`${rig.url}/report`)).toMatchObject({ success: true, amount: '61000' });
  expect(await usdc(client.address)).toBe(before - 39_000n);
  await until(async () => (await usdc(payTo)) === 35_100n);
  await reconciled();
});

test('what is shown again is charged once, and a client that has lost count goes on', async () => {
  const client = clientOf(1, 1);
  let calls = 0;
  rig.handler = () => Response.json({ call: ++calls });
  const answers = [await client.fetch(`${rig.url}/report`), await client.fetch(`${rig.url}/report`)];
  expect(await Promise.all(answers.map((answer) => answer.json()))).toEqual([{ call: 1 }, { call: 2 }]);
  for (const request of client.sent) {
    const again = await fetch(request.clone());
    expect([again.status, again.headers.get('x-payment-replayed')]).toEqual([200, '1']);
  }
  // The same voucher for another path, and another method: the client is told how to go on.
  const elsewhere = (path: string, init: RequestInit = {}) => {
    const headers = new Headers(client.sent[1]?.headers);
    return fetch(`${rig.url}${path}`, { ...init, headers });
  };
  const payment = decoded(client.sent[1]?.headers.get('payment-signature') ?? null);
  const { resource: _, ...bare } = payment;
  client.sent[1]?.headers.set('payment-signature', Buffer.from(JSON.stringify(bare)).toString('base64'));
  for (const answer of [await elsewhere('/other'), await elsewhere('/other', { method: 'POST', body: '{}' })]) {
    expect(answer.status).toBe(402);
    const told = decoded(answer.headers.get('payment-required'));
    expect(told.error).toBe('invalid_batch_settlement_evm_cumulative_amount_mismatch');
    const accepts = told.accepts as { scheme: string; extra: unknown }[];
    expect(accepts.find(({ scheme }) => scheme === 'batch-settlement')?.extra).toMatchObject({
      channelState: { chargedCumulativeAmount: '20000', balance: '100000' },
    });
  }
  // It has forgotten what it spent, and sends what was used up.
  const channel = payment.payload.voucher.channelId;
  const { storage } = client.scheme as never as { storage: { set(id: string, state: object): Promise<void> } };
  await storage.set(channel, { balance: '100000', chargedCumulativeAmount: '0' });
  const lost = await client.fetch(`${rig.url}/other`, { method: 'POST', body: '{}' });
  expect(await lost.json()).toEqual({ call: 3 });
  // Calls at once: whoever comes second gets the first one's answer at the same place, and a new voucher elsewhere.
  const many = await Promise.all(['/report', '/report', '/other'].map((path) => client.fetch(`${rig.url}${path}`)));
  expect(many.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(calls).toBe(5);
  expect(await client.scheme.refund(`${rig.url}/report`)).toMatchObject({ success: true, amount: '50000' });
  await reconciled();
});

test('what fails, breaks off or costs nothing is not charged, and holds no later call up', async () => {
  const client = clientOf(2, 1);
  const before = await usdc(client.address);
  rig.handler = () => Response.json({}, { status: 500 });
  const failed = await client.fetch(`${rig.url}/metered`);
  expect(failed.status).toBe(500);
  // Its deposit moved: it has to hear of that.
  expect(decoded(failed.headers.get('payment-response'))).toMatchObject({
    success: true,
    extra: { chargedAmount: '0', channelState: { chargedCumulativeAmount: '0', balance: '500000' } },
  });
  let calls = 0;
  rig.handler = () => Response.json({ call: ++calls }, { headers: { 'x-charge': '0' } });
  for (let i = 0; i < 3; i += 1)
    expect(await (await client.fetch(`${rig.url}/metered`)).json()).toEqual({ call: calls });
  expect(calls).toBe(3);
  rig.handler = () => {
    const cut = new ReadableStream({
      start: (controller) => controller.enqueue(Buffer.from('some')),
      pull: async (controller) => {
        await new Promise((resolve) => setImmediate(resolve));
        controller.error(new Error('cut'));
      },
    });
    return new Response(cut, { headers: { 'x-charge': '0.04' } });
  };
  const cut = await client.fetch(`${rig.url}/metered`);
  await cut.text().catch(() => undefined);
  rig.handler = () => Response.json({ call: ++calls }, { headers: { 'x-charge': '0.01' } });
  // The client counts what was cut off; the host does not.
  const next = await client.fetch(`${rig.url}/metered`);
  expect(await next.json()).toEqual({ call: 4 });
  expect(
    client.sent.filter((sent) => decoded(sent.headers.get('payment-signature')).payload.type === 'deposit'),
  ).toHaveLength(1);
  expect(await client.scheme.refund(`${rig.url}/report`)).toMatchObject({ success: true, amount: '490000' });
  expect(await usdc(client.address)).toBe(before - 10_000n);
  await reconciled();
});

test('a channel is closed when it is idle, filled again, and collected when its payer withdraws', async () => {
  const client = clientOf(3, 1);
  const before = await usdc(client.address);
  expect((await client.fetch(`${rig.url}/report`)).status).toBe(200);
  await rig.registry.client.execute('UPDATE payment_channels SET used_at = 0');
  await reconciled();
  expect(await usdc(client.address)).toBe(before - 10_000n);
  expect((await channels()).map(({ state }) => state)).toEqual(['closed']);
  // The client believes that its deposit is there.
  expect((await client.fetch(`${rig.url}/dear`)).status).toBe(200);
  expect((await channels())[0]).toMatchObject({ state: 'open', captured: 30_000, settled: 10_000 });
  const { x402 } = network;
  const account = privateKeyToAccount(network.wallets?.[3]?.privateKey ?? '0x');
  const config = decoded(client.sent[0]?.headers.get('payment-signature') ?? null).payload.channelConfig;
  await x402?.getClient(account).writeContract({
    account,
    address: BATCH_SETTLEMENT_ADDRESS,
    abi: localBatchSettlement.abi,
    functionName: 'initiateWithdraw',
    args: [config, 1_000n],
  } as never);
  await reconciled();
  expect((await channels())[0]).toMatchObject({ state: 'closed', captured: 30_000, settled: 30_000 });
  expect(await usdc(client.address)).toBe(before - 30_000n);
  await until(async () => (await usdc(payTo)) === 27_000n);
});

test('what is not signed for this host, or by somebody else, is refused, and nothing moves', async () => {
  const client = clientOf(4, 1);
  expect((await client.fetch(`${rig.url}/report`)).status).toBe(200);
  const [first] = client.sent;
  const { accepted, resource } = decoded(first?.headers.get('payment-signature') ?? null);
  const made = await client.scheme.createPaymentPayload(2, accepted);
  const payment = { x402Version: 2, accepted, resource, payload: made.payload as never as BatchPayload };
  const { payload } = payment;
  const state = await channels();
  const show = async (changed: object, path = '/report') => {
    const text = Buffer.from(JSON.stringify({ ...payment, ...changed })).toString('base64');
    const answer = await fetch(`${rig.url}${path}`, { headers: { 'payment-signature': text } });
    return [answer.status, ((await answer.json()) as { detail: string }).detail] as const;
  };
  const configured = (changed: object) => ({
    payload: { ...payload, channelConfig: { ...payload.channelConfig, ...changed } },
  });
  const vouched = (changed: object) => ({
    payload: { type: 'voucher', channelConfig: payload.channelConfig, voucher: { ...payload.voucher, ...changed } },
  });
  const stranger = clientOf(5, 1);
  const forged = await stranger.scheme.createPaymentPayload(2, payment.accepted);
  const cases: [object, RegExp][] = [
    [configured({ receiver: stranger.address }), /does not match/],
    [configured({ withdrawDelay: 900 }), /does not match/],
    [vouched({ maxClaimableAmount: '20001' }), /signature is not valid/],
    [vouched({ signature: `0x${'11'.repeat(65)}` }), /signature is not valid/],
    [
      { payload: { ...vouched({ signature: `0x${'11'.repeat(65)}` }).payload, type: 'refund' } },
      /signature is not valid/,
    ],
    [{ payload: { ...(forged.payload as object), channelConfig: payload.channelConfig } }, /does not match/],
    [{ accepted: { ...payment.accepted, amount: '1' } }, /not what is offered/],
    [{ resource: { url: 'http://elsewhere/report' } }, /another resource/],
  ];
  for (const [changed, detail] of cases) {
    const [status, said] = await show(changed);
    expect([status, said]).toEqual([402, expect.stringMatching(detail)]);
  }
  // A deposit that its payer cannot pay.
  const poor = privateKeyToAccount(generatePrivateKey());
  const broke = await new BatchSettlementEvmScheme(poor as never).createPaymentPayload(2, payment.accepted);
  expect((await show({ payload: broke.payload }))[1]).toMatch(/insufficient_balance/);
  expect((await channels()).filter(({ state }) => state !== 'opening')).toEqual(state);
  expect(await client.scheme.refund(`${rig.url}/report`)).toMatchObject({ success: true });
  await expect(client.scheme.refund(`${rig.url}/report`)).rejects.toThrow(/no remaining balance|no_balance/);
  await reconciled();
});
