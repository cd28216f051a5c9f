/** Which signatures of vouchers are served: those that the escrow takes, and no others. */

import { randomBytes } from 'node:crypto';
import { Session } from 'mppx/tempo';
import { type Hex, hashTypedData, parseSignature, serializeSignature } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { expect, test } from 'vitest';
import type { VoucherSignatures } from '../../host/payments/methods/tempo/sessions/payload.ts';
import { voucherDigest, voucherSignedBy } from '../../host/payments/methods/tempo/sessions/voucher.ts';
import { micro } from '../../host/shared/money.ts';

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const escrow = Session.Precompile.Protocol.tip20ChannelEscrow;
const account = privateKeyToAccount(generatePrivateKey());
const channelId: Hex = `0x${'ab'.repeat(32)}`;
const { getVoucherDomain, voucherTypes } = Session.Precompile.Voucher;

const signature = await account.signTypedData({
  domain: getVoucherDomain(escrow, 1337),
  types: voucherTypes,
  primaryType: 'Voucher',
  message: { channelId, cumulativeAmount: 5n },
});
const { r, s, yParity } = parseSignature(signature);

function isServed(text: string, signatures: VoucherSignatures = 'primitive', cumulative = 5n): boolean {
  const signer = account.address.toLowerCase() as Hex;
  const voucher = { channelId, cumulative: micro(cumulative), signature: text };
  return voucherSignedBy({ escrow, chainId: 1337, signatures }, voucher, signer);
}

test.each<VoucherSignatures>(['ecdsa', 'primitive'])(
  'a wallet’s signature is served where the escrow takes %s',
  (kind) => {
    expect(isServed(signature, kind)).toBe(true);
    expect(isServed(signature.toUpperCase().replace('0X', '0x'), kind)).toBe(true);
    expect(isServed(signature, kind, 6n)).toBe(false);
  },
);

const twin = serializeSignature({
  r,
  s: `0x${(ORDER - BigInt(s)).toString(16).padStart(64, '0')}`,
  yParity: yParity === 0 ? 1 : 0,
});
const zero = '0'.repeat(64);

test.each([
  ['its twin with a high s', twin],
  ['v as a parity', `${signature.slice(0, -2)}0${yParity}`],
  [
    'the compact form of EIP-2098',
    `${signature.slice(0, 66)}${(BigInt(s) + (BigInt(yParity) << 255n)).toString(16).padStart(64, '0')}`,
  ],
  ['r of zero', `0x${zero}${signature.slice(66)}`],
  ['s of zero', `${signature.slice(0, 66)}${zero}1b`],
  ['a byte more', `${signature}00`],
  ['a byte less', signature.slice(0, -2)],
  ['a key wrapper of Tempo', `0x03${account.address.slice(2)}${signature.slice(2)}`],
  ['a contract’s signature (ERC-6492)', `${signature}${'6492'.repeat(16)}`],
  ['nothing', '0x'],
])('%s is not', (_what, text) => {
  expect(isServed(text)).toBe(false);
  expect(isServed(text, 'ecdsa')).toBe(false);
});

test('the digest is viem’s', () => {
  const amounts = [
    0n,
    1n,
    255n,
    256n,
    2n ** 53n,
    2n ** 96n - 1n,
    ...[4, 8, 12].map((bytes) => BigInt(`0x${randomBytes(bytes).toString('hex')}`)),
  ];
  for (const cumulativeAmount of amounts)
    for (const chainId of [1, 1337, 42431])
      for (const contract of [escrow, `0x${randomBytes(20).toString('hex')}`]) {
        const message = { channelId: `0x${randomBytes(32).toString('hex')}` as Hex, cumulativeAmount };
        const domain = getVoucherDomain(contract as Hex, chainId);
        const theirs = hashTypedData({ domain, types: voucherTypes, primaryType: 'Voucher', message });
        expect(`0x${Buffer.from(voucherDigest(contract, chainId, message)).toString('hex')}`).toBe(theirs);
      }
  expect(() => voucherDigest(escrow, 1, { channelId, cumulativeAmount: 2n ** 96n })).toThrow(RangeError);
  expect(() => voucherDigest(escrow, 1, { channelId, cumulativeAmount: -1n })).toThrow(RangeError);
  expect(() => voucherDigest(escrow, 1, { channelId: '0xab', cumulativeAmount: 1n })).toThrow(RangeError);
});
