/** Payers, sellers and nodes that cheat a host which takes x402's batch-settlement, or are only unlucky. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { json } from 'node:stream/consumers';
import { BATCH_SETTLEMENT_ADDRESS } from '@x402/evm';
import {
  computeChannelId,
  createBatchSettlementEIP3009DepositPayload,
  signVoucher,
} from '@x402/evm/batch-settlement/client';
import { decodeFunctionData, encodeFunctionData, encodeFunctionResult, erc20Abi, type Hex, zeroHash } from 'viem';
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { localBatchSettlement } from '../../host/local-network/contracts/index.ts';
import { JsonRpcSocket } from '../../host/local-network/json-rpc-socket.ts';
import { DEFAULT_SCHEDULE } from '../../host/payments/methods/channels/sweeper.ts';
import { BATCH_ABI } from '../../host/payments/methods/x402/batch/chain.ts';
import { withRpc } from '../../host/payments/network/chains.ts';
import { eachOnce, x402Client } from '../../host/payments/network/clients.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

const ROUTES = [
  { method: 'GET', path: '/precious', price: '0.50' },
  { method: 'GET', path: '/report', price: '0.01' },
  { method: 'GET', path: '/dear', price: '0.02' },
  { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
];
const JSON_TYPE = { 'content-type': 'application/json' };
const { abi } = localBatchSettlement;
const address = BATCH_SETTLEMENT_ADDRESS as Hex;

interface Asked {
  method: string;
  params?: unknown[];
}

let network: Network;
let folder: string;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: Hex;
/** What the host's node says, where it is not what the chain says. */
let between: ((asked: Asked, told: unknown) => unknown) | undefined;
let node: Server;

beforeAll(async () => {
  ({ network, folder, stop } = await startNetwork());
  node = createServer(async (request, response) => {
    const asked = (await json(request)) as Asked;
    const told = await fetch(x402().rpcUrl, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(asked) });
    const document = (await told.json()) as { result?: unknown };
    if (between && 'result' in document) document.result = between(asked, document.result);
    response.writeHead(told.status, JSON_TYPE).end(JSON.stringify(document));
  });
  await once(node.listen(0, '127.0.0.1'), 'listening');
});
afterAll(async () => {
  node?.closeAllConnections();
  node?.close();
  await stop?.();
});
afterEach(() => rig.close());

async function start(schedule?: typeof DEFAULT_SCHEDULE) {
  between = undefined;
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(seenBy(network, `http://127.0.0.1:${(node.address() as AddressInfo).port}`), {
    payTo,
    routes: ROUTES,
    ...(schedule ? { schedule } : {}),
  });
}

/** The network as the host sees it through a node of its own. */
function seenBy(alive: Network, url: string): Network {
  const { x402 } = alive;
  if (!x402) throw new Error('no x402');
  const chain = withRpc(x402.chain, url);
  return {
    ...alive,
    x402: { ...x402, chain, rpcUrl: url, getClient: eachOnce((account) => x402Client(chain, account)) },
  };
}

const wallet = (index: number) => privateKeyToAccount(network.wallets?.[index]?.privateKey ?? '0x');
const x402 = () => network.x402 as NonNullable<Network['x402']>;
const channels = async () => (await rig.registry.client.execute('SELECT * FROM payment_channels')).rows;
const differences = async () => (await rig.payments.ledger.reconcile()).differences;

interface Hand {
  config: Parameters<typeof computeChannelId>[0];
  id: Hex;
  deposit(amount: number, most: number): Promise<object>;
  voucher(most: number): Promise<object>;
}

/** A payer who signs whatever the test wants. */
function hand(payer: PrivateKeyAccount, authorizer: PrivateKeyAccount = payer): Hand {
  const { network: name, token } = x402();
  const receiver = network.hostAccounts.facilitator.address;
  const config = {
    payer: payer.address,
    payerAuthorizer: authorizer.address,
    receiver,
    receiverAuthorizer: receiver,
    token,
    withdrawDelay: 86_400,
    salt: generatePrivateKey(),
  };
  const id = computeChannelId(config, name);
  const required = {
    network: name,
    asset: token,
    maxTimeoutSeconds: 300,
    extra: { name: x402().name, version: x402().version },
  };
  return {
    config,
    id,
    async deposit(amount, most) {
      const made = createBatchSettlementEIP3009DepositPayload(
        payer as never,
        2,
        required as never,
        config,
        String(amount),
        String(most),
        authorizer as never,
      );
      return (await made).payload;
    },
    async voucher(most) {
      return {
        type: 'voucher',
        channelConfig: config,
        voucher: await signVoucher(authorizer as never, id, String(most), name),
      };
    },
  };
}

