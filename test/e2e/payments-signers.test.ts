/**
 * MPP charges that passkeys and access keys sign, with gas that only a plain signature would need: refused before the
 * work. Tempo's nodes count the gas of the signer that a simulation names. The local chain's does not, so a simulation
 * is refused here, on the way there.
 */
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { Account, Actions } from 'viem/tempo';
import { afterAll, expect, test } from 'vitest';
import { balance, behind, mppOf, startNetwork, startRig } from './support/payments-rig.ts';
import { payWith, type Signer } from './support/signed-anew.ts';

const { network, stop } = await startNetwork();
afterAll(() => stop());

/** What a transfer takes that a plain key signs. */
const PLAIN = 1_000_000n;

type Simulated = { gas?: Hex; keyType?: string; keyData?: Hex; keyId?: Hex };

const counting = () =>
  behind(network, async (ask, args) => {
    const { gas, ...signer } = (args.params?.[0] ?? {}) as Simulated;
    if (args.method === 'eth_call' && gas && BigInt(gas) < PLAIN + signatureGas(signer))
      throw new Error('insufficient gas for intrinsic cost');
    return ask(args);
  });

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

test.for(Object.entries(signers))('%s needs the gas of its signature', async ([name, make]) => {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const rig = await startRig(counting(), { payTo, routes: [{ method: 'GET', path: '/report', price: '0.01' }] });
  try {
    const account = make() as Signer;
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
    const refused = await payWith(network, `${rig.url}/report`, account, { gas: PLAIN });
    expect([refused.status, await refused.text()]).toEqual([402, expect.stringContaining('too little gas')]);
    expect(rig.calls).toHaveLength(0);
    expect((await payWith(network, `${rig.url}/report`, account, { gas: PLAIN + 60_000n })).status).toBe(200);
    expect([rig.calls.length, await balance(network, 'tempo', payTo)]).toEqual([1, 10_000n]);
  } finally {
    await rig.close();
  }
});
