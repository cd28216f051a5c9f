/** Vouchers of x402's batch-settlement: their channel, their digest and their signer are what @x402/evm and viem say. */
import { BATCH_SETTLEMENT_ADDRESS, BATCH_SETTLEMENT_DOMAIN, voucherTypes } from '@x402/evm';
import { computeChannelId } from '@x402/evm/batch-settlement/client';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { expect, test } from 'vitest';
import { BatchVouchers } from '../../host/payments/methods/x402/batch/voucher.ts';
import { readX402 } from '../../host/payments/methods/x402/credential.ts';

const account = privateKeyToAccount(generatePrivateKey());
const config = {
  payer: account.address,
  payerAuthorizer: account.address,
  receiver: `0x${'ab'.repeat(20)}`,
  receiverAuthorizer: `0x${'ab'.repeat(20)}`,
  token: `0x${'12'.repeat(20)}`,
  withdrawDelay: 86_400,
  salt: `0x${'00'.repeat(32)}`,
} as const;
const vouchers = new BatchVouchers(84532);
const channelId = vouchers.channelId(config);

async function voucher(maxClaimableAmount: string) {
  const domain = { ...BATCH_SETTLEMENT_DOMAIN, chainId: 84532, verifyingContract: BATCH_SETTLEMENT_ADDRESS as Hex };
  const message = { channelId: channelId as Hex, maxClaimableAmount: BigInt(maxClaimableAmount) };
  const signature = await account.signTypedData({ domain, types: voucherTypes, primaryType: 'Voucher', message });
  return { channelId, maxClaimableAmount, signature };
}

test('a channel is what the package says it is, and another one for each of its terms', () => {
  expect(channelId).toBe(computeChannelId(config, 84532).toLowerCase());
  // Whoever writes it in mixed case need not write a checksum.
  expect(new BatchVouchers(84532).channelId({ ...config, receiver: `0x${'aB'.repeat(20)}` })).toBe(channelId);
  expect(new BatchVouchers(8453).channelId(config)).toBe(computeChannelId(config, 8453).toLowerCase());
  const others = [
    { ...config, withdrawDelay: 900 },
    { ...config, salt: `0x${'01'.repeat(32)}` },
  ].map((each) => vouchers.channelId(each));
  expect(new Set([channelId, ...others]).size).toBe(3);
});

test.each(['0', '1', '999999999999999'])('a voucher for %s is its signer’s, and for nothing else', async (amount) => {
  const signed = await voucher(amount);
  expect(vouchers.isSignedBy(signed, account.address)).toBe(true);
  expect(vouchers.isSignedBy(signed, config.receiver)).toBe(false);
  expect(vouchers.isSignedBy({ ...signed, maxClaimableAmount: `${BigInt(amount) + 1n}` }, account.address)).toBe(false);
  expect(new BatchVouchers(8453).isSignedBy(signed, account.address)).toBe(false);
});

test('a payment has the id of what its channel had spent and may have spent then, however it is shown', async () => {
  const accepted = {
    scheme: 'batch-settlement',
    network: 'eip155:84532',
    asset: config.token,
    amount: '100',
    payTo: config.receiver,
    maxTimeoutSeconds: 300,
  };
  const signed = await voucher('140');
  const authorization = { validAfter: '0', validBefore: '1', salt: config.salt, signature: '0x' };
  const deposit = { amount: '500', authorization: { erc3009Authorization: authorization } };
  const read = (payload: object, changed: object = {}) => {
    const payment = { x402Version: 2, accepted: { ...accepted, ...changed }, payload };
    return readX402(Buffer.from(JSON.stringify(payment)).toString('base64'));
  };
  const plain = read({ type: 'voucher', channelConfig: config, voucher: signed });
  expect(plain).toMatchObject({
    rail: 'x402/batch-settlement',
    id: `x402:batch-settlement:eip155:84532:${channelId}:40:140`,
    repeats: true,
  });
  const { id, hash } = read({ type: 'deposit', channelConfig: config, voucher: signed, deposit });
  expect([id, hash]).toEqual([plain.id, plain.hash]);
  expect(read({ type: 'voucher', channelConfig: config, voucher: signed }, { amount: '10' }).id).not.toBe(id);
  const payload = { type: 'voucher', channelConfig: config, voucher: signed };
  for (const wrong of [
    { ...payload, channelConfig: { ...config, payer: '0x1' } },
    { ...payload, voucher: { ...signed, maxClaimableAmount: '1'.repeat(16) } },
    { ...payload, voucher: { ...signed, maxClaimableAmount: '-1' } },
    { ...payload, type: 'claim' },
  ])
    expect(() => read(wrong)).toThrow(/not a readable payment/);
  expect(() => read(payload, { scheme: 'upto' })).toThrow(/does not fit the scheme/);
});
