/** Payments whose node is slow, whose channel is gone, or whose answer breaks off: nothing paid twice, nothing forgotten. */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Credential } from 'mppx';
import { tempo } from 'mppx/client';
import { Session } from 'mppx/tempo';
import { type Hex, RpcRequestError, TimeoutError } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { sendRawTransaction, waitForTransactionReceipt } from 'viem/actions';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { withRpc } from '../../host/payments/network/chains.ts';
import { x402Client as clientOf } from '../../host/payments/network/clients.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { parsePaidRoutes } from '../../host/payments/paid-routes.ts';
import { micro } from '../../host/shared/money.ts';
import { ChannelPayer } from './support/channel-payer.ts';
import type { LocalNetworkFile } from './support/host.ts';
import {
  type Args,
  type Ask,
  balance,
  behind,
  mppClient,
  mppOf,
  type Rig,
  startNetwork,
  startRig,
  x402Client,
} from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig | undefined;
/** Stands before the node. */
let node: ((ask: Ask, args: Args) => Promise<unknown>) | undefined;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
afterEach(async () => {
  vi.useRealTimers();
  node = undefined;
  await rig?.close();
  rig = undefined;
});

const wrapped = () => behind(network, (ask, args) => (node ? node(ask, args) : ask(args)));
const stateOf = async () => (await rows('select state from payments'))[0]?.state;
const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const key = (index: number) => network.wallets?.[index]?.privateKey ?? '0x';
/** A stock client that pays by session. */
function sessionOf(index: number) {
  const account = privateKeyToAccount(key(index) as Hex);
  return tempo.session.manager({
    account,
    getClient: () => mppOf(network).getClient(account) as never,
    maxDeposit: '1',
  });
}
const rows = async (sql: string) => (await rig!.registry.client.execute(sql)).rows.map((row) => ({ ...row }));
/** This machine's clock is set, and the chain's is not. */
const leap = () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  vi.setSystemTime(Date.now() + 2 * 3_600_000);
};
/**
 * A busy node: it takes the transaction and answers as EIP-7966 says when the time is up.
 * @param when it comes to the transaction: after so many ms, or then
 */
const slowNode =
  (error: () => Error, when: number | Promise<unknown>, method = 'eth_sendRawTransactionSync') =>
  async (ask: Ask, args: { method: string; params?: unknown[] }) => {
    if (args.method !== method) return ask(args);
    const due = typeof when === 'number' ? later(when) : when;
    void due.then(() => ask({ method: 'eth_sendRawTransaction', params: [args.params![0]] })).catch(() => {});
    throw error();
  };
const taken = (code: number) => () =>
  new RpcRequestError({
    body: {},
    url: 'http://node',
    error: { code, message: 'The transaction was added to the mempool but was not processed' },
  });

test.each([4, 5, -32005])('a node that has taken a charge and answers %s has not refused it', async (code) => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
  const client = mppClient(network, key(0));
  const answered = Promise.withResolvers<void>();
  node = slowNode(taken(code), answered.promise);
  expect((await client.fetch(`${rig.url}/a`)).status).toBe(503);
  answered.resolve();
  await until(async () => (await stateOf()) === 'answered');
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
});

test('a clock that leaps ends no payment that the node has taken', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
  const client = mppClient(network, key(0));
  const before = await balance(network, 'tempo', client.address);
  const answered = Promise.withResolvers<void>();
  node = slowNode(taken(-32005), answered.promise);
  expect((await client.fetch(`${rig.url}/a`)).status).toBe(503);
  leap();
  answered.resolve();
  const states = new Set<unknown>();
  await until(async () => {
    states.add(await stateOf());
    return states.has('answered') || states.has('released');
  });
  expect([...states]).not.toContain('released');
  expect(await balance(network, 'tempo', client.address)).toBe(before - 50_000n);
  expect(await balance(network, 'tempo', payTo)).toBe(50_000n);
});

