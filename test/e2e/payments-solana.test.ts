/**
 * Payments on Solana by a stock x402 client: offered beside those of EVM, settled once, and nothing that a payer, a caller
 * or the node does moves more than the price, or anything of the wallet that pays the fees.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  AccountRole,
  type Address,
  address,
  appendTransactionMessageInstructions,
  createTransactionMessage,
  generateKeyPairSigner,
  getBase64EncodedWireTransaction,
  type Instruction,
  type KeyPairSigner,
  lamports,
  partiallySignTransactionMessageWithSigners,
  pipe,
  setTransactionMessageFeePayer,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { type Network, openNetwork } from '../../host/payments/network/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { configSchema } from '../../host/shared/config.ts';
import { mppClient, quiet, type Rig, startRig, x402Client as stockX402Client } from './support/payments-rig.ts';
import { DEVNET, type SolanaNode, solanaClient, startSolanaNode, tokenAccountOf, USDC } from './support/solana-node.ts';
import { until } from './support/until.ts';

const PRICE = 50_000n;
const HELD = 1_000_000n;

let node: SolanaNode;
let network: Network;
let folder: string;
let rig: Rig;
let seller: KeyPairSigner;
let operator: KeyPairSigner;
let payer: KeyPairSigner;

beforeAll(async () => {
  node = await startSolanaNode();
  operator = await node.wallet(0n);
  folder = await mkdtemp(path.join(tmpdir(), 'tp-solana-'));
  const solana = {
    ...defaults.payments.solana,
    network: 'solana-devnet',
    rpcUrl: node.url,
    recipient: operator.address,
  };
  const config = configSchema.parse({ ...defaults, payments: { ...defaults.payments, solana } });
  network = await openNetwork({ config, dataFolder: folder, clock: new AdjustableClock(), log: quiet });
  node.svm.airdrop(feePayer(), lamports(1_000_000_000n));
  // Who pays the fees must not be made to pay the price, too.
  await node.holder(feePayer(), HELD);
});
afterAll(async () => {
  await network?.close();
  await node?.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  node.fault = () => undefined;
  seller = await node.wallet(0n);
  payer = await node.wallet(HELD);
  const route = { method: 'GET', price: '0.05', solana: seller.address };
  rig = await startRig(network, {
    payTo: '0x00000000000000000000000000000000000000aa',
    routes: [
      { ...route, path: '/a' },
      { ...route, path: '/b' },
      { ...route, path: '/metered', mode: 'metered' },
      { ...route, path: '/cheap', price: '0.001' },
      { method: 'GET', price: '0.05', path: '/evm' },
    ],
  });
});
afterEach(() => {
  vi.useRealTimers();
  return rig.close();
});

const key = (wallet: number) => network.wallets?.[wallet]?.privateKey ?? '0x';

function feePayer(): Address {
  return address(network.solana?.[0]?.feePayer ?? '');
}

const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());
const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64');
const offersOf = async (route: string) => {
  const unpaid = await fetch(rig.url + route);
  return decoded(unpaid.headers.get('payment-required')).accepts as { network: string }[];
};
const onSolana = async (route: string) => (await offersOf(route)).find((one) => one.network === DEVNET);
const show = (route: string, signature: string) =>
  fetch(rig.url + route, { headers: { 'payment-signature': signature } });

test('one 402 offers EVM and Solana, for what is paid straight to its seller', async () => {
  expect([...new Set((await offersOf('/a')).map((one) => one.network))]).toEqual([network.x402?.network, DEVNET]);
  expect(await onSolana('/a')).toMatchObject({
    asset: USDC,
    amount: String(PRICE),
    payTo: seller.address,
    extra: { feePayer: feePayer() },
  });
  // What has to be split or given back, costs less than its fee, or is of a seller without an address there.
  for (const route of ['/metered', '/cheap', '/evm']) expect(await onSolana(route)).toBeUndefined();
  const deploy = await fetch(`${rig.url}/_deploy`, { method: 'POST', body: '{}' });
  expect(JSON.stringify(decoded(deploy.headers.get('payment-required')))).not.toContain('solana');
  // The operator's own routes.
  rig.deployment.payTo = network.x402?.recipient.toLowerCase() as `0x${string}`;
  expect(await onSolana('/evm')).toMatchObject({ payTo: operator.address });
  expect(await network.healthy()).toMatchObject({ ok: true, detail: expect.stringContaining('solana-devnet answers') });
});

test('clients that know only EVM pay the same route as before', async () => {
  for (const { fetch: pay } of [stockX402Client(network, key(0)), mppClient(network, key(1))])
    expect((await pay(`${rig.url}/a`)).status).toBe(200);
  expect(await node.held(seller.address)).toBe(0n);
});

test('a stock client pays the seller; the books have it, and a repetition moves nothing', async () => {
  const client = solanaClient(node, payer);
  const before = node.svm.getBalance(feePayer()) ?? 0n;
  const paid = await client.fetch(`${rig.url}/a`);
  expect(paid.status).toBe(200);
  expect(decoded(paid.headers.get('payment-response'))).toMatchObject({
    success: true,
    network: DEVNET,
    payer: payer.address,
    transaction: expect.stringMatching(/^[1-9A-HJ-NP-Za-km-z]{80,90}$/),
  });
  expect([await node.held(seller.address), await node.held(payer.address)]).toEqual([PRICE, HELD - PRICE]);
  expect(before - (node.svm.getBalance(feePayer()) ?? 0n)).toBe(10_001n);
  const [line] = await rig.payments.ledger.lines({});
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, checked: 1 });
  const wallets = (await rig.payments.ledger.wallets()).filter(({ chain }) => chain === 'solana-devnet');
  expect(wallets).toMatchObject([
    { address: operator.address, usd: '0.00' },
    { address: feePayer(), settlementsLeft: expect.any(Number), isLow: false },
  ]);
  expect(line).toMatchObject({ asset: `${DEVNET}/${USDC}` });
  expect(rig.calls.at(-1)?.headers.get('x-payer')).toContain(payer.address);
  // Again, at the same place: the same answer. At another, or of another's: nothing.
  const calls = rig.calls.length;
  expect((await show('/a', client.sent.signature)).status).toBe(200);
  expect((await show('/b', client.sent.signature)).status).toBe(402);
  await rig.restart();
  expect((await show('/a', client.sent.signature)).status).toBe(200);
  expect(rig.calls.length).toBe(calls);
  expect(await node.held(seller.address)).toBe(PRICE);
});

test('of many callers with one transaction at two routes, one is served by the handler', async () => {
  const client = solanaClient(node, payer);
  await client.fetch(`${rig.url}/a`);
  node.svm.expireBlockhash();
  const [credential, served, sends] = [await credentialOf(), rig.calls.length, node.calls.get('sendTransaction') ?? 0];
  const text = encoded(credential);
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, index) => show(index % 2 === 0 ? '/a' : '/b', text)),
  );
  const statuses = answers.map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([200, 402]));
  expect(rig.calls.length).toBe(served + 1);
  expect((node.calls.get('sendTransaction') ?? 0) - sends).toBe(1);
  expect(await node.held(seller.address)).toBe(2n * PRICE);
});

test('calls at once of an account that holds the price once: one reaches the handler', async () => {
  await node.holder(payer.address, PRICE);
  const text = encoded(await credentialOf({ priority: 2n }));
  let second: Response | undefined;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    second = await show('/a', text);
    return Response.json({});
  };
  expect((await solanaClient(node, payer).fetch(`${rig.url}/a`)).status).toBe(200);
  expect([second?.status, await second?.text()]).toEqual([402, expect.stringContaining('are promised')]);
  expect([rig.calls.length, await node.held(seller.address)]).toEqual([1, PRICE]);
});

/** What a hostile payer may want otherwise. */
interface Made {
  amount?: bigint;
  source?: Address;
  authority?: KeyPairSigner | Address;
  mint?: Address;
  destination?: Address;
  units?: number;
  priority?: bigint;
  more?: Instruction[];
  feePayer?: Address;
}

