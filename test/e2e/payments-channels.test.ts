/** Payers who try to keep a channel from being collected: closings, top-ups and calls that stand in the way. */
import { Challenge, Credential } from 'mppx';
import { tempo } from 'mppx/client';
import { Session } from 'mppx/tempo';
import { encodeFunctionData, type Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { prepareTransactionRequest, signTransaction } from 'viem/actions';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { DEFAULT_SCHEDULE } from '../../host/payments/methods/channels/sweeper.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, behind, mppOf, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

const { Chain, escrowAbi, Protocol, Voucher } = Session.Precompile;
const escrow = Protocol.tip20ChannelEscrow;

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
  rig = await startRig(network, { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05', mode: 'metered' }] });
});
afterEach(() => rig.close());

function payer(index: number) {
  const account = privateKeyToAccount(network.wallets?.[index]?.privateKey ?? '0x');
  const client = mppOf(network).getClient(account);
  const session = tempo.session.manager({ account, getClient: () => client as never, maxDeposit: '1' });
  return { account, client, session };
}
type Payer = ReturnType<typeof payer>;

async function channel() {
  const [row] = (await rig.registry.client.execute('SELECT * FROM payment_channels ORDER BY created_at DESC')).rows;
  if (!row) throw new Error('no channel');
  const descriptor = JSON.parse(String(row.descriptor)) as Parameters<typeof Chain.topUpOnChain>[1];
  return { id: row.id as Hex, state: String(row.state), reserved: Number(row.reserved), descriptor };
}

/** Sends a credential for the channel as a client would, whatever is in it. */
async function send(
  { account }: Payer,
  payload: Record<string, unknown>,
  init: RequestInit = {},
  url = `${rig.url}/a`,
): Promise<Response> {
  const { id, descriptor } = await channel();
  const challenge = Challenge.fromResponseList(await fetch(url)).find(({ intent }) => intent === 'session');
  const source = `did:pkh:eip155:1337:${account.address}`;
  const credential = { challenge, payload: { channelId: id, descriptor, ...payload }, source };
  return fetch(url, { ...init, headers: { authorization: Credential.serialize(credential as never) } });
}

async function signed({ client, account }: Payer, cumulativeAmount: bigint) {
  const { id } = await channel();
  const signature = await Voucher.signVoucher(client, account, { channelId: id, cumulativeAmount }, escrow, 1337);
  return { cumulativeAmount: String(cumulativeAmount), signature };
}

async function sendClose(by: Payer, cumulativeAmount: bigint): Promise<Response> {
  return send(by, { action: 'close', ...(await signed(by, cumulativeAmount)) });
}

/** A top-up of the last channel, signed and not sent; with a nonce ahead of its time the chain never takes it. */
async function signTopUp({ account, client }: Payer, amount: bigint, nonceAhead: number): Promise<Hex> {
  const { descriptor } = await channel();
  const data = encodeFunctionData({ abi: escrowAbi, functionName: 'topUp', args: [descriptor, amount] });
  const request = await prepareTransactionRequest(client, {
    account,
    calls: [{ to: escrow, data }],
    feeToken: mppOf(network).currency,
  } as never);
  const nonce = Number((request as { nonce?: number }).nonce ?? 0) + nonceAhead;
  return signTransaction(client, { ...(request as object), nonce, account } as never) as Promise<Hex>;
}

test('a closing voucher over the deposit is refused, and the channel is collected all the same', async () => {
  const by = payer(0);
  await by.session.fetch(`${rig.url}/a`);
  const refused = await sendClose(by, 1_000_000_000n);
  expect(refused.status).toBe(402);
  expect(await refused.text()).toContain('at most');
  expect((await sendClose(by, 50_000n)).status).toBe(204);
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true });
});

test('a refused close where nothing is for sale is the host’s to answer', async () => {
  const by = payer(0);
  await by.session.fetch(`${rig.url}/a`);
  const calls = rig.calls.length;
  const close = { action: 'close', cumulativeAmount: '50000', signature: `0x${'11'.repeat(64)}1b` };
  const refused = await send(by, close, { method: 'POST' });
  expect(refused.status).toBe(402);
  expect(await refused.text()).toContain('signature is not valid');
  expect(rig.calls.length).toBe(calls);
  expect((await by.session.close())?.spent).toBe('50000');
});

test('a call that does not end holds no channel: a close gives it up and collects the rest', async () => {
  const by = payer(1);
  await by.session.fetch(`${rig.url}/a`);
  const began = Promise.withResolvers<void>();
  rig.handler = async (_request, signal) => {
    began.resolve();
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('given up'))));
  };
  const slow = by.session.fetch(`${rig.url}/a`);
  await began.promise;
  expect((await channel()).reserved).toBe(50_000);
  const hash = await Chain.requestCloseOnChain(by.client, (await channel()).descriptor, escrow, {
    account: by.account,
  });
  await Chain.waitForSuccessfulReceipt(by.client as never, hash);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, differences: [] });
  expect((await slow).status).toBe(409);
  expect(await channel()).toMatchObject({ state: 'closed', reserved: 0 });
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
});