test.each([
  [-32005, 'limit exceeded', false],
  [-32005, 'limit exceeded, and the clock leaps', true],
  [-32000, 'nonce too low', false],
  [-32000, 'already known', false],
])('a node that has taken a settlement of x402 and answers %i %s has not refused it', async (code, message, leaps) => {
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  const isKnown = message === 'already known';
  let isArmed = true;
  let isInPool = false;
  // Where the host waits for its block, it comes meanwhile; otherwise when the caller has heard twice that it is not known yet.
  const heard = Promise.withResolvers<void>();
  const due = () => (isKnown ? later(1_500) : heard.promise);
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    const forward = async () => {
      const answer = await fetch(x402.rpcUrl, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      return answer.text();
    };
    const isSent = isArmed && body.includes('"eth_sendRawTransaction"');
    if (isSent) {
      isInPool = true;
      const toChain = () => {
        isInPool = false;
        return forward();
      };
      void due()
        .then(toChain)
        .catch(() => undefined);
    }
    response.setHeader('content-type', 'application/json');
    const { id } = JSON.parse(body) as { id: number };
    const fails = (error: object) => JSON.stringify({ jsonrpc: '2.0', id, error });
    if (isSent) return response.end(fails({ code, message }));
    // Where the node looks into its pool, the same payment cannot be made once more.
    if (isInPool && /"eth_(estimateGas|fillTransaction)"/.test(body))
      return response.end(fails({ code: 3, message: 'execution reverted: authorization is used or canceled' }));
    response.end(await forward());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const chain = withRpc(x402.chain, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const slow = { ...network, x402: { ...x402, getClient: (account?: never) => clientOf(chain, account) } };
    const payTo = privateKeyToAccount(generatePrivateKey()).address;
    rig = await startRig(slow as Network, { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
    rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
    const client = x402Client(network, key(1));
    const before = await balance(network, 'usdc', client.address);
    const { status } = await client.fetch(`${rig.url}/a`);
    expect(status).toBe(isKnown ? 200 : 503);
    isArmed = false;
    if (leaps) leap();
    // Sent again while it waits in the pool: told so, and never asked for another payment.
    const headers = { 'payment-signature': client.sent.signature ?? '' };
    const again = await fetch(`${rig.url}/a`, { headers });
    expect(again.status).toBe(status);
    heard.resolve();
    await until(async () => (await stateOf()) === 'answered');
    await later(2_000);
    expect(await balance(network, 'usdc', payTo)).toBe(50_000n);
    expect(await balance(network, 'usdc', client.address)).toBe(before - 50_000n);
  } finally {
    await rig?.close();
    rig = undefined;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

test('a price that changes while a payment is pending is not asked of who paid before', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const routes = (price: string) => [{ method: 'GET', path: '/a', price }];
  rig = await startRig(wrapped(), { payTo, routes: routes('0.05') });
  const { deployment } = rig;
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
  const body = 'x'.repeat(100_000);
  const cases = [
    ['/a', 'GET', undefined, 'hello'],
    ['/_deploy', 'POST', body, 'live'],
  ] as const;
  for (const [path, method, sent, answer] of cases) {
    const client = mppClient(network, key(path === '/a' ? 0 : 2));
    const before = await balance(network, 'tempo', client.address);
    const answered = Promise.withResolvers<void>();
    node = slowNode(taken(-32005), answered.promise);
    const init = { method, ...(sent === undefined ? {} : { body: sent }) };
    expect((await client.fetch(`${rig.url}${path}`, init)).status).toBe(503);
    answered.resolve();
    const paid = before - (path === '/a' ? 50_000n : 200_000n);
    if (path === '/a') deployment.paidRoutes = parsePaidRoutes(routes('0.50'));
    else rig.operationPrice = micro(5_000_000n);
    const again = () =>
      fetch(`${rig?.url}${path}`, {
        ...init,
        headers: { authorization: client.sent.authorization ?? '', 'x-max-price': '0.05' },
      });
    const last = await until(async () => {
      const response = await again();
      const text = await response.text();
      expect([200, 201, 503], text).toContain(response.status);
      return response.status === 503 ? undefined : text;
    });
    expect(last).toContain(answer);
    expect(await balance(network, 'tempo', client.address)).toBe(paid);
  }
});

test('a payout that the node has taken is not sent again', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, feeBps: 1000, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  const client = mppClient(network, key(1));
  let armed = true;
  const slow = slowNode(taken(4), 1500);
  let calls = 0;
  node = async (ask, args) => {
    if (args.method === 'eth_sendRawTransactionSync') {
      calls += 1;
      // The charge goes through at once; only the first payout meets a busy node.
      if (calls === 2 && armed) {
        armed = false;
        return slow(ask, args);
      }
    }
    return ask(args);
  };
  const response = await client.fetch(`${rig.url}/a`);
  expect(response.status).toBe(200);
  await until(async () => {
    const [payout] = await rows("select state from payment_outgoing where kind = 'payout'");
    return payout?.state === 'sent';
  });
  expect(await balance(network, 'tempo', payTo)).toBe(45_000n);
});

test('a tenant whom the token refuses to pay keeps nobody else from being paid', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address.toLowerCase() as Hex;
  rig = await startRig(wrapped(), { payTo, feeBps: 1000, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  await rig.restart({ payoutEveryMs: 600_000 });
  const client = mppClient(network, key(1));
  // TIP-20 takes no transfer to a token.
  for (const recipient of [mppOf(network).currency, payTo]) {
    rig.deployment = { ...rig.deployment, payTo: recipient };
    expect((await client.fetch(`${rig.url}/a`)).status).toBe(200);
  }
  for (let round = 0; round < 5; round += 1) await rig.payments.ledger.reconcile();
  const outgoing = await rows('select state, count(*) as count from payment_outgoing group by state order by state');
  expect(outgoing).toEqual([
    { state: 'sent', count: 3 },
    { state: 'stuck', count: 1 },
  ]);
  expect(await balance(network, 'tempo', payTo)).toBe(45_000n);
});

test('a payout that the operator says to have paid while it is being signed is not sent', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, feeBps: 1000, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  const { ledger } = rig.payments;
  const signing = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  node = async (ask, args) => {
    if (/^eth_(estimateGas|fillTransaction)$/.test(args.method)) {
      signing.resolve();
      await go.promise;
    }
    return ask(args);
  };
  expect((await mppClient(network, key(1)).fetch(`${rig.url}/a`)).status).toBe(200);
  await signing.promise;
  const [payout] = await rows("select id from payment_outgoing where kind = 'payout'");
  const told = ledger.resolve(String(payout?.id), { action: 'paid', reference: `0x${'ab'.repeat(32)}` }).then(
    () => 0n,
    () => 45_000n,
  );
  go.resolve();
  expect(await balance(network, 'tempo', payTo)).toBe(0n);
  const paidByHost = await told;
  await until(async () => (await ledger.open()).length === 0);
  expect(await balance(network, 'tempo', payTo)).toBe(paidByHost);
});

test('a pending payment that its payer asks for again is finished', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), {
    payTo,
    feeBps: 1000,
    routes: [
      { method: 'GET', path: '/a', price: '0.05' },
      { method: 'GET', path: '/s', price: '0.05' },
    ],
  });
  rig.handler = (request) =>
    new URL(request.url).pathname === '/a'
      ? new Response('hello', { headers: { 'content-length': '5' } })
      : new Response(
          new ReadableStream({
            start(c) {
              c.enqueue(Buffer.from('x'));
              c.close();
            },
          }),
        );
  const client = mppClient(network, key(2));
  for (const path of ['/a', '/s']) {
    // The transaction is in a block, but from then on the node says nothing.
    let isSilent = false;
    node = async (ask, args) => {
      const answer = isSilent ? undefined : await ask(args);
      isSilent ||= args.method === 'eth_sendRawTransactionSync';
      if (isSilent) throw new TimeoutError({ body: {}, url: 'http://node' });
      return answer;
    };
    expect((await client.fetch(`${rig.url}${path}`)).status).toBe(503);
    node = undefined;
    await fetch(`${rig.url}${path}`, { headers: { authorization: client.sent.authorization! } });
  }
  await until(async () => {
    const states = (await rows('select state from payments order by created_at')).map(({ state }) => state);
    return states.join() === 'answered,refunded';
  });
  await until(
    async () => (await rows("select id from payment_outgoing where state NOT IN ('sent', 'waived')")).length === 0,
  );
});

test('a deposit and a top-up that another node of the host has sent, and no block has yet, are waited for', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/m', price: '0.05', mode: 'metered' }] });
  const { chain, rpcUrl } = mppOf(network);
  const reached = { rpcUrl, chainId: chain.id, wallets: network.wallets } as LocalNetworkFile;
  const payer = new ChannelPayer(reached, 5, `${rig.url}/m`, fetch);
  node = slowNode(
    () => new RpcRequestError({ body: {}, url: '', error: { code: -32000, message: 'already known' } }),
    500,
    'eth_sendRawTransaction',
  );
  const show = async (headers: Record<string, string>) => (await fetch(`${rig!.url}/m`, { headers })).status;
  expect(await show(await payer.open())).toBe(200);
  expect(await show(await payer.topUp(200_000))).toBe(204);
  expect(await rows('select state, deposit from payment_channels')).toEqual([{ state: 'open', deposit: 1_200_000 }]);
  node = undefined;
  expect(await show(await payer.close(50_000))).toBe(204);
});