/** A credential like a stock client's, with differences. */
async function credentialOf(made: Made = {}) {
  const offer = await onSolana('/a');
  const { amount = PRICE, authority = payer, units = 20_000, priority = 1n, mint = USDC, more = [] } = made;
  const limit = Buffer.alloc(5, 2);
  limit.writeUInt32LE(units, 1);
  const price = Buffer.alloc(9, 3);
  price.writeBigUInt64LE(priority, 1);
  const transfer = Buffer.alloc(10, 12);
  transfer.writeBigUInt64LE(amount, 1);
  transfer.writeUInt8(6, 9);
  const budget = address('ComputeBudget111111111111111111111111111111');
  const source = made.source ?? (await tokenAccountOf(payer.address));
  const destination = made.destination ?? (await tokenAccountOf(seller.address));
  const signer =
    typeof authority === 'string'
      ? { address: authority, role: AccountRole.READONLY_SIGNER }
      : { address: authority.address, role: AccountRole.READONLY_SIGNER, signer: authority };
  const instructions: Instruction[] = [
    { programAddress: budget, data: limit },
    { programAddress: budget, data: price },
    {
      programAddress: address('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA'),
      accounts: [
        { address: source, role: AccountRole.WRITABLE },
        { address: mint, role: AccountRole.READONLY },
        { address: destination, role: AccountRole.WRITABLE },
        signer,
      ],
      data: transfer,
    },
    ...more,
  ];
  const transaction = await partiallySignTransactionMessageWithSigners(
    pipe(
      createTransactionMessage({ version: 0 }),
      (message) => setTransactionMessageFeePayer(made.feePayer ?? feePayer(), message),
      (message) => appendTransactionMessageInstructions(instructions, message),
      (message) =>
        setTransactionMessageLifetimeUsingBlockhash(
          { blockhash: node.svm.latestBlockhash() as never, lastValidBlockHeight: 150n },
          message,
        ),
    ),
  );
  const text = getBase64EncodedWireTransaction(transaction);
  return { x402Version: 2, accepted: offer, payload: { transaction: text } };
}

