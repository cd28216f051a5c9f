/**
 * MPP charges whose transaction makes the key that signs it known to the chain: the host takes exactly what the chain
 * takes. What the host refuses is sent to the chain as it is, which must not move the money.
 */
import { Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { KeyAuthorization, SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { sendRawTransaction } from 'viem/actions';
import { Account } from 'viem/tempo';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, mppOf, type Rig, startNetwork, startRig } from './support/payments-rig.ts';

const PRICE = 10_000n;
const WITH_MEMO = '0x95777d59';
const OTHER: Hex = '0x00000000000000000000000000000000000000bb';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: Hex;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
});
afterEach(() => rig.close());

const walletKey = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const walletOf = (index: number) => privateKeyToAccount(walletKey(index)).address;
const earned = () => balance(network, 'tempo', payTo);

type Asked = Partial<KeyAuthorization.KeyAuthorization<false>>;

/** A new key, and what its wallet has signed for it. */
function newKey(asked: Asked, wallet = 0) {
  const secret = generatePrivateKey();
  const authorization = {
    address: privateKeyToAccount(secret).address,
    type: 'secp256k1',
    chainId: BigInt(mppOf(network).chain.id),
    expiry: Math.floor(Date.now() / 1000) + 600,
    ...asked,
  } as KeyAuthorization.KeyAuthorization<false>;
  return { secret, authorization: signed(authorization, wallet) };
}

async function signed(authorization: KeyAuthorization.KeyAuthorization<false>, wallet: number) {
  const hash = KeyAuthorization.getSignPayload(authorization);
  const signature = await Account.fromSecp256k1(walletKey(wallet)).sign({ hash });
  return KeyAuthorization.from(authorization, { signature: SignatureEnvelope.from(signature) as never });
}

interface Sent {
  raw?: TxEnvelopeTempo.Serialized | undefined;
}

/** A stock mppx client whose account is a key that its first transactions authorize. */
function payer(
  { secret, authorization }: ReturnType<typeof newKey>,
  send: (request: Request) => Promise<Response>,
  gas?: bigint,
) {
  const keyAuthorizationManager = { get: () => authorization, set: async () => {}, remove: async () => {} };
  const account = Account.fromSecp256k1(secret, { access: walletOf(0), keyAuthorizationManager } as never);
  const sender = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    return send(
      request.headers.has('authorization') && gas !== undefined ? await withGas(request, secret, gas) : request,
    );
  };
  return Mppx.create({
    polyfill: false,
    fetch: sender as typeof fetch,
    methods: [tempo.charge({ account: account as never, getClient: () => mppOf(network).getClient() as never })],
  }).fetch as typeof fetch;
}

/** Signs it anew with so much gas. */
function withGas(request: Request, secret: Hex, gas: bigint): Promise<Request> {
  return changed(request, async ({ signature: _, ...envelope }) => {
    const unsigned = TxEnvelopeTempo.from({ ...envelope, gas } as never);
    const userAddress = walletOf(0);
    const hash = TxEnvelopeTempo.getSignPayload(unsigned, { from: userAddress });
    const inner = SignatureEnvelope.from(await Account.fromSecp256k1(secret).sign({ hash }));
    const signature = { type: 'keychain', version: 'v2', userAddress, inner };
    return TxEnvelopeTempo.serialize(unsigned, { signature } as never);
  });
}

async function changed(
  request: Request,
  change: (envelope: ReturnType<typeof TxEnvelopeTempo.deserialize>) => Promise<TxEnvelopeTempo.Serialized>,
): Promise<Request> {
  const credential = Credential.deserialize<object>(request.headers.get('authorization') ?? '');
  const signature = await change(TxEnvelopeTempo.deserialize(rawOf(request)));
  const authorization = Credential.serialize({ ...credential, payload: { ...credential.payload, signature } });
  return new Request(request.url, { headers: { authorization } });
}

const rawOf = (request: Request) =>
  Credential.deserialize<{ signature: TxEnvelopeTempo.Serialized }>(request.headers.get('authorization') ?? '').payload
    .signature;

