/**
 * Two networks at once: one 402 offers both, stock clients choose, and what is paid on one is settled, given back,
 * paid out and reconciled there alone.
 */
import { x402Client as StockX402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPayment } from '@x402/fetch';
import { Challenge, Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { erc20Abi, type Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { readContract } from 'viem/actions';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { hostWallets } from '../../host/payments/ledger/wallets.ts';
import type { MppNetwork, X402Network } from '../../host/payments/network/index.ts';
import { type Rig, startRig } from './support/payments-rig.ts';
import { SECOND_CHAIN, SECOND_RECIPIENT, startTwoNetworks, type TwoNetworks } from './support/second-network.ts';
import { until } from './support/until.ts';

const FEE_BPS = 1_000;
const ROUTES = [
  { method: 'GET', path: '/report', price: '0.01' },
  { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
];

let two: TwoNetworks;
let places: { mpp: MppNetwork; x402: X402Network }[];
let rig: Rig;
let payTo: Hex;

beforeAll(async () => {
  two = await startTwoNetworks();
  const { mpp, x402 } = two.network;
  if (!mpp || !x402) throw new Error('no first network');
  places = [{ mpp, x402 }, two.second];
});
afterAll(() => two?.stop());
beforeEach(() => begin(0));
afterEach(() => rig.close());

async function begin(feeBps: number): Promise<void> {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(two.network, { payTo, routes: ROUTES, feeBps });
}

const key = (index: number): Hex => two.network.wallets?.[index]?.privateKey ?? '0x';
const chainOf = ({ request }: Challenge.Challenge) => (request.methodDetails as { chainId: number }).chainId;

/** A stock mppx client on one of the networks: it takes the challenges of its chain. */
function mppOn({ mpp }: { mpp: MppNetwork }, index: number, sender: typeof fetch = fetch) {
  const account = privateKeyToAccount(key(index));
  return Mppx.create({
    polyfill: false,
    fetch: sender,
    methods: [tempo.charge({ account, getClient: () => mpp.getClient() as never })],
    orderChallenges: (offered) => offered.filter(({ challenge }) => chainOf(challenge) === mpp.chain.id),
  }).fetch as typeof fetch;
}

/** A stock x402 client that knows the token of one of the networks. */
function x402On({ x402 }: { x402: X402Network }, index: number, sender: typeof fetch = fetch) {
  const account = privateKeyToAccount(key(index));
  const client = StockX402Client.fromConfig({
    schemes: [
      { network: x402.network, client: new ExactEvmScheme(account) },
      { network: x402.network, client: new UptoEvmScheme(account, { rpcUrl: x402.rpcUrl } as never) },
    ],
    spendControls: { allowedAssets: [{ network: x402.network, asset: x402.token, maxAmountPerPayment: '100000000' }] },
  } as never);
  return wrapFetchWithPayment(sender, client) as typeof fetch;
}

/** What a wallet holds: in pathUSD and USDC of the first network, then of the second. */
async function held(address: Hex): Promise<bigint[]> {
  const ask = (client: unknown, token: Hex) =>
    readContract(client as never, { address: token, abi: erc20Abi, functionName: 'balanceOf', args: [address] });
  return Promise.all(
    places.flatMap(({ mpp, x402 }) => [ask(mpp.getClient(), mpp.currency), ask(x402.getClient(), x402.token)]),
  );
}

const minus = (after: bigint[], before: bigint[]) => after.map((amount, index) => amount - (before[index] ?? 0n));
const clients = () => places.flatMap((place, index) => [mppOn(place, 2 * index), x402On(place, 2 * index + 1)]);
const assets = async () =>
  (await rig.payments.ledger.lines({})).reduce((found, { asset }) => found.add(asset), new Set<string>());

test('one 402 has an offer of each network, each with its own token and recipient', async () => {
  const unpaid = await fetch(`${rig.url}/_deploy`, { method: 'POST', body: '{}' });
  const challenges = Challenge.fromHeadersList(unpaid.headers);
  expect(challenges.map(({ request }) => [request.methodDetails, request.recipient])).toEqual(
    places.map(({ mpp }) => [expect.objectContaining({ chainId: mpp.chain.id }), mpp.recipient.toLowerCase()]),
  );
  const { accepts } = JSON.parse(Buffer.from(unpaid.headers.get('payment-required') ?? '', 'base64').toString());
  expect(accepts).toMatchObject(
    places.map(({ x402 }) => ({
      network: x402.network,
      asset: x402.token,
      payTo: x402.recipient.toLowerCase(),
      amount: '200000',
    })),
  );
  expect([accepts[1].network, accepts[1].payTo]).toEqual([`eip155:${SECOND_CHAIN}`, SECOND_RECIPIENT]);
  // Version 1 of x402 has names for some networks only.
  expect(((await unpaid.json()) as { accepts: { network: string }[] }).accepts.map(({ network }) => network)).toEqual([
    'base-sepolia',
  ]);
  expect(await two.network.healthy()).toMatchObject({
    ok: true,
    detail: expect.stringContaining(`tempo:${SECOND_CHAIN}`),
  });
  const chains = (await hostWallets(two.network, false)).map(({ chain, usd }) => [chain, usd !== null]);
  expect(new Set(chains.map(([chain]) => chain)).size).toBe(3);
  expect(chains.every(([, answers]) => answers)).toBe(true);
});

test('stock clients pay on the network that they choose, straight to the tenant there', async () => {
  for (const [index, pay] of clients().entries()) {
    const before = await held(payTo);
    expect((await pay(`${rig.url}/report`)).status).toBe(200);
    expect(minus(await held(payTo), before)).toEqual([0, 1, 2, 3].map((place) => (place === index ? 10_000n : 0n)));
  }
  expect((await assets()).size).toBe(4);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('shares, payouts and what a call did not use are sent on the network of the payment', async () => {
  await rig.close();
  await begin(FEE_BPS);
  const before = await held(two.network.mpp?.recipient as Hex);
  const beforeSecond = await held(SECOND_RECIPIENT);
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.01' } });
  for (const [index, pay] of clients().entries()) {
    const payer = privateKeyToAccount(key(index)).address;
    const own = await held(payer);
    expect((await pay(`${rig.url}/metered`)).status).toBe(200);
    const spent = [0, 1, 2, 3].map((place) => (place === index ? -10_000n : 0n));
    await until(async () => minus(await held(payer), own).join() === spent.join());
  }
  await until(async () => (await held(payTo)).join() === '9000,9000,9000,9000');
  await until(async () => minus(await held(SECOND_RECIPIENT), beforeSecond).join() === '0,0,1000,1000');
  await until(async () => minus(await held(two.network.mpp?.recipient as Hex), before).join() === '1000,1000,0,0');
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('sessions on both networks at once: each channel is kept, and closed, on its own', async () => {
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.02' } });
  const sessions = places.map(({ mpp }, index) => {
    const account = privateKeyToAccount(key(4 + index));
    const only: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      if (response.status !== 402) return response;
      const own = Challenge.fromHeadersList(response.headers).filter((offered) => chainOf(offered) === mpp.chain.id);
      const headers = new Headers(response.headers);
      headers.set('www-authenticate', own.map((challenge) => Challenge.serialize(challenge)).join(', '));
      return new Response(response.body, { status: 402, headers });
    };
    const getClient = () => mpp.getClient(account) as never;
    return tempo.session.manager({ account, getClient, maxDeposit: '1', fetch: only });
  });
  for (const session of sessions)
    for (let call = 0; call < 2; call += 1) expect((await session.fetch(`${rig.url}/metered`)).status).toBe(200);
  // What closes a channel of one network is no business of the other.
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
  for (const session of sessions) expect((await session.close())?.spent).toBe('40000');
  await until(async () => (await held(payTo)).join() === '40000,0,40000,0');
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('what was signed for one network is refused on the other, and pays once', async () => {
  const sent: Headers[] = [];
  const holding: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const isPaid = request.headers.has('authorization') || request.headers.has('payment-signature');
    if (!isPaid) return fetch(request);
    sent.push(request.headers);
    return new Response('held back', { status: 200 });
  };
  for (const [index, place] of places.entries()) {
    await mppOn(place, index, holding)(`${rig.url}/report`);
    await x402On(place, index, holding)(`${rig.url}/report`);
  }
  const unpaid = await fetch(`${rig.url}/report`);
  const challenges = Challenge.fromHeadersList(unpaid.headers);
  const { accepts } = JSON.parse(Buffer.from(unpaid.headers.get('payment-required') ?? '', 'base64').toString());
  const forged = sent.map((headers): Record<string, string> => {
    const authorization = headers.get('authorization');
    if (authorization !== null) {
      const credential = Credential.deserialize(authorization);
      const other = challenges.find((offered) => chainOf(offered) !== chainOf(credential.challenge));
      return { authorization: Credential.serialize({ ...credential, challenge: other as never }) };
    }
    const payment = JSON.parse(Buffer.from(headers.get('payment-signature') ?? '', 'base64').toString());
    const accepted = accepts.find(({ network }: { network: string }) => network !== payment.accepted.network);
    return { 'payment-signature': Buffer.from(JSON.stringify({ ...payment, accepted })).toString('base64') };
  });
  for (const headers of forged) {
    const refused = await fetch(`${rig.url}/report`, { headers });
    expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([402, 'payment_invalid']);
  }
  expect(await held(payTo)).toEqual([0n, 0n, 0n, 0n]);
  expect(rig.calls).toHaveLength(0);
  // The very same signatures pay where they were made for, all at once, and each once.
  const own = sent.map((headers) => Object.fromEntries(headers));
  const answers = await Promise.all(
    [...own, ...own].map(async (headers) => (await fetch(`${rig.url}/report`, { headers })).status),
  );
  expect(answers).toEqual(Array(8).fill(200));
  expect(await held(payTo)).toEqual([10_000n, 10_000n, 10_000n, 10_000n]);
  expect(rig.calls).toHaveLength(4);
  await rig.restart();
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});
