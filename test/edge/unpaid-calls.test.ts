/** 402s that an edge writes again: mppx finds each authentic, and only what has to differ does. */
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { Challenge, PaymentRequest } from 'mppx';
import { expect, test } from 'vitest';
import { KnownAnswer, Lesson, UnpaidCalls } from '../../host/edge/unpaid-calls.ts';
import type { UpstreamHandler } from '../../host/http/client/pool.ts';
import { answerField, fieldBlock, plainAnswerField } from '../../host/http/message/fields.ts';
import { parseResponseHead, type ResponseHead } from '../../host/http/message/head.ts';
import { Challenger, prepareOffers } from '../../host/payments/challenge.ts';
import type { MppOffer } from '../../host/payments/methods/tempo/offer.ts';
import type { X402Offer } from '../../host/payments/methods/x402/offer.ts';
import type { Terms } from '../../host/payments/terms.ts';
import type { Route } from '../../host/shared/contracts.ts';
import { micro } from '../../host/shared/money.ts';

const KEY = 'k'.repeat(64);
const CALL = 'GET http api.example.com /shop/x\naccept: */*\r\n';
const route = { slug: 'shop' } as Route;
const terms: Terms = {
  kind: 'route',
  name: 'GET /x',
  scope: 'route:t:GET /x',
  slug: 'shop',
  tenant: 't',
  amount: micro(10_000),
  mode: 'metered',
  slow: false,
  payTo: undefined,
  feeBps: 0,
  description: 'A “report”, 5 €',
  sku: undefined,
  pricingVersion: undefined,
};
const common = { via: 'mpp', method: 'tempo', custody: 'direct', asset: 'a', recipient: '0x1', payTo: '0x1' } as const;
const offers: MppOffer[] = [
  { ...common, rail: 'tempo/charge', intent: 'charge', request: { amount: '10000', currency: '0x20c0' } },
  { ...common, rail: 'tempo/session', intent: 'session', request: { amount: '10000', unitType: 'request' } },
];
const prepared = prepareOffers(terms, [...offers, x402Offer('exact'), x402Offer('upto')]);

function x402Offer(scheme: 'exact' | 'upto'): X402Offer {
  const requirements = { network: 'eip155:84532', asset: '0x2', amount: '10000', payTo: '0x1', maxTimeoutSeconds: 60 };
  return {
    ...common,
    via: 'x402',
    rail: `x402/${scheme}`,
    requirements: { ...requirements, scheme, extra: { name: 'ä€' } } as never,
  };
}

/** What control answers. */
function answered(requestId: string, reissue = true): { head: ResponseHead; body: Buffer } {
  const context = { realm: 'api.example.com', resource: 'http://api.example.com/shop/x', requestId, reissue };
  const { headers, body } = new Challenger(KEY, false, 'https://api.example.com/docs').answer(prepared, context);
  const bytes = Buffer.from(body);
  const fields = fieldBlock(Object.entries({ ...headers, 'content-length': String(bytes.length) }).flat());
  return { head: parseResponseHead(`HTTP/1.1 402 Payment Required\r\n${fields}`, 'GET', answerField), body: bytes };
}

function teach(lesson: unknown, { head, body }: ReturnType<typeof answered>): void {
  expect(lesson).toBeInstanceOf(Lesson);
  const pupil = lesson as Lesson;
  pupil.head(head);
  // As it may come: in the middle of a character.
  const middle = body.indexOf('“') + 1;
  pupil.data(body.subarray(0, middle));
  pupil.data(body.subarray(middle));
  pupil.end();
}

function read(answer: unknown) {
  expect(answer).toBeInstanceOf(KnownAnswer);
  let head: ResponseHead | undefined;
  let body = '';
  (answer as KnownAnswer).begin({
    head: (given: ResponseHead) => {
      head = given;
    },
    data: (chunk: Buffer) => {
      expect(head?.framing).toEqual({ kind: 'length', length: chunk.length });
      body += chunk.toString();
    },
    end: () => {},
  } as unknown as UpstreamHandler);
  const [, header = ''] = /^www-authenticate: (.*)\r\n/i.exec(head?.challenges ?? '') ?? [];
  const required = decodePaymentRequiredHeader(/^payment-required: (.*)\r\n/im.exec(head?.challenges ?? '')?.[1] ?? '');
  return { body: JSON.parse(body), challenges: Challenge.deserializeList(header), required };
}