function header(payload: object, amount: number) {
  const accepted = {
    scheme: 'batch-settlement',
    network: x402().network,
    asset: x402().token,
    amount: String(amount),
    payTo: network.hostAccounts.facilitator.address,
    maxTimeoutSeconds: 300,
  };
  return { 'payment-signature': Buffer.from(JSON.stringify({ x402Version: 2, accepted, payload })).toString('base64') };
}

async function call(payload: object, place = '/report', amount = 10_000) {
  const answer = await fetch(`${rig.url}${place}`, { headers: header(payload, amount) });
  return [answer.status, await answer.text()] as const;
}

async function send(
  account: PrivateKeyAccount,
  functionName: string,
  args: unknown[],
  to: Hex = address,
  with_: readonly unknown[] = abi,
) {
  const client = x402().getClient(account);
  const hash = await client.writeContract({
    account,
    chain: x402().chain,
    address: to,
    abi: with_,
    functionName,
    args,
  } as never);
  const receipt = await client.waitForTransactionReceipt({ hash });
  expect(receipt.status).toBe('success');
}

/** A contract that pays deposits with what it holds, whoever is said to make them. */
async function collector(account: PrivateKeyAccount): Promise<Hex> {
  const runtime =
    `7fa9059cbb${'00'.repeat(28)}5f5273${address.slice(2)}60045260443560245260205f60445f5f6024355af100`.toLowerCase();
  const data = `0x60${(runtime.length / 2).toString(16)}8060095f395ff3${runtime}` as Hex;
  const client = x402().getClient(account);
  const hash = await client.sendTransaction({ account, chain: x402().chain, data } as never);
  return (await client.waitForTransactionReceipt({ hash })).contractAddress as Hex;
}

/** The node does not know of any deposit. */
function lagging({ method, params = [] }: Asked, told: unknown) {
  const [asked] = params as [{ to?: string; data?: Hex }];
  if (method !== 'eth_call' || asked.to?.toLowerCase() !== address.toLowerCase() || !asked.data) return told;
  const { functionName } = decodeFunctionData({ abi, data: asked.data });
  return functionName === 'channels' ? encodeFunctionResult({ abi, functionName, result: [0n, 0n] } as never) : told;
}

test('nobody pays in another wallet’s name', async () => {
  await start();
  const [thief, victim] = [wallet(0), wallet(1)];
  const forged = hand(victim, thief);
  const pays = await collector(thief);
  await send(thief, 'transfer', [pays, 100_000n], x402().token, erc20Abi);
  await send(thief, 'deposit', [forged.config, 100_000n, pays, '0x']);
  const seen = () => rig.calls.map((request) => request.headers.get('x-payer'));
  expect(await call(await forged.voucher(10_000))).toEqual([402, expect.stringMatching(/payerAuthorizer/)]);
  // A deposit that the wallet has not signed says no more.
  const { deposit } = (await hand(victim, thief).deposit(100_000, 10_000)) as { deposit: object };
  const unsigned = { ...(await forged.voucher(10_000)), type: 'deposit', deposit };
  expect(await call(unsigned)).toEqual([402, expect.stringMatching(/payerAuthorizer/)]);
  expect(seen()).toEqual([]);
  // What it signed itself, it may have paid from elsewhere, and a key that its deposit names may pay for it.
  const own = hand(thief);
  await send(thief, 'transfer', [pays, 100_000n], x402().token, erc20Abi);
  await send(thief, 'deposit', [own.config, 100_000n, pays, '0x']);
  expect((await call(await own.voucher(10_000)))[0]).toBe(200);
  const named = hand(victim, thief);
  expect((await call(await named.deposit(100_000, 10_000)))[0]).toBe(200);
  expect((await call(await named.voucher(20_000)))[0]).toBe(200);
  expect(seen().map((did) => did?.split(':').pop()?.toLowerCase())).toEqual(
    [thief, victim, victim].map((each) => each.address.toLowerCase()),
  );
});

