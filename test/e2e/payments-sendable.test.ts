/** MPP charges whose transaction the chain would never take, or not now: nobody works for one, and none is waited for. */
import { Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { getTransactionCount } from 'viem/actions';
import { Account } from 'viem/tempo';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, mppOf, type Rig, startNetwork, startRig, until } from './support/payments-rig.ts';

type Fields = Partial<TxEnvelopeTempo.TxEnvelopeTempo>;

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

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const seconds = () => Math.floor(Date.now() / 1000);
const states = async () =>
  (await rig.registry.client.execute('SELECT state FROM payments ORDER BY state')).rows.map(({ state }) => state);

/** A stock mppx client whose transaction is signed anew with other fields. */
async function pay(index: number, fields: Fields): Promise<{ status: number; detail: string }> {
  const account = privateKeyToAccount(key(index));
  const sender: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const text = request.headers.get('authorization');
    if (text === null) return fetch(request);
    const credential = Credential.deserialize<{ signature: TxEnvelopeTempo.Serialized }>(text);
    const { signature: _, ...envelope } = TxEnvelopeTempo.deserialize(credential.payload.signature);
    const unsigned = TxEnvelopeTempo.from({ ...envelope, ...fields } as never);
    const signed = await Account.fromSecp256k1(key(index)).sign({ hash: TxEnvelopeTempo.getSignPayload(unsigned) });
    const signature = TxEnvelopeTempo.serialize(unsigned, { signature: SignatureEnvelope.from(signed) as never });
    const authorization = Credential.serialize({ ...credential, payload: { ...credential.payload, signature } });
    return fetch(request.url, { headers: { authorization } });
  };
  const { fetch: paying } = Mppx.create({
    polyfill: false,
    fetch: sender,
    methods: [tempo.charge({ account, getClient: () => mppOf(network).getClient() as never })],
  });
  const answer = await paying(`${rig.url}/report`);
  const { detail = '' } = (await answer.json()) as { detail?: string };
  return { status: answer.status, detail };
}

/** What nonces other than the stock client's need. */
const ordinary = (fields: Fields): Fields => ({ validAfter: undefined, gas: 2_000_000n, ...fields }) as Fields;

test.for<[string, Fields, RegExp]>([
  ['one without an end', ordinary({ nonceKey: 0n, nonce: 0n, validBefore: undefined }), /must end/],
  ['one that outlasts its challenge', ordinary({ nonceKey: 0n, validBefore: seconds() + 3_600 }), /must end/],
  ['one whose turn comes later', ordinary({ nonceKey: 0n, nonce: 1_000n }), /next nonce of the wallet is 0/],
  [
    'one of another lane whose turn comes later',
    ordinary({ nonceKey: 6n, nonce: 7n }),
    /next nonce of the wallet is 0/,
  ],
  ['one with more gas than the network takes', { gas: 30_000_001n }, /at most 30000000 gas/],
])('%s is refused before the handler hears of it', async ([, fields, why]) => {
  expect(await pay(0, fields)).toEqual({ status: 402, detail: expect.stringMatching(why) });
  expect([rig.calls.length, await states()]).toEqual([0, []]);
});

test('a transaction in its turn pays; of two with one nonce, one pays and the other comes to nothing', async () => {
  const address = privateKeyToAccount(key(1)).address;
  const next = async () => BigInt(await getTransactionCount(mppOf(network).getClient(), { address }));
  const inTurn = async () => ordinary({ nonceKey: 0n, nonce: await next(), validBefore: seconds() + 9 });
  expect(await pay(1, await inTurn())).toMatchObject({ status: 200 });
  // Both wait for each other in the handler.
  const both = Promise.withResolvers<void>();
  rig.handler = async () => {
    if (rig.calls.length === 3) both.resolve();
    await both.promise;
    return Response.json({});
  };
  const fields = await inTurn();
  const answers = await Promise.all([pay(1, fields), pay(1, fields)]);
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  await until(async () => !(await states()).includes('settling'), 30_000);
  expect(await states()).toEqual(['answered', 'answered', 'released']);
  expect(await balance(network, 'tempo', payTo)).toBe(20_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});
