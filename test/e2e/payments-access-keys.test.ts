/** MPP charges that a key of the wallet's keychain has signed: what it may not pay is refused before any work is done. */
import { Credential } from 'mppx';
import { P256 } from 'ox';
import { TxEnvelopeTempo } from 'ox/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { Account } from 'viem/tempo';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { authorizeKey } from './support/access-keys.ts';
import { chargeFetch } from './support/callers.ts';
import { balance, mppOf, type Rig, revokeKey, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
});
afterEach(() => rig.close());

const walletKey = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const seconds = () => Math.floor(Date.now() / 1000);
const walletOf = (index: number) => privateKeyToAccount(walletKey(index)).address;

const authorize = (index: number, key: { accessKeyAddress: Hex }, limit: bigint, seconds = 600) => {
  const { currency, getClient } = mppOf(network);
  return authorizeKey(getClient(Account.fromSecp256k1(walletKey(index)) as never) as never, {
    ...{ token: currency, wallet: walletOf(index), key, limit, seconds },
  });
};

const payer = (key: Account.Account, sender?: typeof fetch) =>
  chargeFetch(key, () => mppOf(network).getClient(), sender);

async function refusal(response: Response) {
  return [response.status, ((await response.json()) as { detail: string }).detail];
}

test('a key pays up to its limit, and is refused before the handler hears of it', async () => {
  const secret = generatePrivateKey();
  const key = Account.fromSecp256k1(secret, { access: walletOf(0) });
  await authorize(0, key, 15_000n);
  const pay = payer(key);
  const before = await balance(network, 'tempo', walletOf(0));
  expect((await pay(`${rig.url}/report`)).status).toBe(200);
  expect(await refusal(await pay(`${rig.url}/report`))).toEqual([
    402,
    expect.stringContaining('may spend 0.005 of the 0.01'),
  ]);
  expect(rig.calls).toHaveLength(1);
  expect(before - (await balance(network, 'tempo', walletOf(0)))).toBe(10_000n);
});

test('calls at once keep to the limit of their key together', async () => {
  const key = Account.fromSecp256k1(generatePrivateKey(), { access: walletOf(2) });
  await authorize(2, key, 15_000n);
  const pay = payer(key);
  let second: unknown;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    second = await refusal(await pay(`${rig.url}/report`));
    return Response.json({});
  };
  expect((await pay(`${rig.url}/report`)).status).toBe(200);
  expect(second).toEqual([402, expect.stringContaining('may spend 0.015 USD, of which 0.01 are promised')]);
  expect(rig.calls).toHaveLength(1);
});

test('a key that was revoked, one that nobody has authorized, and one of another wallet are refused', async () => {
  const key = Account.fromSecp256k1(generatePrivateKey(), { access: walletOf(1) });
  await authorize(1, key, 1_000_000n);
  expect((await payer(key)(`${rig.url}/report`)).status).toBe(200);
  await revokeKey(network, walletKey(1), key.accessKeyAddress);
  expect(await refusal(await payer(key)(`${rig.url}/report`))).toEqual([402, expect.stringContaining('has revoked')]);
  for (const victim of [walletOf(1), walletOf(2)]) {
    const forged = Account.fromSecp256k1(generatePrivateKey(), { access: victim });
    expect(await refusal(await payer(forged)(`${rig.url}/report`))).toEqual([
      402,
      expect.stringContaining('is none of'),
    ]);
  }
  expect(rig.calls).toHaveLength(1);
});

test('a key that ends while the handler works: the work is given up in time', async () => {
  const key = Account.fromSecp256k1(generatePrivateKey(), { access: walletOf(2) });
  const ends = seconds() + 10;
  await authorize(2, key, 1_000_000n, 10);
  rig.handler = async (_request, signal) => {
    while (!signal.aborted && seconds() <= ends) await new Promise((resolve) => setTimeout(resolve, 50));
    return new Response('secret', { headers: { 'content-length': '6' } });
  };
  expect((await payer(key)(`${rig.url}/report`)).status).toBe(504);
  expect(seconds()).toBeLessThan(ends);
  await until(async () => (await rig.payments.ledger.open()).length === 0);
  expect(await balance(network, 'tempo', rig.deployment.payTo ?? '0x')).toBe(0n);
});

test('a public key alone is no signature: nobody is named as the payer who has signed nothing', async () => {
  const key = Account.fromP256(P256.randomPrivateKey(), { access: walletOf(3) });
  await authorize(3, key, 1_000_000n);
  expect((await payer(key)(`${rig.url}/report`)).status).toBe(200);
  const forging: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const authorization = request.headers.get('authorization');
    if (authorization) {
      const credential = Credential.deserialize<{ signature: TxEnvelopeTempo.Serialized }>(authorization);
      const envelope = TxEnvelopeTempo.deserialize(credential.payload.signature);
      const { inner } = envelope.signature as { inner: { signature: { r: bigint } } };
      inner.signature.r += 1n;
      const signature = TxEnvelopeTempo.serialize(envelope);
      request.headers.set(
        'authorization',
        Credential.serialize({ ...credential, payload: { ...credential.payload, signature } }),
      );
    }
    return fetch(request);
  };
  expect(await refusal(await payer(key, forging)(`${rig.url}/report`))).toEqual([
    402,
    expect.stringContaining('signature of the transaction is not valid'),
  ]);
  expect(rig.calls).toHaveLength(1);
});
