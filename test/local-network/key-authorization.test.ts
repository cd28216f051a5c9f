/** What the local network takes for the key authorization of a wallet, and what it leaves to the chain. */
import { KeyAuthorization, SignatureEnvelope } from 'ox/tempo';
import { createClient, custom } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { signTransaction } from 'viem/actions';
import { tempoLocalnet } from 'viem/chains';
import { Account } from 'viem/tempo';
import { expect, test } from 'vitest';
import { witnessedKeyOf } from '../../host/local-network/key-authorization.ts';

const CHAIN = 1337;
const TOKEN = '0x20c0000000000000000000000000000000000000';
const wallet = generatePrivateKey();
const root = privateKeyToAccount(wallet).address;
const key = generatePrivateKey();

/** A transaction of a key with what a wallet has signed for it. */
async function transaction({ signer = wallet, chainId = BigInt(CHAIN), witness = true } = {}): Promise<string> {
  const unsigned = KeyAuthorization.from({
    address: Account.fromSecp256k1(key).address,
    chainId,
    expiry: 2_000_000_000,
    limits: [{ token: TOKEN, limit: 5n, period: 86_400 }],
    scopes: [{ address: TOKEN, selector: '0x95777d59', recipients: [root] }],
    type: 'secp256k1',
    ...(witness ? { witness: `0x${'11'.repeat(32)}` as const } : {}),
  });
  const payload = KeyAuthorization.getSignPayload(unsigned);
  const signature = SignatureEnvelope.from(await privateKeyToAccount(signer).sign({ hash: payload }));
  const account = Account.fromSecp256k1(key, { access: root });
  const chain = { ...tempoLocalnet, id: CHAIN };
  const client = createClient({
    chain,
    transport: custom({ request: async () => `0x${CHAIN.toString(16)}` }),
    account: account as never,
  });
  return signTransaction(client, {
    account,
    chainId: CHAIN,
    calls: [{ to: TOKEN }],
    gas: 1n,
    nonce: 0,
    maxFeePerGas: 1n,
    maxPriorityFeePerGas: 0n,
    keyAuthorization: KeyAuthorization.from(unsigned, { signature: signature as never }),
  } as never) as Promise<string>;
}

test('a key that the wallet has signed for is the wallet’s, with its limits and calls', async () => {
  const found = witnessedKeyOf(await transaction(), CHAIN);
  expect(found?.wallet.toLowerCase()).toBe(root.toLowerCase());
  // authorizeKey(address,uint8,KeyRestrictions)
  expect(found?.call).toContain(Account.fromSecp256k1(key).address.slice(2).toLowerCase());
  expect(found?.call).toContain('95777d59');
});

test('another signer, another chain, or none of it is left to the chain', async () => {
  expect(witnessedKeyOf(await transaction({ signer: generatePrivateKey() }), CHAIN)).toBeUndefined();
  expect(witnessedKeyOf(await transaction({ chainId: 1n }), CHAIN)).toBeUndefined();
  expect(witnessedKeyOf(await transaction({ witness: false }), CHAIN)).toBeUndefined();
  const good = await transaction();
  for (const raw of ['0x76', '0x76zz', '', good.slice(0, -2), `0x02${good.slice(4)}`])
    expect(witnessedKeyOf(raw, CHAIN)).toBeUndefined();
});
