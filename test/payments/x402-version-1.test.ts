/** x402 v1 beside v2: one 402 that the stock clients of both read, and one payment whatever the version it is shown in. */
import { x402Client, x402HTTPClient } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { ExactEvmSchemeV1 } from '@x402/evm/exact/v1/client';
import { extractDiscoveryInfoV1 } from '@x402/extensions/bazaar';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { expect, test } from 'vitest';
import { Challenger, prepareOffers } from '../../host/payments/challenge.ts';
import { discoveryOf } from '../../host/payments/discovery.ts';
import { methodOf, readCredential } from '../../host/payments/methods/index.ts';
import type { X402Offer } from '../../host/payments/methods/x402/offer.ts';
import type { Terms } from '../../host/payments/terms.ts';
import { micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';

const KEY = 'k'.repeat(64);
const PAYEE = `0x${'1'.repeat(40)}` as const;
const context = { realm: 'api.example.com', resource: 'https://api.example.com/x?a=b' };
const asked = { ...context, digest: undefined, now: Date.now() };
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
  description: 'A report',
  sku: undefined,
  pricingVersion: undefined,
};

function offer(change: Partial<X402Offer['requirements']> = {}): X402Offer {
  const requirements = {
    scheme: 'exact' as const,
    network: 'eip155:84532' as const,
    asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    amount: '10000',
    payTo: PAYEE,
    maxTimeoutSeconds: 300,
    extra: { name: 'USDC', version: '2', assetTransferMethod: 'eip3009' },
    ...change,
  };
  const rail = `x402/${requirements.scheme}` as const;
  return { via: 'x402', rail, custody: 'direct', asset: 'a', recipient: PAYEE, payTo: PAYEE, requirements };
}

const input = {
  query: { type: 'object', properties: { city: { type: 'string' } } },
  example: { query: { city: 'Rome' } },
};
const answerOf = async (offers: X402Offer[], discovery = discoveryOf('GET', {})) => {
  const response = new Challenger(KEY, true, 'https://d').response(prepareOffers(terms, offers), {
    ...context,
    discovery,
  });
  return { headers: response.headers, body: (await response.json()) as Record<string, unknown> };
};

const client = new x402Client()
  .registerV1('base-sepolia', new ExactEvmSchemeV1(privateKeyToAccount(generatePrivateKey())) as never)
  .register('eip155:*', new ExactEvmScheme(privateKeyToAccount(generatePrivateKey())));

/** What a stock client answers to a 402. @param version that it knows */
async function paid(version: 1 | 2, offers = [offer()]): Promise<Headers> {
  const { headers, body } = await answerOf(offers);
  const http = new x402HTTPClient(client);
  const required = http.getPaymentRequiredResponse((name) => (version === 1 ? null : headers.get(name)), body);
  return new Headers(http.encodePaymentSignatureHeader(await client.createPaymentPayload(required)));
}

const credential = (headers: Headers) => {
  const presented = readCredential(headers, KEY);
  if (!presented) throw new Error('no payment is in it');
  return presented;
};
const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');
const decoded = (text: string | null) => JSON.parse(Buffer.from(text ?? '', 'base64').toString());

test('the body has the terms of v1, beside the problem that it is', async () => {
  const { headers, body } = await answerOf(
    [offer()],
    discoveryOf('GET', { input, output: { type: 'json', example: 1 } }),
  );
  expect(headers.get('content-type')).toBe('application/problem+json');
  expect(body).toMatchObject({
    status: 402,
    code: 'payment_required',
    price: { amount: '0.01', currency: 'USD', mode: 'fixed' },
    x402Version: 1,
    error: 'X-PAYMENT header is required',
    accepts: [
      {
        scheme: 'exact',
        network: 'base-sepolia',
        maxAmountRequired: '10000',
        resource: context.resource,
        description: '[TEST MONEY] A report',
        mimeType: 'application/json',
        payTo: PAYEE,
        maxTimeoutSeconds: 300,
        asset: offer().requirements.asset,
        extra: { name: 'USDC', version: '2' },
      },
    ],
  });
  expect(decoded(headers.get('payment-required')).x402Version).toBe(2);
  const [accepted] = body.accepts as never[];
  expect(extractDiscoveryInfoV1(accepted as never)).toMatchObject({
    input: { type: 'http', method: 'GET', queryParams: { city: { type: 'string' } } },
    output: { example: 1 },
  });
});

test.each([
  ['another scheme', { scheme: 'upto' as const }],
  ['a network without a name', { network: 'eip155:1337' as const }],
  ['a challenge to be sent back', { extra: { challenge: 'token' } }],
])('%s is not for v1: its clients stop at what they do not know', async (_, change) => {
  expect((await answerOf([offer(change)])).body.accepts).toBeUndefined();
  expect((await answerOf([offer(change), offer()])).body.accepts).toHaveLength(1);
});

test('stock clients of both versions answer the same 402', async () => {
  const prepared = prepareOffers(terms, [offer()]);
  for (const [version, header] of [
    [1, 'x-payment'],
    [2, 'payment-signature'],
  ] as const) {
    const headers = await paid(version);
    expect([...headers.keys()]).toEqual([header]);
    const presented = credential(headers);
    expect(presented.rail).toBe('x402/exact');
    expect(methodOf(presented).match(presented, prepared, asked)).toBe(prepared.offers[0]);
    expect(methodOf(presented).named(presented)).toMatchObject({ amount: 10_000n });
  }
});

test('an authorization has the same id in both versions, and is not the same credential', async () => {
  const first = credential(await paid(1));
  const { payload } = decoded(first.text);
  const second = credential(
    new Headers({ 'payment-signature': encoded({ x402Version: 2, accepted: offer().requirements, payload }) }),
  );
  expect(second.id).toBe(first.id);
  expect(second.hash).not.toBe(first.hash);
});

test.each([
  ['amount', { amount: '20000' }],
  ['network', { network: 'eip155:8453' as const }],
  ['payee', { payTo: `0x${'2'.repeat(40)}` as const }],
  ['scheme', { scheme: 'upto' as const }],
])('a payment of v1 for another %s is for nothing that is sold', async (_, change) => {
  const presented = credential(await paid(1));
  const sold = prepareOffers(terms, [offer(change)]);
  expect(() => methodOf(presented).match(presented, sold, asked)).toThrow('not what is offered now');
});

test('what is no payment of v1 is refused', async () => {
  const good = decoded((await paid(1)).get('x-payment'));
  const { authorization } = good.payload;
  for (const bad of [
    { ...good, network: 'base-mainnet' },
    { ...good, network: 'eip155:84532' },
    { ...good, network: '__proto__' },
    { ...good, scheme: 'upto' },
    { ...good, x402Version: 3 },
    { ...good, x402Version: '1' },
    { ...good, payload: { ...good.payload, authorization: { ...authorization, value: '-1' } } },
    { ...good, payload: { ...good.payload, authorization: { ...authorization, nonce: '0x1' } } },
    {},
    null,
  ])
    expect(() => readCredential(new Headers({ 'x-payment': encoded(bad) }), KEY), JSON.stringify(bad)).toThrow(Problem);
  expect(() => readCredential(new Headers({ 'x-payment': 'nonsense' }), KEY)).toThrow(Problem);
});