test('no transaction takes anything else than the price from anybody, or goes unpaid', async () => {
  const other = await generateKeyPairSigner();
  const system = address('11111111111111111111111111111111');
  const lighthouse = address('L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95');
  const transferOfSol = Buffer.concat([Buffer.from([2, 0, 0, 0]), Buffer.alloc(8, 1)]);
  const funds = { address: feePayer(), role: AccountRole.WRITABLE_SIGNER };
  const takes = { address: payer.address, role: AccountRole.WRITABLE };
  // By why it is refused.
  const hostile: Record<string, Made> = {
    'amount_mismatch: less than the price': { amount: PRICE - 1n },
    'recipient_mismatch: to another account': { destination: await tokenAccountOf(other.address) },
    'is the one that is paid: to the account that pays': { destination: await tokenAccountOf(payer.address) },
    'mint_mismatch: of another token': { mint: other.address },
    'no part in the instructions: of the tokens of who pays the fee': {
      source: await tokenAccountOf(feePayer()),
      authority: feePayer(),
    },
    'no part in the instructions: with coins of who pays the fee': {
      more: [{ programAddress: system, accounts: [funds, takes], data: transferOfSol }],
    },
    'no part in the instructions: with rent of who pays the fee': {
      more: [{ programAddress: lighthouse, accounts: [funds], data: Buffer.from([0]) }],
    },
    'compute_price_instruction_too_high: with a dear priority': { priority: 5_000_000n },
    'compute_limit_instruction_too_high: with much computing': { units: 1_400_000 },
    'excessive_signers: with a third signer': {
      more: [
        {
          programAddress: address('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr'),
          accounts: [{ address: other.address, role: AccountRole.READONLY_SIGNER, signer: other } as never],
          data: Buffer.from('x'),
        },
      ],
    },
    'fee_payer_mismatch: whose fee another pays': { feePayer: other.address },
    'simulation_failed: of more than the payer holds': {
      source: await tokenAccountOf(other.address),
      authority: other,
    },
  };
  const [sol, calls] = [node.svm.getBalance(feePayer()), rig.calls.length];
  for (const [what, made] of Object.entries(hostile)) {
    const answer = await show('/a', encoded(await credentialOf(made)));
    const [why = ''] = what.split(':');
    expect([what, answer.status, await answer.text()]).toEqual([what, 402, expect.stringContaining(why)]);
  }
  // Changed after it was signed; of another's signature; for another price; not a transaction.
  const good = await credentialOf();
  const bytes = Buffer.from(good.payload.transaction, 'base64');
  for (const at of [1 + 64, bytes.length - 2, 1 + 2 * 64 + 40]) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8((changed[at] ?? 0) ^ 1, at);
    const credential = { ...good, payload: { transaction: changed.toString('base64') } };
    expect([at, (await show('/a', encoded(credential))).status]).toEqual([at, 402]);
  }
  const cheaper = { ...good, accepted: { ...good.accepted, amount: '1' } };
  expect((await show('/a', encoded(cheaper))).status).toBe(402);
  for (const transaction of ['AA==', 'AQ==', Buffer.alloc(900, 1).toString('base64')])
    expect((await show('/a', encoded({ ...good, payload: { transaction } }))).status).toBe(402);
  // A block that the network knows no longer.
  node.svm.expireBlockhash();
  expect((await show('/a', encoded(good))).status).toBe(402);
  expect([node.svm.getBalance(feePayer()), await node.held(feePayer())]).toEqual([sol, HELD]);
  expect([rig.calls.length, await node.held(seller.address), await node.held(payer.address)]).toEqual([
    calls,
    0n,
    HELD,
  ]);
});

