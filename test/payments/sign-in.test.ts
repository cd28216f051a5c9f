import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { createSignIns, type SignInOptions } from '../../host/payments/sign-in.ts';
import type { SignIns } from '../../host/payments/types.ts';
import { type OpenClaims, openClaims } from '../registry/support/claims.ts';

const wallet = privateKeyToAccount(generatePrivateKey());
const other = privateKeyToAccount(generatePrivateKey());
let now = Date.parse('2026-11-01T00:00:00Z');
let claims: OpenClaims;
let options: SignInOptions;
let signIns: SignIns;

beforeAll(async () => {
  claims = await openClaims();
  const consoleUrl = 'https://api.example.com/_admin/console';
  options = { key: Buffer.alloc(32, 1), keys: claims.keys, consoleUrl, chainId: 8453, now: () => now };
});
afterAll(() => claims.close());

beforeEach(() => {
  signIns = createSignIns(options);
});

async function signed(of = signIns, by = wallet) {
  const { message, nonce } = await of.begin(wallet.address);
  return { message, proof: { address: wallet.address, nonce, signature: await by.signMessage({ message }) } };
}
const refusal = (proof: Parameters<typeof signIns.finish>[0]) =>
  signIns.finish(proof).then(
    () => 'taken',
    (error) => error.code,
  );

it('signs in once by a message that names the host, the purpose and the nonce', async () => {
  const { message, proof } = await signed();
  expect(message.split('\n').slice(0, 3)).toEqual([
    'api.example.com wants you to sign in with your Ethereum account:',
    wallet.address,
    '',
  ]);
  expect(message).toContain('\nURI: https://api.example.com/_admin/console\nVersion: 1\nChain ID: 8453\nNonce: ');
  expect(message).toContain('\nIssued At: 2026-11-01T00:00:00.000Z\nExpiration Time: 2026-11-01T00:05:00.000Z');
  const at = await Promise.all([refusal(proof), refusal(proof)]);
  expect(at.sort()).toEqual(['taken', 'unauthorized']);
  expect(await refusal(proof)).toBe('unauthorized');
  expect(await signIns.finish((await signed()).proof)).toEqual({
    address: wallet.address.toLowerCase(),
    did: `did:pkh:eip155:8453:${wallet.address.toLowerCase()}`,
  });
});

it('takes at one node what another gave, refuses a replay there, and all once the message is over', async () => {
  const elsewhere = createSignIns(options);
  const { proof: shown } = await signed(elsewhere);
  expect(await refusal(shown)).toBe('taken');
  await expect(elsewhere.finish(shown)).rejects.toMatchObject({ code: 'unauthorized' });
  const { proof } = await signed();
  now += 5 * 60_000;
  expect(await refusal(proof)).toBe('unauthorized');
});

it('refuses what another wallet, another host or another purpose signed', async () => {
  expect(await refusal((await signed(signIns, other)).proof)).toBe('unauthorized');
  const elsewhere = createSignIns({ ...options, consoleUrl: 'https://evil.example/_admin/console' });
  expect(await refusal((await signed(elsewhere)).proof)).toBe('unauthorized');
  // Its nonce, but the message of another host.
  const { message, nonce } = await signIns.begin(wallet.address);
  const foreign = message.replaceAll('api.example.com', 'evil.example');
  const as = (signature: `0x${string}`, address = wallet.address) => refusal({ address, nonce, signature });
  expect(await as(await wallet.signMessage({ message: foreign }))).toBe('unauthorized');
  expect(await as(await wallet.signMessage({ message: nonce }))).toBe('unauthorized');
  const domain = { name: 'api.example.com', version: '1', chainId: 8453 } as const;
  const types = { Proof: [{ name: 'nonce', type: 'string' }] } as const;
  expect(await as(await wallet.signTypedData({ domain, types, primaryType: 'Proof', message: { nonce } }))).toBe(
    'unauthorized',
  );
  const right = await wallet.signMessage({ message });
  expect(await as(right, other.address)).toBe('unauthorized');
  expect(await as(right)).toBe('taken');
});

it.each(['', '0x', `0x${'f'.repeat(130)}`, `0x${'1'.repeat(4000)}`, 'nothing'])(
  'refuses the signature %s',
  async (signature) => {
    const { proof } = await signed();
    expect(await refusal({ ...proof, signature })).toBe('unauthorized');
  },
);

it('refuses what is no address, and nonces of nobody', async () => {
  await expect(signIns.begin('0x1')).rejects.toMatchObject({ code: 'invalid_field' });
  const { proof } = await signed();
  for (const nonce of ['', 'x'.repeat(68), '0'.repeat(68), `${proof.nonce}0`])
    expect(await refusal({ ...proof, nonce })).toBe('unauthorized');
});
