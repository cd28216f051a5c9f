/** x402's batch-settlement with its stock client: one deposit, a signature a call, and the rest back. */
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, type Rig, startNetwork, startRig, until } from './support/payments-rig.ts';

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