test.each(['open', 'closing'])(
  'a channel that is %s and whose deposit was withdrawn buys nothing, and what it owed is told',
  async (state) => {
    const payTo = privateKeyToAccount(generatePrivateKey()).address;
    rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/m', price: '0.05', mode: 'metered' }] });
    const session = sessionOf(4);
    expect((await session.fetch(`${rig.url}/m`)).status).toBe(200);
    // What the payer's requestClose and, after the grace period, withdraw leave on the chain while the host is down.
    const { settler } = network.hostAccounts;
    const chain = mppOf(network).getClient(settler);
    const [row] = (await rows('select descriptor, escrow from payment_channels')) as unknown as {
      descriptor: string;
      escrow: Hex;
    }[];
    if (!row) throw new Error('there is no channel');
    const { Chain } = Session.Precompile;
    const hash = await Chain.closeOnChain(
      chain,
      JSON.parse(row.descriptor),
      0n as never,
      0n as never,
      '0x',
      row.escrow,
      {
        account: settler,
        candidateFeeTokens: [mppOf(network).currency],
      },
    );
    await Chain.waitForSuccessfulReceipt(chain as never, hash);
    await rig.registry.client.execute({ sql: 'UPDATE payment_channels SET state = ?', args: [state] });
    await rig.restart();
    await session.fetch(`${rig.url}/m`).catch((error: unknown) => error);
    expect(rig.calls).toHaveLength(1);
    const { ledger } = rig.payments;
    const what = { ledger: 'captured 50000', chain: 'settled 0, and the deposit is gone' };
    expect(await ledger.reconcile()).toMatchObject({ ok: false, differences: [what] });
    expect(await rows('select state from payment_channels')).toEqual([{ state: 'failed' }]);
    expect(await balance(network, 'tempo', payTo)).toBe(0n);
    const [owed] = await ledger.open();
    expect(owed).toMatchObject({ kind: 'stuck', amount: '0.05', error: expect.stringContaining('deposit') });
    await ledger.resolve(owed!.id, { action: 'waive' });
    expect((await ledger.reconcile()).differences).toEqual([]);
  },
);

