/**
 * MPP charges that passkeys and access keys sign, with gas that only a plain signature would need: refused before the
 * work. Tempo's nodes count the gas of the signer that a simulation names. The local chain's does not, so a simulation
 * is refused here, on the way there.
 */
import { Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { Account, Actions } from 'viem/tempo';
import { afterAll, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { balance, mppOf, startNetwork, startRig } from './support/payments-rig.ts';

const { network, stop } = await startNetwork();
afterAll(() => stop());

/** What a transfer takes that a plain key signs. */
const PLAIN = 1_000_000n;

type Ask = (args: { method: string; params?: unknown[] }, options?: unknown) => Promise<unknown>;
type Simulated = { gas?: Hex; keyType?: string; keyData?: Hex; keyId?: Hex };

function counting(): Network {
  const mpp = mppOf(network);
  return {
    ...network,
    mpp: {
      ...mpp,
      getClient: (account) => {
        const client = mpp.getClient(account);
        const ask = client.request.bind(client) as unknown as Ask;
        const request: Ask = async (args, options) => {
          const [call] = (args.params ?? []) as [Simulated];
          if (args.method === 'eth_call' && call.gas && BigInt(call.gas) < PLAIN + signatureGas(call))
            throw new Error('insufficient gas for intrinsic cost');
          return ask(args, options);
        };
        return Object.assign({ ...client }, { request }) as never;
      },
    },
  };
}

/** As Tempo's transaction specification says. */
function signatureGas({ keyType, keyData = '0x', keyId }: Simulated): bigint {
  const verified = keyType === 'p256' || keyType === 'webAuthn' ? 5_000n : 0n;
  return verified + (keyType === 'webAuthn' ? 16n * BigInt(keyData) : 0n) + (keyId === undefined ? 0n : 3_000n);
}

const root = Account.fromSecp256k1(network.wallets?.[0]?.privateKey ?? '0x');
const accessSecret = generatePrivateKey();
const signers = {
  'a P-256 key': () => Account.fromP256(generatePrivateKey()),
  'a passkey': () =>
    Account.fromHeadlessWebAuthn(generatePrivateKey(), { rpId: 'localhost', origin: 'http://localhost' }),
  'an access key': () => Account.fromSecp256k1(accessSecret, { access: root }),
};

/** Pays with so much gas. */
async function pay(url: string, account: ReturnType<(typeof signers)['a P-256 key']>, gas: bigint) {
  const sender = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const text = request.headers.get('authorization');
    if (text === null) return fetch(request);
    const credential = Credential.deserialize<{ signature: TxEnvelopeTempo.Serialized }>(text);
    const { signature: _, ...envelope } = TxEnvelopeTempo.deserialize(credential.payload.signature);
    const unsigned = TxEnvelopeTempo.from({ ...envelope, gas } as never);
    const signed = await account.sign({ hash: TxEnvelopeTempo.getSignPayload(unsigned) });
    const signature = TxEnvelopeTempo.serialize(unsigned, { signature: SignatureEnvelope.from(signed) as never });
    const authorization = Credential.serialize({ ...credential, payload: { ...credential.payload, signature } });
    return fetch(request.url, { headers: { authorization } });
  };
  const { fetch: paying } = Mppx.create({
    polyfill: false,
    fetch: sender as typeof fetch,
    methods: [tempo.charge({ account: account as never, getClient: () => mppOf(network).getClient() as never })],
  });
  return paying(url);
}

test.for(Object.entries(signers))('%s needs the gas of its signature', async ([name, make]) => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const rig = await startRig(counting(), { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
  try {
    const account = make() as ReturnType<(typeof signers)['a P-256 key']>;
    const { chain, currency, getClient } = mppOf(network);
    const client = getClient() as never;
    if (name === 'an access key')
      await Actions.accessKey.authorizeSync(client, { account: root, accessKey: account, chain } as never);
    else
      await Actions.token.transferSync(client, {
        account: root,
        token: currency,
        to: account.address,
        amount: 1_000_000n,
        chain,
      } as never);
    const refused = await pay(`${rig.url}/report`, account, PLAIN);
    expect([refused.status, await refused.text()]).toEqual([402, expect.stringContaining('too little gas')]);
    expect(rig.calls).toHaveLength(0);
    expect((await pay(`${rig.url}/report`, account, PLAIN + 60_000n)).status).toBe(200);
    expect([rig.calls.length, await balance(network, 'tempo', payTo)]).toEqual([1, 10_000n]);
  } finally {
    await rig.close();
  }
});
