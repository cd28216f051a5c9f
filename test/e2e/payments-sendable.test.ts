/** MPP charges whose transaction the chain would never take, or not now: nobody works for one, and none is waited for. */
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { getTransactionCount } from 'viem/actions';
import { Account, Actions } from 'viem/tempo';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, behind, mppOf, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { type Fields, payWith } from './support/signed-anew.ts';

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

/** A wallet of the network pays with other fields. */
async function pay(index: number, fields: Fields): Promise<{ status: number; detail: string }> {
  return told(await payWith(network, `${rig.url}/report`, Account.fromSecp256k1(key(index)), fields));
}

async function told(answer: Response): Promise<{ status: number; detail: string }> {
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
  ['one that is valid later', { validAfter: seconds() + 240, validBefore: seconds() + 280 }, /valid from now on/],
  ['one whose fee somebody is to sign for', { feePayerSignature: null } as Fields, /pay the network fee/],
  [
    'one whose fee somebody else signed for',
    { feePayerSignature: { r: 1n, s: 1n, yParity: 0 } } as Fields,
    /pay the network fee/,
  ],
  ['one with more gas than the network takes', { gas: 30_000_001n }, /at most 30000000 gas/],
])('%s is refused before the handler hears of it', async ([, fields, why]) => {
  expect(await pay(0, fields)).toEqual({ status: 402, detail: expect.stringMatching(why) });
  expect([rig.calls.length, await states()]).toEqual([0, []]);
});

test('a transaction in its turn pays; of two with one nonce, one reaches the handler', async () => {
  const address = privateKeyToAccount(key(1)).address;
  const next = async () => BigInt(await getTransactionCount(mppOf(network).getClient(), { address }));
  const inTurn = async () => ordinary({ nonceKey: 0n, nonce: await next(), validBefore: seconds() + 9 });
  expect(await pay(1, await inTurn())).toMatchObject({ status: 200 });
  const fields = await inTurn();
  let second: unknown;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    second = await pay(1, fields);
    return Response.json({});
  };
  expect(await pay(1, fields)).toMatchObject({ status: 200 });
  expect(second).toEqual({ status: 402, detail: expect.stringContaining('same nonce') });
  expect([rig.calls.length, await states()]).toEqual([2, ['answered', 'answered']]);
  expect(await balance(network, 'tempo', payTo)).toBe(20_000n);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test('where the network takes a fee, it is offered and there, for each of the calls at once', async () => {
  const BASE_FEE = 20_000_000_000n;
  const OTHER: Hex = '0x20c0000000000000000000000000000000009999';
  const { chain, currency, getClient } = mppOf(network);
  const dear = behind(network, async (ask, args) => {
    const answer = await ask(args);
    if (args.method !== 'eth_getBlockByNumber') return answer;
    return { ...(answer as object), baseFeePerGas: `0x${BASE_FEE.toString(16)}` };
  });
  await rig.close();
  rig = await startRig(dear, { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
  // 0.04 USD.
  const fee = { gas: 2_000_000n, maxFeePerGas: BASE_FEE };
  const cheap = await pay(2, { ...fee, maxFeePerGas: BASE_FEE - 1n });
  const exotic = await pay(2, { ...fee, feeToken: OTHER } as Fields);
  const wallet = Account.fromSecp256k1(generatePrivateKey());
  const give = async (amount: bigint) => {
    const account = Account.fromSecp256k1(key(0));
    await Actions.token.transferSync(getClient(), {
      account,
      chain,
      token: currency,
      to: wallet.address,
      amount,
    } as never);
  };
  await give(49_999n);
  const poor = await told(await payWith(network, `${rig.url}/report`, wallet, fee));
  expect([cheap, exotic, poor]).toEqual([
    { status: 402, detail: expect.stringContaining('the network takes 20000000000') },
    { status: 402, detail: expect.stringContaining('network’s fee has to be in') },
    { status: 402, detail: expect.stringContaining('0.049999 of the 0.05 USD needed') },
  ]);
  expect([rig.calls.length, await states()]).toEqual([0, []]);
  await give(1n);
  expect((await payWith(network, `${rig.url}/report`, wallet, fee)).status).toBe(200);
  expect(await balance(network, 'tempo', payTo)).toBe(10_000n);

  // Enough for two prices and one fee, with what this chain did not take as a fee.
  await give(20_000n);
  let second: unknown;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    second = await told(await payWith(network, `${rig.url}/report`, wallet, fee));
    return Response.json({});
  };
  expect((await payWith(network, `${rig.url}/report`, wallet, fee)).status).toBe(200);
  expect(second).toEqual({ status: 402, detail: expect.stringContaining('of which 0.05 are promised') });
});