test('a node that lags behind writes nothing off', async () => {
  await start();
  const payer = hand(wallet(2));
  expect((await call(await payer.deposit(100_000, 10_000)))[0]).toBe(200);
  await rig.registry.client.execute('UPDATE payment_channels SET used_at = 0');
  between = lagging;
  await rig.restart();
  await differences();
  expect((await call(await payer.voucher(20_000)))[0]).toBe(402);
  await differences();
  between = undefined;
  // It knows of the deposit by now.
  expect((await call(await payer.voucher(20_000)))[0]).toBe(200);
  await rig.registry.client.execute('UPDATE payment_channels SET used_at = 0');
  await differences();
  expect((await channels())[0]).toMatchObject({ state: 'closed', settled: 20_000 });
  await until(async () => (await balance(network, 'usdc', payTo)) === 20_000n);
});

test('a deposit that is gone buys nothing more, however busy its channel is', async () => {
  await start();
  const payer = hand(wallet(3));
  expect((await call(await payer.deposit(100_000, 10_000)))[0]).toBe(200);
  between = lagging;
  // Nothing is known of a channel after a start.
  await rig.restart();
  expect((await call(await payer.voucher(20_000)))[0]).toBe(402);
  expect((await call(await payer.voucher(20_000)))[0]).toBe(402);
  expect(rig.calls).toHaveLength(1);
});

test('what was claimed and not noted is in the books with the transaction that claimed it', async () => {
  await start();
  const payer = hand(wallet(4));
  expect((await call(await payer.deposit(100_000, 10_000)))[0]).toBe(200);
  const [row] = await channels();
  // Two settlements of this host whose answers it never got.
  for (const total of [6_000n, 9_000n]) {
    const voucher = { channel: payer.config, maxClaimableAmount: 10_000n };
    const calls = [
      ['claim', [[{ voucher, signature: row?.voucher_signature, totalClaimed: total }]]],
      ['settle', [payer.config.receiver, payer.config.token]],
    ].map(([functionName, args]) => encodeFunctionData({ abi, functionName, args } as never));
    await send(network.hostAccounts.facilitator as PrivateKeyAccount, 'multicall', [calls]);
  }
  expect((await call(await payer.voucher(20_000)))[0]).toBe(200);
  const refund = { ...(await payer.voucher(20_000)), type: 'refund' };
  expect((await call(refund))[0]).toBe(200);
  expect(await differences()).toEqual([]);
  await until(async () => (await balance(network, 'usdc', payTo)) === 20_000n);
});

