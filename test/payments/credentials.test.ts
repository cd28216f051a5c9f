/** Challenges and credentials: ours are mppx's, byte for byte, and foreign or altered ones are refused. */
import { Challenge, Credential, PaymentRequest } from 'mppx';
import { expect, test } from 'vitest';
import { Challenger, type PreparedOffers, prepareOffers } from '../../host/payments/challenge.ts';
import { methodOf, readCredential } from '../../host/payments/methods/index.ts';
import type { Asked, Presented } from '../../host/payments/methods/method.ts';
import { challengeWriter, type MppOffer } from '../../host/payments/methods/tempo/offer.ts';
import type { X402Offer } from '../../host/payments/methods/x402/offer.ts';
import type { Terms } from '../../host/payments/terms.ts';
import { micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';

const KEY = 'k'.repeat(64);
const terms: Terms = {
  kind: 'route',
  name: 'GET /x',
  scope: 'route:t:GET /x',
  slug: 's',
  tenant: 't',
  amount: micro(10_000),
  mode: 'fixed',
  slow: false,
  payTo: undefined,
  feeBps: 0,
  description: 'A “report”, 5 € — ok?\r\nSet-Cookie: a=b',
  sku: 'x:v1',
  pricingVersion: 2,
};
const offers: (MppOffer | X402Offer)[] = [
  {
    via: 'mpp',
    rail: 'tempo/charge',
    method: 'tempo',
    intent: 'charge',
    custody: 'direct',
    asset: 'a',
    recipient: '0x1',
    payTo: '0x1',
    request: { amount: '10000', currency: '0x20c0', recipient: '0x1', methodDetails: { chainId: 1 } },
  },
  {
    via: 'x402',
    rail: 'x402/exact',
    custody: 'direct',
    asset: 'a',
    recipient: '0x1',
    payTo: '0x1',
    requirements: {
      scheme: 'exact',
      network: 'eip155:1',
      asset: `0x${'a'.repeat(40)}`,
      amount: '10000',
      payTo: `0x${'1'.repeat(40)}`,
      maxTimeoutSeconds: 300,
      extra: {},
    },
  },
];
const prepared = prepareOffers(terms, offers);
const context = { realm: 'api.example.com', resource: 'https://api.example.com/x' };
const matchOffer = (presented: Presented, sold: PreparedOffers, what: Asked) =>
  methodOf(presented).match(presented, sold, what);
const asked = { ...context, digest: undefined, now: Date.now() };

function issued(extra: object = {}): Challenge.Challenge {
  const response = new Challenger(KEY, true, 'https://api.example.com/docs').response(prepared, {
    ...context,
    ...extra,
  });
  return Challenge.fromResponse(response) as Challenge.Challenge;
}

function present(challenge: Challenge.Challenge, payload: unknown = { type: 'transaction', signature: '0x76' }) {
  return new Headers({ authorization: Credential.serialize({ challenge, payload } as never) });
}

test('mppx reads our challenges and finds them authentic', () => {
  const challenge = issued();
  expect(Challenge.verify(challenge, { secretKey: KEY })).toBe(true);
  expect(challenge.description).toContain('[TEST MONEY] A “report”, 5 €');
  expect(PaymentRequest.deserialize(challenge.opaque ?? '')).toMatchObject({
    scope: terms.scope,
    sku: 'x:v1',
    pricingVersion: '2',
  });
  expect(PaymentRequest.serialize(PaymentRequest.deserialize(challenge.opaque ?? ''))).toBe(challenge.opaque);
  expect(issued().opaque, 'a nonce of its own').not.toBe(challenge.opaque);
  const write = challengeWriter({ realm: 'r', method: 'm', intent: 'i', request: 'e30' });
  const other = write(KEY, { expires: '', opaque: '' });
  expect(other.text).toContain('Payment id="');
});

test('a 402 says what it is for', async () => {
  const of = async (what: PreparedOffers) =>
    (await new Challenger(KEY, true, 'https://api.example.com/docs').response(what, context).json()) as {
      detail: string;
    };
  const document = await of(prepared);
  expect(document).toMatchObject({
    code: 'payment_required',
    detail: expect.stringContaining('USD: A “report”'),
    docs: 'https://api.example.com/docs',
  });
  expect(document.detail).not.toContain('nor its body was checked');
  const deploying = prepareOffers({ ...terms, kind: 'operation' }, offers);
  expect((await of(deploying)).detail).toContain('nor its body was checked');
});

test('every 402 is its own: two callers never share a challenge', () => {
  expect(new Set(Array.from({ length: 100 }, () => issued().id)).size).toBe(100);
});

test('a credential of ours matches its offer, once it is asked for the same thing', () => {
  const presented = readCredential(present(issued()), KEY)!;
  expect(matchOffer(presented, prepared, asked).rail).toBe('tempo/charge');
  const refusedFor =
    (change: Partial<typeof asked>, other = prepared) =>
    () =>
      matchOffer(presented, other, { ...asked, ...change });
  expect(refusedFor({ realm: 'evil.example' })).toThrow('another host');
  expect(refusedFor({ now: Date.now() + 3_600_000 })).toThrow('expired');
  expect(refusedFor({}, prepareOffers({ ...terms, scope: 'route:t:GET /y' }, offers))).toThrow('something else');
  const dearer = { ...offers[0], request: { amount: '20000' } } as MppOffer;
  expect(refusedFor({}, prepareOffers(terms, [dearer]))).toThrow('price');
});

test('a challenge for a body is good for that body only', () => {
  const presented = readCredential(present(issued({ digest: 'sha-256=abc' })), KEY)!;
  expect(matchOffer(presented, prepared, { ...asked, digest: 'sha-256=abc' })).toBeDefined();
  expect(() => matchOffer(presented, prepared, { ...asked, digest: 'sha-256=abd' })).toThrow('another request body');
  expect(() => matchOffer(presented, prepared, asked)).toThrow('another request body');
});

test('challenges of others, and ours with anything altered, are refused', () => {
  const challenge = issued();
  const altered: Partial<Challenge.Challenge>[] = [
    { realm: 'other' },
    { expires: '2099-01-01T00:00:00.000Z' },
    { request: { ...challenge.request, amount: '1' } },
    { opaque: PaymentRequest.serialize({ scope: terms.scope }) },
    { digest: 'sha-256=abc' },
    { id: `${challenge.id.slice(0, -1)}_` },
    { header: 'x-elsewhere' } as never,
  ];
  for (const change of altered)
    expect(() => readCredential(present({ ...challenge, ...change }), KEY), JSON.stringify(change)).toThrow(Problem);
  expect(() => readCredential(present(challenge), 'z'.repeat(64))).toThrow('not issued by this host');
});

test.each([5, true, {}, ['x']])('the source %j is refused as the payer’s mistake', (source) => {
  const text = present(issued()).get('authorization') ?? '';
  const value = JSON.parse(Buffer.from(text.slice('Payment '.length), 'base64url').toString());
  const encoded = Buffer.from(JSON.stringify({ ...value, source })).toString('base64url');
  const headers = new Headers({ authorization: `Payment ${encoded}` });
  expect(() => readCredential(headers, KEY)).toThrow('is not text');
});

test('other schemes of Authorization are not payments', () => {
  expect(readCredential(new Headers({ authorization: 'Bearer abc' }), KEY)).toBeUndefined();
  expect(readCredential(new Headers(), KEY)).toBeUndefined();
});