test('a channel that the chain has and the books do not is taken on by its payer’s signature', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/m', price: '0.05', mode: 'metered' }] });
  const { chain, rpcUrl, getClient } = mppOf(network);
  const reached = { rpcUrl, chainId: chain.id, wallets: network.wallets } as LocalNetworkFile;
  const payer = new ChannelPayer(reached, 5, `${rig.url}/m`, fetch);
  // The host has lost what it knew of the opening.
  const { authorization = '' } = await payer.open();
  const { transaction } = Credential.deserialize<{ transaction: Hex }>(authorization).payload;
  const hash = await sendRawTransaction(getClient(), { serializedTransaction: transaction });
  await waitForTransactionReceipt(getClient(), { hash });
  const show = async (headers: Record<string, string>) => (await fetch(`${rig!.url}/m`, { headers })).status;
  const { challenge, payload, source } = Credential.deserialize<object>(
    (await payer.voucher(150_000)).authorization ?? '',
  );
  const forged = { challenge, source, payload: { ...payload, signature: `0x${'1b'.repeat(65)}` } };
  expect(await show({ authorization: Credential.serialize(forged as never) })).toBe(402);
  // More than the deposit.
  expect(await show(await payer.voucher(1_000_001))).toBe(402);
  expect(await rows('select id from payment_channels')).toEqual([]);
  // Of the 0.15 two calls are lost, which are the host’s loss.
  expect(await show(await payer.voucher(150_000))).toBe(200);
  const columns = 'state, deposit, voucher, captured, settled';
  expect(await rows(`select ${columns} from payment_channels`)).toEqual([
    { state: 'open', deposit: 1_000_000, voucher: 150_000, captured: 50_000, settled: 0 },
  ]);
  expect(await show(await payer.close(150_000))).toBe(204);
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, differences: [] });
});

