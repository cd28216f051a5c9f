/**
 * A stock client pays on Solana where a facilitator elsewhere signs for the fee and settles: one of x402's own packages, in a
 * process of its own, and with faults. Only it knows a transaction's name, so what it says counts where the chain has it.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Address, createKeyPairSignerFromPrivateKeyBytes, type KeyPairSigner, lamports } from '@solana/kit';
import { generatePrivateKey } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { type Network, openNetwork } from '../../host/payments/network/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { configSchema } from '../../host/shared/config.ts';
import { type Facilitator, startFacilitator } from './support/facilitators.ts';
import { quiet, type Rig, startRig } from './support/payments-rig.ts';
import { DEVNET, type SolanaNode, solanaClient, startSolanaNode } from './support/solana-node.ts';
import { until } from './support/until.ts';

const PRICE = 50_000n;
const HELD = 2_000_000n;
/** Its signature ends so much later at most, ms. */
const LIFE_MS = 200_000;

let node: SolanaNode;
let network: Network;
let folder: string;
let facilitator: Facilitator;
let feePayer: Address;
let rig: Rig;
let seller: KeyPairSigner;
let payer: KeyPairSigner;

beforeAll(async () => {
  node = await startSolanaNode();
  folder = await mkdtemp(path.join(tmpdir(), 'tp-solana-'));
  const { address: recipient } = await node.wallet(0n);
  const solana = { ...defaults.payments.solana, network: 'solana-devnet', rpcUrl: node.url, recipient };
  const config = configSchema.parse({ ...defaults, payments: { ...defaults.payments, network: 'none', solana } });
  network = await openNetwork({ config, dataFolder: folder, clock: new AdjustableClock(), log: quiet });
  const key = generatePrivateKey();
  facilitator = await startFacilitator({ key, rpcUrl: node.url, network: DEVNET });
  ({ address: feePayer } = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(key.slice(2), 'hex')));
  node.svm.airdrop(feePayer, lamports(1_000_000_000n));
});
afterAll(async () => {
  facilitator?.child.kill('SIGKILL');
  await network?.close();
  await node?.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  [seller, payer] = [await node.wallet(0n), await node.wallet(HELD)];
  for (const path of ['verify', 'settle', 'supported'] as const) await facilitator.fault(path, 'none');
  await facilitator.asked();
});
afterEach(async () => {
  vi.useRealTimers();
  await rig?.close();
  rig = undefined as never;
});

/** What it answers within two seconds counts. */
async function start(): Promise<void> {
  rig = await startRig(network, {
    payTo: '0x00000000000000000000000000000000000000aa',
    routes: [{ method: 'GET', path: '/a', price: '0.05', solana: seller.address }],
    facilitator: { url: facilitator.url, key: 'k-secret', timeoutMs: 2_000 },
  });
  // With a length it is kept for whoever asks again.
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
}

const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());
const again = async (signature: string) =>
  (await fetch(`${rig.url}/a`, { headers: { 'payment-signature': signature } })).status;
/** From time to time it is asked what it supports, too. */
const asked = async () => (await facilitator.asked()).filter((call) => call.path !== 'supported');

type Client = ReturnType<typeof solanaClient>;
/** Pays. On a busy machine the facilitator does not always say in time that it takes it: nothing is charged then. */
async function pay(client: Client): Promise<number> {
  return until(async () => {
    const { status } = await client.fetch(`${rig.url}/a`);
    return status !== 402 && status;
  });
}
/** Pays, and shows the payment until it is answered. */
async function buy(client: Client): Promise<void> {
  if ((await pay(client)) !== 200) await until(async () => (await again(client.sent.signature)) === 200);
}
const states = async () =>
  (await rig.registry.client.execute('select state from payments order by created_at')).rows.map(({ state }) => state);

/** All are paid, and moved once. */
async function settled(payments: number): Promise<void> {
  expect([rig.calls.length, await node.held(seller.address)]).toEqual([payments, BigInt(payments) * PRICE]);
  expect(await node.held(payer.address)).toBe(HELD - BigInt(payments) * PRICE);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, checked: payments });
}

test('it pays the fee, and settles what is offered with its account', async () => {
  await start();
  const client = solanaClient(node, payer);
  await buy(client);
  const paid = await fetch(`${rig.url}/a`, { headers: { 'payment-signature': client.sent.signature } });
  const { accepted } = decoded(client.sent.signature);
  expect(accepted).toMatchObject({ network: DEVNET, payTo: seller.address, extra: { feePayer } });
  expect(decoded(paid.headers.get('payment-response'))).toMatchObject({ success: true, payer: payer.address });
  // The host's own wallet has no coins, and signs nothing.
  expect(node.svm.getBalance(network.solana?.[0]?.feePayer as Address)).toBe(null);
  const calls = await asked();
  expect(calls.at(-1)).toMatchObject({
    path: 'settle',
    headers: { authorization: 'Bearer k-secret' },
    body: {
      paymentPayload: { resource: { url: `${rig.url}/a` } },
      paymentRequirements: { scheme: 'exact', amount: String(PRICE), payTo: seller.address, extra: { feePayer } },
    },
  });
  await settled(1);
});

