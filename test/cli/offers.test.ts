import { Challenge } from 'mppx';
import { describe, expect, test } from 'vitest';
import { Assets, parseAllowedAsset } from '../../host/cli/paying/assets.ts';
import { chooseOffer, findProof, inMicroUsd, type Offer, readOffers } from '../../host/cli/paying/offers.ts';

const PATH_USD = '0x20c0000000000000000000000000000000000000';
const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const PAYEE = '0x00000000000000000000000000000000000000aa';

function mpp(
  amount: string,
  { chainId = 42431, currency = PATH_USD, method = 'tempo', intent = 'charge' } = {},
): string {
  return Challenge.serialize(
    Challenge.from({
      id: `id-${amount}`,
      realm: 'host.example',
      method,
      intent,
      request: { amount, currency, recipient: PAYEE, methodDetails: { chainId } },
    } as never),
  );
}

function x402(...accepts: object[]): string {
  return Buffer.from(JSON.stringify({ x402Version: 2, resource: { url: 'https://host.example' }, accepts })).toString(
    'base64',
  );
}

const exact = (amount: string, more: object = {}) => ({
  scheme: 'exact',
  network: 'eip155:8453',
  asset: USDC,
  amount,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  ...more,
});

const offersOf = (headers: Record<string, string>) => readOffers(new Headers(headers));
const policy = (max?: bigint, protocol?: 'mpp' | 'x402') => ({
  maxMicroUsd: max,
  protocol,
  assets: new Assets(undefined),
});

describe('offers of a 402', () => {
  test('both protocols are read from one answer', () => {
    const offers = offersOf({ 'www-authenticate': mpp('200000'), 'payment-required': x402(exact('200000')) });
    expect(offers.map(({ protocol, intent, chainId, amount }) => [protocol, intent, chainId, amount])).toEqual([
      ['mpp', 'charge', 42431, 200_000n],
      ['x402', 'exact', 8453, 200_000n],
    ]);
  });

  test.each([
    ['another method', { 'www-authenticate': mpp('1', { method: 'stripe' }) }],
    ['another intent', { 'www-authenticate': mpp('1', { intent: 'subscription' }) }],
    ['another scheme of authentication', { 'www-authenticate': 'Bearer realm="x"' }],
    ['a broken challenge', { 'www-authenticate': 'Payment id="x", request="%%%"' }],
    ['a fraction', { 'www-authenticate': mpp('0.20') }],
    ['a negative amount', { 'payment-required': x402(exact('-1')) }],
    ['an exponent', { 'payment-required': x402(exact('1e9')) }],
    ['a chain that is none', { 'payment-required': x402(exact('1', { network: 'solana:x' })) }],
    ['an unknown x402 scheme', { 'payment-required': x402(exact('1', { scheme: 'all-you-have' })) }],
    ['no JSON', { 'payment-required': 'bm9uc2Vuc2U=' }],
  ])('%s is left out', (_, headers) => {
    expect(offersOf(headers as Record<string, string>)).toEqual([]);
  });

  test('a proof is a zero-amount challenge, and nothing else is', () => {
    expect(findProof(offersOf({ 'www-authenticate': mpp('0') }))?.amount).toBe(0n);
    expect(findProof(offersOf({ 'www-authenticate': mpp('1') }))).toBeUndefined();
    expect(findProof(offersOf({ 'payment-required': x402(exact('0')) }))).toBeUndefined();
  });
});

describe('what is paid', () => {
  const both = offersOf({ 'www-authenticate': mpp('200000'), 'payment-required': x402(exact('200000')) });

  test('MPP among equals, x402 when asked for, the cheaper of the two otherwise', () => {
    expect(chooseOffer(both, policy(200_000n))).toMatchObject({ kind: 'pay', offer: { protocol: 'mpp' } });
    expect(chooseOffer(both, policy(200_000n, 'x402'))).toMatchObject({ kind: 'pay', offer: { protocol: 'x402' } });
    const cheaper = offersOf({ 'www-authenticate': mpp('200000'), 'payment-required': x402(exact('199999')) });
    expect(chooseOffer(cheaper, policy(200_000n))).toMatchObject({ kind: 'pay', offer: { protocol: 'x402' } });
  });

  test('nothing is not paid: it would be a proof, which another host may have asked for', () => {
    expect(chooseOffer(offersOf({ 'www-authenticate': mpp('0') }), policy(200_000n))).toEqual({ kind: 'proof' });
    const beside = offersOf({ 'www-authenticate': `${mpp('0')}, ${mpp('200000')}` });
    expect(chooseOffer(beside, policy(200_000n))).toMatchObject({ kind: 'pay', microUsd: 200_000n });
  });

  test('never more than the limit, to the micro-dollar', () => {
    expect(chooseOffer(both, policy(199_999n))).toEqual({ kind: 'over', cheapest: 200_000n });
  });

  test('never a token that is not known, however cheap; unless it is allowed by name', () => {
    const strange = '0x00000000000000000000000000000000000000ff';
    const offers: Offer[] = offersOf({ 'payment-required': x402(exact('1', { asset: strange })) });
    expect(chooseOffer(offers, policy(10_000_000n))).toMatchObject({ kind: 'unknown-assets' });
    const assets = new Assets(undefined, [parseAllowedAsset(`8453:${strange}:0`)]);
    expect(chooseOffer(offers, { ...policy(1_000_000n), assets })).toMatchObject({ kind: 'pay', microUsd: 1_000_000n });
    expect(chooseOffer(offers, { ...policy(999_999n), assets })).toMatchObject({ kind: 'over' });
  });

  test('never a known token of another chain', () => {
    const offers = offersOf({ 'payment-required': x402(exact('1', { network: 'eip155:1' })) });
    expect(chooseOffer(offers, policy(1_000_000n))).toMatchObject({ kind: 'unknown-assets' });
  });

  test('amounts of tokens with more decimals are rounded up', () => {
    expect(inMicroUsd(1n, 18)).toBe(1n);
    expect(inMicroUsd(10n ** 18n, 18)).toBe(1_000_000n);
    expect(inMicroUsd(10n ** 18n + 1n, 18)).toBe(1_000_001n);
    expect(inMicroUsd(25n, 2)).toBe(250_000n);
  });

  test.each(['', '1', '1:0x1:6', `x:${PATH_USD}:6`, `1:${PATH_USD}`, `1:${PATH_USD}:-6`])(
    '--allow-asset %s is refused',
    (text) => {
      expect(() => parseAllowedAsset(text)).toThrow(/allow-asset/);
    },
  );
});