test('a channel that was closed with what it owed has paid, though it is open in books that came back', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/m', price: '0.05', mode: 'metered' }] });
  const session = sessionOf(4);
  expect((await session.fetch(`${rig.url}/m`)).status).toBe(200);
  const [row] = (await rows('select descriptor, escrow, voucher_signature from payment_channels')) as unknown as {
    descriptor: string;
    escrow: Hex;
    voucher_signature: Hex;
  }[];
  if (!row) throw new Error('there is no channel');
  const { settler } = network.hostAccounts;
  const chain = mppOf(network).getClient(settler);
  const owed = 50_000n as never;
  const { Chain } = Session.Precompile;
  const how = { account: settler, candidateFeeTokens: [mppOf(network).currency] };
  const given = [JSON.parse(row.descriptor), owed, owed, row.voucher_signature, row.escrow, how] as const;
  const hash = await Chain.closeOnChain(chain, ...given);
  await Chain.waitForSuccessfulReceipt(chain as never, hash);
  await rig.restart();
  await session.fetch(`${rig.url}/m`).catch((error: unknown) => error);
  expect(await rows('select state, settled from payment_channels')).toEqual([{ state: 'closed', settled: 50_000 }]);
  await until(async () => (await balance(network, 'tempo', payTo)) === 50_000n);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, differences: [] });
});

test('a channel of which more was settled than books that came back know goes on from there, and is closed', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/m', price: '0.05', mode: 'metered' }] });
  const { chain, rpcUrl } = mppOf(network);
  const reached = { rpcUrl, chainId: chain.id, wallets: network.wallets } as LocalNetworkFile;
  const payers = [3, 5].map((index) => new ChannelPayer(reached, index, `${rig!.url}/m`, fetch));
  const show = async (headers: Record<string, string>) => (await fetch(`${rig!.url}/m`, { headers })).status;
  const { settler } = network.hostAccounts;
  const client = mppOf(network).getClient(settler);
  const { Chain, Protocol } = Session.Precompile;
  const how = { account: settler, candidateFeeTokens: [mppOf(network).currency] };
  const columns = 'state, voucher, captured, settled';
  for (const payer of payers) {
    expect(await show(await payer.open())).toBe(200);
    // Of a call, and a settlement, that the books have lost.
    const { authorization = '' } = await payer.voucher(100_000);
    const { payload } = Credential.deserialize<{ signature: Hex; descriptor: never }>(authorization);
    const amount = 100_000n as never;
    const hash = await Chain.settleOnChain(
      client,
      payload.descriptor,
      amount,
      payload.signature,
      Protocol.tip20ChannelEscrow,
      how,
    );
    await Chain.waitForSuccessfulReceipt(client as never, hash);
  }
  await rig.restart();
  const [first, second] = payers as [ChannelPayer, ChannelPayer];
  expect(await show(await first.close(100_000))).toBe(204);
  // Two calls more: one that the chain has taken the money of, and one.
  for (const cumulative of [150_000, 200_000]) expect(await show(await second.voucher(cumulative))).toBe(200);
  expect(await show(await second.close(200_000))).toBe(204);
  expect(await rows(`select ${columns} from payment_channels order by captured`)).toEqual([
    { state: 'closed', voucher: 100_000, captured: 100_000, settled: 100_000 },
    { state: 'closed', voucher: 200_000, captured: 150_000, settled: 150_000 },
  ]);
  // Each call that the books know of.
  await until(async () => (await balance(network, 'tempo', payTo)) === 200_000n);
  expect(await rig.payments.ledger.reconcile()).toMatchObject({ ok: true, differences: [] });
  expect(rig.payments.ledger.stopped()).toBeUndefined();
});