test('nothing is done for what it does not take, and it is not asked about what this host refuses', async () => {
  await start();
  const client = solanaClient(node, payer);
  for (const kind of ['hang', 'error', 'refuse', 'garbage', 'huge']) {
    await facilitator.fault('verify', kind);
    expect([(await client.fetch(`${rig.url}/a`)).status, kind]).toEqual([402, kind]);
  }
  await facilitator.asked();
  await facilitator.fault('verify', 'lie');
  const poor = solanaClient(node, await node.wallet(PRICE - 1n));
  expect((await poor.fetch(`${rig.url}/a`)).status).toBe(402);
  expect([await asked(), rig.calls.length, await states()]).toEqual([[], 0, []]);
  await facilitator.fault('verify', 'none');
  await until(async () => (await again(client.sent.signature)) === 200);
  await settled(1);
});

test('what it settled is found on the chain, whatever becomes of its answer', async () => {
  await start();
  const client = solanaClient(node, payer);
  const kinds = ['lost', 'silent', 'denied', 'pending'];
  for (const kind of kinds) {
    await facilitator.fault('settle', kind);
    await buy(client);
  }
  // It names an earlier one of the payer's.
  const [earlier] = await rig.payments.ledger.lines({});
  await facilitator.fault('settle', `misnamed of ${earlier?.reference}`);
  await buy(client);
  // Said to be refused, and sent when it is looked for no more.
  await facilitator.fault('settle', 'late');
  expect(await pay(client)).toBe(503);
  await until(async () => (await node.held(seller.address)) === 6n * PRICE);
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect(await again(client.sent.signature)).toBe(200);
  await settled(6);
});

test('what it did not settle is not believed, asked for again, and answered once it is', async () => {
  await start();
  const client = solanaClient(node, payer);
  await buy(client);
  await buy(solanaClient(node, await node.wallet(PRICE)));
  // Of the same sum to the same seller: the payer's own before this one, and another payer's.
  const before = [...new Set((await rig.payments.ledger.lines({})).map(({ reference }) => reference))];
  expect(before).toHaveLength(2);
  const lies = ['lie', ...before.map((reference) => `lie of ${reference}`), 'lie of ../../x'];
  for (const kind of [...lies, 'hang', 'refuse', 'garbage']) {
    await facilitator.fault('settle', kind);
    expect([await pay(client), kind]).toEqual([503, kind]);
    // Nobody is asked for another payment.
    expect([await again(client.sent.signature), kind]).toEqual([503, kind]);
  }
  expect([new Set((await states()).slice(2)), await node.held(seller.address)]).toEqual([
    new Set(['settling']),
    2n * PRICE,
  ]);
  await facilitator.fault('settle', 'none');
  await until(async () => (await states()).every((state) => state === 'answered'));
  expect(await again(client.sent.signature)).toBe(200);
  expect([rig.calls.length, await node.held(seller.address)]).toEqual([9, 9n * PRICE]);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, checked: 9 });
});

test('what it never settles ends with its block, and is asked for no more', async () => {
  await start();
  const client = solanaClient(node, payer);
  await facilitator.fault('settle', 'lie');
  expect(await pay(client)).toBe(503);
  node.svm.expireBlockhash();
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + LIFE_MS });
  await until(async () => (await states()).includes('released'));
  await facilitator.asked();
  await facilitator.fault('settle', 'none');
  expect(await again(client.sent.signature)).toBe(402);
  expect([await asked(), await node.held(seller.address)]).toEqual([[], 0n]);
});

test('what it was asked for is found without it, too; and nothing is offered before it has said its account', async () => {
  await start();
  const client = solanaClient(node, payer);
  await facilitator.fault('settle', 'late');
  expect(await pay(client)).toBe(503);
  for (const kind of ['hang', 'garbage']) {
    await facilitator.fault('supported', kind);
    await rig.restart();
    expect((await fetch(`${rig.url}/a`)).headers.get('payment-required')).toBeNull();
  }
  await rig.restart({ config: { ...defaults.payments } as never });
  await until(async () => (await states()).includes('answered'));
  expect(await again(client.sent.signature)).toBe(200);
  await settled(1);
});