/** Pays by the key, and keeps the transaction. */
async function pay(key: ReturnType<typeof newKey>, gas?: bigint): Promise<Sent & { status: number; detail: string }> {
  const sent: Sent = {};
  const answer = await payer(
    key,
    async (request) => {
      if (request.headers.has('authorization')) sent.raw = rawOf(request);
      return fetch(request);
    },
    gas,
  )(`${rig.url}/report`);
  const { detail = '' } = (await answer.json()) as { detail?: string };
  return { ...sent, status: answer.status, detail };
}

/** Sends to the chain itself what the host has refused; the payment after it says that the chain has had its turn. */
async function assertWorthless(refused: readonly Sent[]): Promise<void> {
  const before = await earned();
  const client = mppOf(network).getClient();
  await Promise.allSettled(
    refused.map(({ raw }) => sendRawTransaction(client, { serializedTransaction: (raw ?? '0x') as never })),
  );
  expect(await pay(newKey({}))).toMatchObject({ status: 200 });
  expect((await earned()) - before).toBe(PRICE);
}

const token = () => mppOf(network).currency as Hex;
const limits = () => [{ token: token(), limit: 20_000n }];
const call = (more: Partial<KeyAuthorization.Scope> = {}) => ({ address: token(), ...more });

const TAKEN: [string, () => Asked][] = [
  ['no restriction', () => ({})],
  ['no end', () => ({ expiry: undefined, limits: limits() })],
  ['a limit of just the price', () => ({ limits: [{ token: token(), limit: PRICE }] })],
  ['a limit in each period', () => ({ limits: [{ token: token(), limit: PRICE, period: 86_400 }] })],
  ['any call of the token', () => ({ limits: limits(), scopes: [call()] })],
  ['transfers with a memo', () => ({ limits: limits(), scopes: [call({ selector: WITH_MEMO })] })],
  ['one recipient', () => ({ limits: limits(), scopes: [call({ selector: WITH_MEMO, recipients: [OTHER, payTo] })] })],
];

const REFUSED: [string, () => Asked, RegExp][] = [
  ['another chain', () => ({ chainId: 4217n }), /another chain/],
  ['any chain', () => ({ chainId: 0n }), /another chain/],
  ['another kind of key', () => ({ type: 'p256' }), /another kind/],
  ['two limits for the token', () => ({ limits: [...limits(), { token: token(), limit: 0n }] }), /two limits/],
  ['the greater limit last', () => ({ limits: [{ token: token(), limit: 0n }, ...limits()] }), /two limits/],
  [
    'two limits for another token',
    () => ({ limits: [...limits(), { token: OTHER, limit: 1n }, { token: OTHER, limit: 1n }] }),
    /two limits/,
  ],
  ['a limit below the price', () => ({ limits: [{ token: token(), limit: PRICE - 1n }] }), /may spend/],
  ['a limit for another token only', () => ({ limits: [{ token: OTHER, limit: PRICE }] }), /may spend/],
  ['a limit beyond 128 bits', () => ({ limits: [{ token: token(), limit: 1n << 128n }] }), /too great/],
  ['calls without limits, which is a limit of nothing', () => ({ scopes: [call()] }), /may spend/],
  ['no call', () => ({ limits: limits(), scopes: [] }), /may not make this transfer/],
  ['another contract', () => ({ limits: limits(), scopes: [{ address: OTHER }] }), /may not make this transfer/],
  [
    'another function',
    () => ({ limits: limits(), scopes: [call({ selector: '0xa9059cbb' })] }),
    /may not make this transfer/,
  ],
  [
    'another recipient',
    () => ({ limits: limits(), scopes: [call({ selector: WITH_MEMO, recipients: [OTHER] })] }),
    /may not make this transfer/,
  ],
  [
    'one function twice',
    () => ({ limits: limits(), scopes: [call({ selector: WITH_MEMO }), call({ selector: WITH_MEMO })] }),
    /two rules/,
  ],
  [
    'a recipient twice',
    () => ({ limits: limits(), scopes: [call({ selector: WITH_MEMO, recipients: [payTo, payTo] })] }),
    /rule for calls/,
  ],
  [
    'recipients of a function that has none',
    () => ({
      limits: limits(),
      scopes: [call({ selector: WITH_MEMO }), call({ selector: '0x12345678', recipients: [payTo] })],
    }),
    /rule for calls/,
  ],
  [
    'recipients of what is no token',
    () => ({ limits: limits(), scopes: [call(), { address: OTHER, selector: WITH_MEMO, recipients: [payTo] }] }),
    /rule for calls/,
  ],
  ['a witness', () => ({ witness: generatePrivateKey() }), /witness/],
];