test('a node that fails, or says what is not so, costs nobody the price twice', async () => {
  const pay = () => solanaClient(node, payer).fetch(`${rig.url}/a`);
  // Nothing is verified without it, and nothing is served.
  node.fault = (method) =>
    method === 'simulateTransaction' ? { error: { code: -32005, message: 'behind' } } : undefined;
  expect((await pay()).status).toBe(402);
  expect(rig.calls.length).toBe(0);
  // It refuses when it is sent: the payer hears that nothing was charged.
  node.fault = (method) =>
    method === 'sendTransaction' ? { error: { code: -32002, message: 'Transaction simulation failed' } } : undefined;
  expect((await pay()).status).toBe(402);
  expect(await node.held(seller.address)).toBe(0n);
  // It takes the transaction, and says that it has refused it, or that it is busy.
  for (const code of [-32002, -32005]) {
    const before = await node.held(seller.address);
    node.fault = async (method, params) => {
      if (method !== 'sendTransaction') return undefined;
      node.send(params);
      return { error: { code, message: 'no' } };
    };
    expect((await pay()).status).toBe(200);
    expect((await node.held(seller.address)) - before).toBe(PRICE);
  }
});

test('what the node never took ends with its block, and can happen no more', async () => {
  vi.useFakeTimers({ toFake: ['Date', 'performance'] });
  const client = solanaClient(node, payer);
  const sent = Promise.withResolvers<readonly unknown[]>();
  node.fault = (method, params) => {
    if (method !== 'sendTransaction') return undefined;
    sent.resolve(params);
    return { error: { code: -32005, message: 'behind' } };
  };
  const answer = client.fetch(`${rig.url}/a`);
  const transaction = await sent.promise;
  // Longer than a confirmation is waited for.
  vi.advanceTimersByTime(25_000);
  expect((await answer).status).toBe(503);
  const state = async () => (await rig.registry.client.execute('SELECT state FROM payments')).rows[0]?.state;
  node.svm.expireBlockhash();
  vi.advanceTimersByTime(60_000);
  // As long as nodes may differ, it is not given up.
  const looked = node.calls.get('getSignatureStatuses') ?? 0;
  await until(async () => (node.calls.get('getSignatureStatuses') ?? 0) > looked);
  expect(await state()).toBe('settling');
  vi.advanceTimersByTime(120_000);
  await until(async () => (await state()) === 'released');
  expect((await show('/a', client.sent.signature)).status).toBe(402);
  expect(() => node.send(transaction)).toThrow(/Transaction simulation failed/);
  expect([await node.held(seller.address), await node.held(payer.address)]).toEqual([0n, HELD]);
});