test('two refunds of one payment are both counted', async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), {
    payTo,
    feeBps: 1000,
    routes: [{ method: 'GET', path: '/m', price: '0.10', mode: 'metered' }],
  });
  rig.handler = () =>
    new Response(
      new ReadableStream({
        start(c) {
          c.enqueue(Buffer.from('x'));
          setTimeout(() => c.error(new Error('gone')), 5);
        },
      }),
      { headers: { 'x-charge': '0.04' } },
    );
  const client = mppClient(network, key(5 % network.wallets!.length));
  const before = await balance(network, 'tempo', client.address);
  await client
    .fetch(`${rig.url}/m`)
    .then((r) => r.text())
    .catch(() => undefined);
  await until(async () => (await stateOf()) === 'refunded');
  expect(await rows('select refunded from payments')).toEqual([{ refunded: 100_000 }]);
  expect(await balance(network, 'tempo', client.address)).toBe(before);
});

test('a deploy whose settlement takes longer than its caller waits is completed', async () => {
  rig = await startRig(wrapped(), { payTo: privateKeyToAccount(generatePrivateKey()).address });
  const client = mppClient(network, key(3));
  node = async (ask, args) => {
    if (args.method === 'eth_sendRawTransactionSync') await later(12_300);
    return ask(args);
  };
  const response = await client.fetch(`${rig.url}/_deploy`, { method: 'POST', body: 'app' });
  expect(response.status).toBe(503);
  await until(async () => rig?.completed.length === 1);
});

test.each([
  ['settlement', ['settled'], 'settling'],
  ['end', ['answered', 'refund_owed'], 'settled'],
])('a payment whose %s could not be noted is finished without a restart', async (_, lost, state) => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(wrapped(), { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  rig.handler = () => new Response('hello', { headers: { 'content-length': '5' } });
  const { client: registry } = rig.registry;
  const batch = registry.batch.bind(registry);
  let isFull = true;
  registry.batch = async (statements, ...rest) => {
    const args = statements.flatMap((one) =>
      typeof one === 'object' && 'args' in one ? Object.values(one.args ?? {}) : [],
    );
    if (isFull && lost.some((one) => args.includes(one)))
      throw Object.assign(new Error('the disk is full'), { code: 'SQLITE_FULL' });
    return batch(statements, ...rest);
  };
  const client = mppClient(network, key(0));
  expect((await client.fetch(`${rig.url}/a`)).status).toBeGreaterThan(499);
  expect((await client.fetch(`${rig.url}/_deploy`, { method: 'POST', body: 'app' })).status).toBeGreaterThan(499);
  await later(2_500);
  expect(await rows('select state from payments')).toEqual([{ state }, { state }]);
  isFull = false;
  await until(async () => (await rows("select id from payments where state = 'answered'")).length === 2);
  expect(new Set(rig.completed.map((one) => JSON.stringify(one))).size).toBe(1);
  expect(await balance(network, 'tempo', payTo)).toBe(50_000n);
  expect((await rig.payments.ledger.reconcile()).ok).toBe(true);
});