test('calls that wait for one on the same channel keep no other payment waiting', async () => {
  await start();
  const [slow, other] = [hand(wallet(5)), hand(wallet(6))];
  const [began, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  rig.handler = async ({ url }) => {
    if (url.endsWith('/dear')) {
      began.resolve();
      await go.promise;
    }
    return Response.json({});
  };
  const first = call(await slow.deposit(200_000, 20_000), '/dear', 20_000);
  await began.promise;
  // More than one caller may have verified at a time.
  const waiting = await Promise.all(Array.from({ length: 40 }, async (_, i) => slow.voucher(30_000 + i))).then(
    (vouchers) => vouchers.map((voucher) => call(voucher)),
  );
  const served = await Promise.race([
    call(await other.deposit(200_000, 10_000)),
    Promise.all(waiting).then(() => 'only after them'),
  ]);
  expect(served).toEqual([200, expect.anything()]);
  go.resolve();
  expect((await first)[0]).toBe(200);
  expect(new Set((await Promise.all(waiting)).map(([status]) => status))).toEqual(new Set([200, 402]));
});

test('nonsense is the caller’s fault', async () => {
  await start();
  const payer = hand(wallet(7));
  const made = (await payer.voucher(10_000)) as { channelConfig: object };
  for (const channelConfig of [
    { ...made.channelConfig, withdrawDelay: 2 ** 40 },
    { ...made.channelConfig, withdrawDelay: Number.MAX_SAFE_INTEGER },
    { ...made.channelConfig, salt: zeroHash },
  ])
    expect((await call({ ...made, channelConfig }))[0]).toBe(402);
});

test('deposits that come and go use up what a seller’s channels may cost, and nothing else of it', async () => {
  await start();
  // 0.30 USD a transaction, of a dollar a day.
  between = ({ method }, told) => (method === 'eth_gasPrice' ? '0x1dcd6500' : told);
  await rig.restart();
  const statuses: number[] = [];
  for (let i = 0; i < 3; i += 1) {
    const payer = hand(wallet(5));
    statuses.push((await call(await payer.deposit(10_000_000, 10_000)))[0]);
    if (statuses[i] === 200) expect((await call({ ...(await payer.voucher(10_000)), type: 'refund' }))[0]).toBe(200);
  }
  // Nor what its payer deposits itself: the host gives it back.
  const pays = await collector(wallet(5));
  await send(wallet(5), 'transfer', [pays, 10_000n], x402().token, erc20Abi);
  const own = hand(wallet(5));
  await send(wallet(5), 'deposit', [own.config, 10_000n, pays, '0x']);
  statuses.push((await call(await own.voucher(10_000)))[0]);
  expect(statuses).toEqual([200, 200, 402, 402]);
  const required = (await fetch(`${rig.url}/precious`)).headers.get('payment-required') ?? '';
  const { accepts } = JSON.parse(Buffer.from(required, 'base64').toString()) as { accepts: { scheme: string }[] };
  expect(accepts.map(({ scheme }) => scheme)).toContain('exact');
});

// The last one: its chain is a day ahead.
/** The vouchers that everybody can read on the chain. */
async function published(id: Hex): Promise<bigint[]> {
  const client = x402().getClient();
  const claims = await client.getContractEvents({
    address,
    abi,
    eventName: 'Claimed',
    args: { channelId: id },
    fromBlock: 0n,
  } as never);
  const found: bigint[] = [];
  for (const { transactionHash } of claims) {
    const { input } = await client.getTransaction({ hash: transactionHash as Hex });
    const sent = decodeFunctionData({ abi: BATCH_ABI, data: input });
    for (const data of sent.functionName === 'multicall' ? sent.args[0] : []) {
      const { functionName, args } = decodeFunctionData({ abi: BATCH_ABI, data });
      if (functionName === 'claim') found.push(...args[0].map(({ voucher }) => voucher.maxClaimableAmount));
    }
  }
  return found;
}

test('nobody spends by a voucher that was read on the chain', async () => {
  await start({ ...DEFAULT_SCHEDULE, settleAmount: 20_000n as never });
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.02' } });
  const payer = hand(wallet(5));
  const metered = (payload: object) => call(payload, '/metered', 50_000);
  // Of each voucher 0.03 are left.
  expect(await metered(await payer.deposit(200_000, 50_000))).toEqual([200, '{}']);
  expect((await metered(await payer.voucher(70_000)))[0]).toBe(200);
  expect((await metered(await payer.voucher(90_000)))[0]).toBe(200);
  expect(await differences()).toEqual([]);
  expect((await channels())[0]).toMatchObject({ state: 'open', captured: 60_000, settled: 50_000 });
  // What is spent already is left for nobody.
  expect(await published(payer.id)).toEqual([50_000n]);
  await rig.registry.client.execute('UPDATE payment_channels SET used_at = 0');
  expect(await differences()).toEqual([]);
  expect((await channels())[0]).toMatchObject({ state: 'closed', captured: 60_000, settled: 60_000 });
  expect(await published(payer.id)).toEqual([50_000n, 90_000n]);
  // Filled again, the channel has spent 0.08, and a call for 0.01 is what that voucher would pay.
  expect((await metered(await payer.deposit(200_000, 110_000)))[0]).toBe(200);
  expect(await call(await payer.voucher(90_000))).toEqual([402, expect.stringContaining('everybody can read it')]);
  expect(rig.calls.length).toBe(4);
  expect((await metered(await payer.voucher(130_000)))[0]).toBe(200);
  expect(await differences()).toEqual([]);
});

test('what a payer takes out while the host is away is not served for, and what it left is collected', async () => {
  await start();
  const payer = hand(wallet(6));
  expect((await call(await payer.deposit(100_000, 10_000)))[0]).toBe(200);
  await rig.payments.stop();
  const rpc = await JsonRpcSocket.open(path.join(folder, 'chain', String(x402().chain.id), 'anvil.sock'));
  try {
    await send(wallet(6), 'initiateWithdraw', [payer.config, 95_000n]);
    await rpc.request('evm_increaseTime', [86_400]);
    await rpc.request('evm_mine');
    await send(wallet(6), 'finalizeWithdraw', [payer.config]);
  } finally {
    rpc.close();
  }
  await rig.restart();
  expect((await call(await payer.voucher(20_000)))[0]).toBe(402);
  await differences();
  expect((await channels())[0]).toMatchObject({ state: 'failed', captured: 10_000, settled: 5_000 });
});