test('the third equal call gets the 402 with challenges of its own', () => {
  const calls = new UnpaidCalls(KEY);
  expect(calls.see(CALL, route, 'id-1', true)).toBeUndefined();
  const original = answered('id-2');
  teach(calls.see(CALL, route, 'id-2', true), original);
  const first = read(calls.see(CALL, route, 'id-3', true));
  // Of another length, and a word of the answer.
  const second = read(calls.see(CALL, route, 'a-caller-may-say:metered', false));
  expect(first.body).toEqual({ ...JSON.parse(original.body.toString()), requestId: 'id-3' });
  expect(second.body).toEqual({ ...first.body, requestId: 'a-caller-may-say:metered' });
  const all = [...first.challenges, ...second.challenges];
  expect(all.map(({ intent }) => intent)).toEqual(['charge', 'session', 'charge', 'session']);
  for (const challenge of all) {
    expect(Challenge.verify(challenge, { secretKey: KEY })).toBe(true);
    expect(Date.parse(challenge.expires ?? '')).toBeGreaterThan(Date.now() + 290_000);
    expect(PaymentRequest.deserialize(challenge.opaque ?? '')).toMatchObject({ scope: terms.scope });
  }
  expect(new Set(all.map(({ id }) => id)).size).toBe(4);
  expect(new Set(all.map(({ opaque }) => opaque)).size).toBe(2);
  expect(original.head.challenges).not.toContain(all[0]?.id);
  // All offers of x402 in one 402 have one nonce, of nothing else.
  const nonces = [first, second].map(({ required }) => required.accepts.map(({ extra }) => extra.challenge));
  expect(nonces.flat()).toEqual(Array.from({ length: 4 }, () => expect.stringMatching(/^[0-9a-f-]{36}$/)));
  expect(new Set(nonces.flat()).size).toBe(2);
  expect(first.required).toMatchObject({
    resource: { description: expect.stringContaining(terms.description) },
    accepts: [{}, { extra: { name: 'ä€' } }],
  });
});

test('another call, another version of the route, and what control does not release go to control', () => {
  const calls = new UnpaidCalls(KEY);
  calls.see(CALL, route, 'id-1', true);
  expect(calls.see(CALL, route, 'chosen-by-a-caller', false), 'could be any text').toBeUndefined();
  teach(calls.see(CALL, route, 'id-2', true), answered('id-2', false));
  teach(calls.see(CALL, route, 'id-3', true), answered('id-3'));
  expect(calls.see(CALL, route, 'id-4', true)).toBeInstanceOf(KnownAnswer);
  expect(calls.see(`${CALL}x: y\r\n`, route, 'id-5', true)).toBeUndefined();
  expect(calls.see(CALL, { ...route }, 'id-6', true)).toBeUndefined();
  expect(calls.see(CALL, route, 'id-7', true), 'of a route that is gone').toBeUndefined();
});

test('what a handler wrote is signed by nobody', () => {
  const calls = new UnpaidCalls(KEY);
  calls.see(CALL, route, 'id-1', true);
  const { head, body } = answered('id-2');
  for (const written of [{ own: false }, { status: 200 }])
    teach(calls.see(CALL, route, 'id-2', true), { head: { ...head, ...written }, body });
  expect(calls.see(CALL, route, 'id-3', true)).toBeInstanceOf(Lesson);
  const lines = fieldBlock(['x-turnpike-reissue', head.reissue, 'x-turnpike-own', '1', 'content-length', '0']);
  const fromHandler = parseResponseHead(`HTTP/1.1 402 Payment Required\r\n${lines}`, 'GET', plainAnswerField);
  expect(fromHandler).toMatchObject({ own: false, reissue: '', fields: '' });
});

test('a flood of calls that all differ takes the place of old ones', () => {
  const calls = new UnpaidCalls(KEY);
  calls.see(CALL, route, 'id-1', true);
  teach(calls.see(CALL, route, 'id-2', true), answered('id-2'));
  for (let turn = 0; turn < 200; turn++) calls.see(`${CALL}x: ${turn}\r\n`, route, 'id-3', true);
  expect(calls.see(CALL, route, 'id-4', true)).toBeUndefined();
});
