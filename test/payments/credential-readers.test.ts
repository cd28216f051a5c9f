/**
 * The quick reader of MPP credentials and mppx's: whatever the quick one takes, mppx's takes too and says the same of.
 * `CREDENTIALS=1000000` tries more.
 */
import { randomInt } from 'node:crypto';
import { Challenge, Credential } from 'mppx';
import { expect, test } from 'vitest';
import { Challenger, prepareOffers } from '../../host/payments/challenge.ts';
import { readAny, readMpp, readReturned } from '../../host/payments/methods/tempo/credential.ts';
import type { MppOffer } from '../../host/payments/methods/tempo/offer.ts';
import type { Terms } from '../../host/payments/terms.ts';
import { micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';

const CREDENTIALS = Number(process.env.CREDENTIALS ?? 1_000);
const KEY = 'k'.repeat(64);
const terms: Terms = {
  kind: 'route',
  name: 'GET /x',
  scope: 'route:t:GET /x',
  slug: 's',
  tenant: 't',
  amount: micro(10_000),
  mode: 'metered',
  slow: false,
  payTo: undefined,
  feeBps: 0,
  description: 'A “report”, 5 €',
  sku: 'x:v1',
  pricingVersion: 2,
};
const common = { via: 'mpp', method: 'tempo', custody: 'direct', asset: 'a', recipient: '0x1', payTo: '0x1' } as const;
const offers: MppOffer[] = [
  { ...common, rail: 'tempo/charge', intent: 'charge', request: { amount: '10000', methodDetails: { chainId: 1 } } },
  { ...common, rail: 'tempo/session', intent: 'session', request: { amount: '10000', unitType: 'request' } },
];
const challenger = new Challenger(KEY, true, 'https://api.example.com/docs');
const source = 'did:pkh:eip155:1:0x0000000000000000000000000000000000000001';

function sent(intent: number, digest?: string): string {
  const context = { realm: 'api.example.com', resource: 'https://api.example.com/x', digest };
  const answer = challenger.response(prepareOffers(terms, offers), context);
  const challenge = Challenge.fromResponseList(answer)[intent];
  const payload = { action: 'voucher', cumulativeAmount: '5', signature: '0x76' };
  return Credential.serialize({ challenge, payload, source } as never);
}

function outcome(read: () => unknown): unknown {
  try {
    return read();
  } catch (error) {
    return error instanceof Problem ? `${error.code}: ${error.message}` : 'another error';
  }
}

/** @returns whether the quick reader took it */
function compare(text: string): boolean {
  const quick = readReturned(text, KEY);
  const theirs = outcome(() => readAny(text, KEY));
  if (quick) expect(theirs, text).toEqual(quick);
  expect(outcome(() => readMpp(text, KEY))).toEqual(theirs);
  return quick !== undefined;
}

const decoded = (text: string) => JSON.parse(Buffer.from(text.slice(8), 'base64url').toString());
const encoded = (value: unknown) => `Payment ${Buffer.from(JSON.stringify(value)).toString('base64url')}`;

test.each([
  ['a charge', sent(0)],
  ['a voucher', sent(1)],
  ['with the digest of a body', sent(0, 'sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=')],
  ['in another case', sent(0).replace('Payment ', 'pAYMENT  ')],
  [
    'without a description',
    encoded({ ...decoded(sent(0)), challenge: { ...decoded(sent(0)).challenge, description: undefined } }),
  ],
])('%s is read quickly, as mppx reads it', (_what, text) => {
  expect(compare(text)).toBe(true);
});

/** Values that a mistaken or malicious client could write. */
const ODD = [null, true, 0, -1, 0.5, '', 'x', 'tempo', 'charge', 'a|b', '|', [], ['x'], {}, { a: 'b' }, '\u0000', '﻿'];
const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T;

function altered(text: string): string {
  const value = decoded(text);
  const { challenge } = value;
  const names = [...Object.keys(challenge), 'digest', 'header', 'meta', 'other', '__proto__'];
  switch (randomInt(9)) {
    case 0:
      challenge[pick(names)] = pick(ODD);
      break;
    case 1:
      delete challenge[pick(names)];
      break;
    case 2:
      value[pick(['challenge', 'payload', 'source', 'other'])] = pick(ODD);
      break;
    case 3: {
      // What stands on both sides of a separator changes places with it.
      const [from, to] = [pick(['realm', 'method', 'intent']), pick(['method', 'intent', 'request'])];
      challenge[from] = `${challenge[from]}|${challenge[to]}`;
      break;
    }
    case 4: {
      const name = pick(['request', 'opaque', 'id', 'expires', 'realm']);
      const at = randomInt(challenge[name].length);
      challenge[name] =
        challenge[name].slice(0, at) + pick([...'Aa0_-=+/. ']) + challenge[name].slice(at + randomInt(2));
      break;
    }
    case 5: {
      // Another spelling of the same request.
      const request = Buffer.from(challenge.request, 'base64url').toString();
      challenge.request = Buffer.from(pick([` ${request}`, request.replace(':', ': '), '{}'])).toString('base64url');
      break;
    }
    case 6: {
      challenge.request = `${challenge.request}${pick(['=', '==', ' ', '\n'])}`;
      break;
    }
    case 7: {
      const at = 8 + randomInt(text.length - 8);
      return text.slice(0, at) + pick([...'Aa0_-=+/.! ']) + text.slice(at + randomInt(3));
    }
    case 8:
      return `${pick(['Payment', 'payment', 'Pay', ''])}${pick([' ', '  ', '\t', ''])}${pick(['', '=', 'A', text.slice(8, randomInt(8, text.length)), `77u_${text.slice(8)}`])}`;
  }
  return encoded(value);
}

test('of altered credentials it takes none that mppx does not take', { timeout: 60_000 + CREDENTIALS * 5 }, () => {
  const originals = [sent(0), sent(1), sent(0, 'sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=')];
  let taken = 0;
  for (let turn = 0; turn < CREDENTIALS; turn++) if (compare(altered(pick(originals)))) taken += 1;
  // Descriptions, payloads and sources are the client's.
  expect(taken).toBeGreaterThan(0);
  expect(taken).toBeLessThan(CREDENTIALS / 2);
});
