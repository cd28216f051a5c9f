/**
 * The transaction of an x402 payment holds the whole credential: signature, amounts, nonce. A stranger who takes it from
 * the chain and sends it again does not get what the payer bought.
 */
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { ExactEvmSchemeV1 } from '@x402/evm/exact/v1/client';
import { x402Client as StockX402Client, wrapFetchWithPayment } from '@x402/fetch';
import { decodeFunctionData, type Hex, parseAbi, serializeSignature } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { getTransaction } from 'viem/actions';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { type Rig, startNetwork, startRig, x402Client } from './support/payments-rig.ts';

const TRANSFER = parseAbi([
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
]);

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
  rig.handler = () => Response.json({ secret: 'of the payer' });
});
afterEach(() => rig.close());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());
const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64');
const show = (headers: Record<string, string>) => fetch(`${rig.url}/report`, { headers });

/** The payload of a payment, from its transaction alone. */
async function onChain(transaction: Hex) {
  const { x402 } = network;
  if (!x402) throw new Error('no x402');
  const { input } = await getTransaction(x402.getClient(), { hash: transaction });
  const { args } = decodeFunctionData({ abi: TRANSFER, data: input });
  const [from, to, value, validAfter, validBefore, nonce, ...rest] = args;
  const [v, r, s] = rest as [number, Hex, Hex];
  const signature = rest.length === 1 ? rest[0] : serializeSignature({ r, s, yParity: v - 27 });
  const [after, before] = [String(validAfter), String(validBefore)];
  return {
    authorization: { from, to, value: String(value), validAfter: after, validBefore: before, nonce },
    signature,
  };
}

test('a reader of the chain makes the payment again, with what the 402 told it, and gets nothing', async () => {
  const client = x402Client(network, key(0));
  const paid = await client.fetch(`${rig.url}/report`);
  const { transaction } = decoded(paid.headers.get('payment-response'));
  const mine = decoded((await show({})).headers.get('payment-required'));
  const payload = await onChain(transaction);
  const { accepts, resource, extensions } = mine;
  const [accepted] = accepts.filter(({ scheme }: { scheme: string }) => scheme === 'exact');
  // It is what its payer sent, but for what the 402 told the payer alone.
  const sent = decoded(client.sent.signature ?? '');
  expect({ ...sent.payload, signature: sent.payload.signature.toLowerCase() }).toEqual(payload);
  for (const rebuilt of [
    { x402Version: 2, payload, extensions, resource, accepted },
    { x402Version: 2, payload, resource, accepted },
    { x402Version: 2, payload, accepted },
  ]) {
    const stolen = await show({ 'payment-signature': encoded(rebuilt) });
    expect(stolen.status).toBe(402);
    expect(await stolen.text()).not.toContain('of the payer');
  }
  // Its payer does, from wherever it calls.
  rig.clientIp = '192.0.2.7';
  const again = await show({ 'payment-signature': client.sent.signature ?? '' });
  expect([again.status, await again.json()]).toEqual([200, { secret: 'of the payer' }]);
  expect(rig.calls).toHaveLength(1);
});

test('a payment of version 1 says nothing else than the chain: its answer stays in its payer’s network', async () => {
  const account = privateKeyToAccount(key(1));
  const sent: string[] = [];
  const recorded = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const payment = request.headers.get('x-payment');
    if (payment !== null) sent.push(payment);
    const answer = await fetch(request);
    const headers = new Headers(answer.headers);
    headers.delete('payment-required');
    return new Response(answer.body, { status: answer.status, headers });
  };
  const scheme = new ExactEvmSchemeV1(account) as never;
  const paying = wrapFetchWithPayment(
    recorded as typeof fetch,
    new StockX402Client().registerV1('base-sepolia', scheme),
  );
  const paid = await paying(`${rig.url}/report`);
  const { transaction } = decoded(paid.headers.get('x-payment-response'));
  const { authorization, signature } = await onChain(transaction);
  const rebuilt = encoded({ ...decoded(sent[0] ?? ''), payload: { authorization, signature } });
  rig.clientIp = '192.0.2.7';
  for (const payment of [rebuilt, sent[0] ?? '']) {
    // The payer's address, sent as the key, does not count as the payer's network.
    expect((await show({ 'x-payment': payment, 'idempotency-key': '127.0.0.1' })).status).toBe(402);
    const stolen = await show({ 'x-payment': payment });
    expect(stolen.status).toBe(402);
    expect(((await stolen.json()) as { detail: string }).detail).toContain('Idempotency-Key');
  }
  rig.clientIp = '127.0.0.1';
  expect((await show({ 'x-payment': sent[0] ?? '' })).status).toBe(200);
  // With a key it is its payer’s wherever that is.
  const named = { headers: { 'idempotency-key': 'mine' } };
  expect((await paying(`${rig.url}/report`, named)).status).toBe(200);
  rig.clientIp = '2001:db8::7';
  const payment = sent.at(-1) ?? '';
  expect((await show({ 'x-payment': payment, 'idempotency-key': 'mine' })).status).toBe(200);
  expect((await show({ 'x-payment': payment, 'idempotency-key': 'guessed' })).status).toBe(402);
  expect((await show({ 'x-payment': payment })).status).toBe(402);
  expect(rig.calls).toHaveLength(2);
});

test('a voucher that a collection has shown to everybody gives its last answer to nobody else', async () => {
  const signer = Object.assign(privateKeyToAccount(key(2)), {
    readContract: (asked: never) => network.x402?.getClient().readContract(asked),
  });
  const scheme = new BatchSettlementEvmScheme(signer as never);
  const sent: string[] = [];
  const recorded = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const payment = request.headers.get('payment-signature');
    if (payment !== null) sent.push(payment);
    return fetch(request);
  };
  const paying = wrapFetchWithPayment(recorded as typeof fetch, new StockX402Client().register('eip155:*', scheme));
  expect((await paying(`${rig.url}/report`)).status).toBe(200);
  expect((await paying(`${rig.url}/report`)).status).toBe(200);
  const { payload, ...said } = decoded(sent[1] ?? '');
  // Channel, amount and signature are all that is on the chain.
  const rebuilt = encoded({ ...said, payload: { ...payload, type: 'voucher' } });
  expect((await show({ 'payment-signature': rebuilt })).status).toBe(200);
  rig.clientIp = '192.0.2.7';
  expect((await show({ 'payment-signature': rebuilt })).status).toBe(402);
  expect(rig.calls).toHaveLength(2);
});