test('a key that a transaction authorizes pays within its rules', async () => {
  const paid = await Promise.all(TAKEN.map(async ([name, asked]) => [name, (await pay(newKey(asked()))).status]));
  expect(paid).toEqual(TAKEN.map(([name]) => [name, 200]));
  expect([rig.calls.length, await earned()]).toEqual([TAKEN.length, PRICE * BigInt(TAKEN.length)]);
});

test('what the chain would refuse is refused before the handler hears of it', async () => {
  const vectors = REFUSED.map(([name, asked, why]) => ({ name, key: newKey(asked()), why }));
  vectors.push({ name: 'another wallet’s signature', key: newKey({}, 1), why: /is none of/ });
  const refused = await Promise.all(vectors.map(async ({ name, key, why }) => ({ name, why, ...(await pay(key)) })));
  expect(refused.map(({ name, status, detail }) => ({ name, status, detail }))).toEqual(
    refused.map(({ name, why }) => ({ name, status: 402, detail: expect.stringMatching(why) })),
  );
  expect([rig.calls.length, refused.filter(({ raw }) => raw === undefined)]).toEqual([0, []]);
  await assertWorthless(refused);
});

test('too little gas for what an authorization brings is refused before the handler hears of it', async () => {
  const rules = TAKEN.filter(([name]) => /just the price|one recipient/.test(name)).map(([, asked]) => asked);
  // A transfer by a key that is known already takes less.
  const refused = await Promise.all(rules.map((asked) => pay(newKey(asked()), 800_000n)));
  expect(refused.map(({ status }) => status)).toEqual(rules.map(() => 402));
  expect(rig.calls).toHaveLength(0);
  await assertWorthless(refused);
});

test('of two at once that authorize the same key, of which the chain takes one, one reaches the handler', async () => {
  const key = newKey({});
  let second: unknown;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    second = await pay(key);
    return Response.json({});
  };
  expect((await pay(key)).status).toBe(200);
  expect(second).toMatchObject({ status: 402, detail: expect.stringContaining('under way') });
  expect([rig.calls.length, await earned()]).toEqual([1, PRICE]);
  await assertWorthless([second as Sent]);
});

test('a transaction that authorizes a key once more is refused, as by the chain', async () => {
  const key = newKey({});
  let kept: Request | undefined;
  await payer(key, async (request) => {
    if (!request.headers.has('authorization')) return fetch(request);
    kept = request.clone();
    return Response.json({});
  })(`${rig.url}/report`);
  expect((await pay(key)).status).toBe(200);
  if (!kept) throw new Error('nothing was signed');
  const answer = await fetch(kept.clone());
  expect([answer.status, await answer.json()]).toEqual([
    402,
    expect.objectContaining({ detail: expect.stringContaining('authorized already') }),
  ]);
  expect([rig.calls.length, await earned()]).toEqual([1, PRICE]);
  await assertWorthless([{ raw: rawOf(kept) }]);
});

test('a wallet’s own transaction that authorizes a key for another chain is refused, as by the chain', async () => {
  let raw: TxEnvelopeTempo.Serialized | undefined;
  const answer = await payer(newKey({ chainId: 4217n }), async (request) => {
    if (!request.headers.has('authorization')) return fetch(request);
    const own = await changed(request, async ({ signature: _, ...envelope }) => {
      const unsigned = TxEnvelopeTempo.from(envelope as never);
      const hash = TxEnvelopeTempo.getSignPayload(unsigned);
      const signature = SignatureEnvelope.from(await Account.fromSecp256k1(walletKey(0)).sign({ hash }));
      return TxEnvelopeTempo.serialize(unsigned, { signature: signature as never });
    });
    raw = rawOf(own);
    return fetch(own);
  })(`${rig.url}/report`);
  expect([answer.status, await answer.json()]).toEqual([
    402,
    expect.objectContaining({ detail: expect.stringContaining('authorizes no access key') }),
  ]);
  expect(rig.calls).toHaveLength(0);
  await assertWorthless([{ raw }]);
});
