/**
 * A thousand calls of every kind by every stock client, with failures, callers that leave and retries thrown in.
 * Afterwards the chain, the receipts and the books agree to the last micro-USD.
 */
import { tempo } from 'mppx/client';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { parseUsd } from '../../host/shared/money.ts';
import {
  balance,
  mppClient,
  mppOf,
  type Rig,
  startNetwork,
  startRig,
  until,
  x402Client,
} from './support/payments-rig.ts';

const CALLS = Number(process.env.MIXED_CALLS ?? 1000);
const FEE_BPS = 250;

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: string;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, {
    payTo,
    feeBps: FEE_BPS,
    routes: [
      { method: 'POST', path: '/fixed', price: '0.01' },
      { method: 'POST', path: '/metered', price: '0.02', mode: 'metered' },
    ],
  });
});
afterAll(async () => {
  await rig.close();
  await stop();
});

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

/** A small generator with a seed, so that a failure can be repeated. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

test('a thousand mixed calls: chain, receipts and ledger agree', { timeout: 900_000 }, async () => {
  const random = seeded(7);
  rig.handler = async (request) => {
    const { want, charge, delay } = (await request.json()) as { want: string; charge: string; delay: number };
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay));
    if (want === 'fail') return new Response('no', { status: 500 });
    if (want === 'throw') throw new Error('the handler threw');
    if (want === 'nonsense') return Response.json({}, { headers: { 'x-charge': '-1' } });
    const body = JSON.stringify({ want });
    const headers = { 'x-charge': charge, ...(want === 'stream' ? {} : { 'content-length': String(body.length) }) };
    return new Response(body, { headers });
  };
  const operator = mppOf(network).recipient;
  const wallets = [0, 1, 2, 3].map((index) => privateKeyToAccount(key(index)).address);
  const money = async () => ({
    payers: await Promise.all(
      wallets.map(async (one) => (await balance(network, 'tempo', one)) + (await balance(network, 'usdc', one))),
    ),
    payTo: (await balance(network, 'tempo', payTo)) + (await balance(network, 'usdc', payTo)),
    operator: (await balance(network, 'tempo', operator)) + (await balance(network, 'usdc', operator)),
  });
  const before = await money();
  let receipts = 0n;
  let unknown = 0;
  const account = privateKeyToAccount(key(2));
  const getClient = () => mppOf(network).getClient(account) as never;
  const session = tempo.session.manager({ account, getClient, maxDeposit: '50' });

  const one = async (payer: number, route: string): Promise<void> => {
    const kind = random();
    const want = kind < 0.1 ? 'fail' : kind < 0.13 ? 'throw' : kind < 0.16 ? 'nonsense' : kind < 0.25 ? 'stream' : 'ok';
    const leaves = random() < 0.06;
    const body = JSON.stringify({ want, charge: `0.0${Math.floor(random() * 30_000)}`, delay: leaves ? 40 : 0 });
    const url = `${rig.url}${route}`;
    const client = payer === 3 ? x402Client(network, key(3)) : mppClient(network, key(payer));
    const paying = payer === 2 ? (session.fetch as unknown as typeof fetch) : client.fetch;
    const abort = new AbortController();
    if (leaves && payer !== 2) setTimeout(() => abort.abort(), 60 + random() * 60);
    const response = await paying(url, { method: 'POST', body, signal: abort.signal }).catch(() => undefined);
    const text = await response?.text().catch(() => undefined);
    let final = text === undefined ? undefined : response;
    const { authorization, signature } = client.sent;
    const again = {
      headers: authorization ? { authorization } : { 'payment-signature': signature ?? '' },
      method: 'POST',
      body,
    };
    if (final === undefined && (authorization || signature)) {
      // The caller comes back with what it has: it is answered, and not charged twice.
      final = await fetch(url, again);
      await final.text();
    } else if (final && random() < 0.1 && (authorization || signature)) {
      const repeated = await fetch(url, again);
      if (final.ok) expect(repeated.headers.get('x-payment-id')).toBe(final.headers.get('x-payment-id'));
      else if (repeated.ok) final = repeated;
      await repeated.text();
    }
    if (final?.ok) receipts += parseUsd(final.headers.get('x-payment-amount') ?? 'none');
    else if (final === undefined) unknown += 1;
  };

  const lanes = [0, 1, 2, 3].map(async (payer) => {
    for (let i = 0; i < CALLS / 4; i += 1) await one(payer, payer !== 2 && i % 2 === 0 ? '/fixed' : '/metered');
  });
  await Promise.all(lanes);
  await session.close();
  await until(async () => (await rig.payments.ledger.open()).length === 0, 60_000);
  const report = await rig.payments.ledger.reconcile();
  expect(report.differences).toEqual([]);
  expect(report.accounts.filter(({ account: name }) => name.startsWith('claim:'))).toEqual([]);

  const after = await money();
  const spent = before.payers.reduce((sum, value, i) => sum + value - (after.payers[i] ?? 0n), 0n);
  const revenue = await rig.payments.ledger.revenue({});
  const gross = revenue.reduce((sum, row) => sum + row.gross - row.refunded, 0n);
  const fee = revenue.reduce((sum, row) => sum + row.fee, 0n);
  expect(spent).toBe(gross);
  expect(receipts).toBe(gross);
  expect(after.payTo - before.payTo).toBe(gross - fee);
  expect(after.operator - before.operator).toBe(fee);
  expect(gross).toBeGreaterThan(1_000_000n);
  expect(unknown).toBeLessThan(CALLS / 20);
});