test('a stranger’s top-up is refused at once, and one that the chain does not take holds nobody up', async () => {
  const [by, stranger] = [payer(3), payer(4)];
  await by.session.fetch(`${rig.url}/a`);
  const topUp = (transaction: Hex) => ({
    action: 'topUp',
    type: 'transaction',
    transaction,
    additionalDeposit: '1000',
  });
  const refused = await send(by, topUp(await signTopUp(stranger, 1_000n, 50)));
  expect(refused.status).toBe(402);
  expect(await refused.text()).toContain('not signed by the channel');
  const transaction = await signTopUp(by, 1_000n, 50);
  void send(by, topUp(transaction)).catch(() => undefined);
  expect((await by.session.fetch(`${rig.url}/a`)).status).toBe(200);
  await rig.payments.ledger.reconcile();
  const receipt = await by.session.close();
  expect(receipt?.spent).toBe('100000');
});

test('many top-ups at once, and one sent twice, deposit what the chain says', async () => {
  const by = payer(5);
  await by.session.fetch(`${rig.url}/a`);
  const transaction = await signTopUp(by, 1_000n, 0);
  const payload = { action: 'topUp', type: 'transaction', transaction, additionalDeposit: '1000' };
  const answers = await Promise.all(Array.from({ length: 5 }, () => send(by, payload)));
  expect(answers.map(({ status }) => status)).toEqual([204, 204, 204, 204, 204]);
  expect((await send(by, payload)).status).toBe(204);
  expect((await send(by, { ...payload, additionalDeposit: '2000' })).status).toBe(402);
  const [row] = (await rig.registry.client.execute('SELECT deposit FROM payment_channels')).rows;
  const state = await Chain.getChannelState(by.client, (await channel()).id, escrow);
  expect(BigInt(String(row?.deposit))).toBe(state.deposit);
  expect((await by.session.close())?.spent).toBe('50000');
});

test('a channel whose opening the host has not heard of yet pays for nobody but its payer', async () => {
  let isLost = false;
  const failing = behind(network, async (ask, args) => {
    const isOpening = args.method.startsWith('eth_sendRawTransaction');
    if (isLost && !isOpening) throw new Error('the node is away');
    const answer = await ask(args);
    isLost ||= isOpening;
    if (isLost) throw new Error('the answer was lost');
    return answer;
  });
  await rig.close();
  rig = await startRig(failing, { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05', mode: 'metered' }] });
  const by = payer(6);
  await by.session.fetch(`${rig.url}/a`).catch(() => undefined);
  isLost = false;
  const { id, state } = await channel();
  expect(state).toBe('opening');
  await until(async () => (await Chain.getChannelState(by.client, id, escrow)).deposit > 0n);
  const [row] = (await rig.registry.client.execute('SELECT * FROM payment_channels WHERE id = ?', [id])).rows;
  const open = {
    action: 'open',
    type: 'transaction',
    transaction: String(row?.open_transaction),
    cumulativeAmount: String(row?.voucher),
  };
  // All but the signature is on the chain.
  const stolen = await send(by, { ...open, signature: `0x${'11'.repeat(64)}1b` });
  expect([stolen.status, rig.calls.length]).toEqual([402, 0]);
  expect(await stolen.text()).toContain('signature is not valid');
  const own = await send(by, { ...open, signature: String(row?.voucher_signature) });
  expect([own.status, rig.calls.length]).toEqual([200, 1]);
  expect(await channel()).toMatchObject({ state: 'open', reserved: 0 });
});

test('a voucher that was sent to the chain, where everybody can read it, pays for nobody’s call', async () => {
  await rig.close();
  const metered = { method: 'GET', mode: 'metered' };
  rig = await startRig(network, {
    payTo,
    routes: [
      { ...metered, path: '/a', price: '0.05' },
      { ...metered, path: '/cheap', price: '0.02' },
    ],
    schedule: { ...DEFAULT_SCHEDULE, settleAmount: 20_000n as never },
  });
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.02' } });
  const by = payer(7);
  // Its client signs for 0.05 more each time, whatever a call has cost.
  for (let i = 0; i < 3; i += 1) await (await by.session.fetch(`${rig.url}/a`)).text();
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
  const [row] = (await rig.registry.client.execute('SELECT * FROM payment_channels')).rows;
  expect(row).toMatchObject({ settled: 50_000, captured: 60_000, voucher: 150_000, state: 'open' });
  const show = async (most: bigint) => {
    const answer = await send(by, { action: 'voucher', ...(await signed(by, most)) }, {}, `${rig.url}/cheap`);
    return [answer.status, await answer.text(), rig.calls.length];
  };
  const refused = [402, expect.stringContaining('everybody can read it'), 3];
  expect(await show(50_000n)).toEqual(refused);
  // Books that came back from a backup hear of it from the chain.
  await rig.registry.client.execute('UPDATE payment_channels SET published = 0');
  await rig.restart();
  expect(await show(50_000n)).toEqual(refused);
  // One that comes late, and was not sent to the chain, still counts.
  expect(await show(100_000n)).toEqual([200, '{}', 4]);
  expect((await by.session.fetch(`${rig.url}/a`)).status).toBe(200);
});
