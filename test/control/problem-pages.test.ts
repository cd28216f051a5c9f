/** Problems as pages: what strangers wrote is text, and a payment that is shown is the one that is asked for. */
import { describe, expect, test } from 'vitest';
import { MARKER, ownPaymentPage } from '../../host/pages/own-payment-page.ts';
import { type PaymentPageParts, paymentPage } from '../../host/pages/payment-page.ts';
import { problemPage } from '../../host/pages/problem-page.ts';
import { PROBLEMS, Problem, type ProblemCode } from '../../host/shared/problem.ts';

const EVIL = `"><script>alert(1)</script><img src=x onerror=alert(2)>\u0001'`;
const HOME = 'https://host.example';

test.each(Object.keys(PROBLEMS) as ProblemCode[])('%s is a page with its detail and the id to quote', (code) => {
  const problem = new Problem(code, EVIL, { errors: [{ pointer: EVIL, detail: EVIL }] });
  const text = problemPage(problem.toDocument('request-4711'), HOME);
  expect(text).toContain('request-4711');
  expect(text).toContain('&lt;script&gt;');
  expect(text).not.toContain('<script');
  expect(text).not.toContain('<img');
  expect(text.match(/<main/g)).toHaveLength(1);
  expect(text).toContain(`href="${HOME}/docs"`);
});

describe('the page of a 402', () => {
  const offer = {
    scheme: 'exact',
    network: 'eip155:8453',
    asset: '0xA',
    amount: '250000',
    payTo: '0xB',
    maxTimeoutSeconds: 300,
    extra: { name: 'USDC', version: '2' },
  };
  const parts = (more: object = {}, method = 'GET', accepts: object[] = [offer]): PaymentPageParts => ({
    document: {
      ...new Problem('payment_required', EVIL).toDocument('r'),
      price: { amount: '0.25', currency: 'USD', mode: 'fixed' },
      ...more,
    },
    required: Buffer.from(JSON.stringify({ resource: { url: EVIL, description: EVIL }, accepts })).toString('base64'),
    network: 'tempo',
    chain: {
      network: 'eip155:8453',
      name: 'Base',
      nativeCurrency: { name: 'E', symbol: 'E', decimals: 18 },
      rpcUrl: 'x',
    },
    method,
    url: EVIL,
    home: HOME,
    programs: true,
    now: 1_000,
  });
  const page = (...given: Parameters<typeof parts>) => paymentPage(parts(...given));

  test('of a tenant’s own design has what callers wrote as text, and one script with the nonce of its policy', () => {
    const template = `<a href={{path}} title='{{description}}'>{{price}} {{currency}}</a><style>{{path}}</style>${MARKER}{{path}}`;
    const given = parts({ testMoney: true });
    const { headers, body } = ownPaymentPage(given, template, `//evil.example/a b<>"'&{};()\\é${MARKER}{{price}}`);
    const path = '/evil.example/a%20b%3C%3E%22%27%26%7B%7D%3B%28%29%5C%C3%A9';
    expect(body.match(/evil/g)).toHaveLength(3);
    expect(body).toContain(`<a href=${path}%3Cturnpike-payment%3E`);
    expect(body).toContain(`title='&quot;&gt;&lt;script&gt;`);
    expect(body).toContain('0.25 USD</a>');
    expect(body).toContain('Test money');
    const nonce = /'nonce-([\w+/=]{24})'/.exec(headers['content-security-policy'] ?? '')?.[1];
    expect(body.match(/<script[^>]*>/g)).toEqual([`<script nonce="${nonce}">`]);
    // A tag of the tenant’s that is left open before the card takes no nonce from it.
    expect(body.slice(body.indexOf('<turnpike-payment'), body.indexOf('<script'))).not.toContain(nonce);
    // What it finds the card by is in no other answer.
    const idOf = (text: string) => /<turnpike-payment id="(card-[0-9a-f]{36})">/.exec(text)?.[1];
    expect(body).toContain(`Document.prototype.getElementById.call(document, '${idOf(body)}')?.shadowRoot`);
    expect(idOf(ownPaymentPage(given, template, '/').body)).not.toBe(idOf(body));
    expect(ownPaymentPage(parts({}, 'POST'), MARKER, '/').body).not.toContain('<script');
  });

  test('has one script, which its policy names; what strangers wrote is text', () => {
    const { headers, body } = page();
    expect(body.match(/<script/g)).toHaveLength(1);
    expect(body).not.toContain('<img');
    expect(headers['content-security-policy']).toMatch(/script-src 'sha256-[\w+/=]+';/);
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(body).toContain('0.25 USDC');
    expect(body).not.toContain('test money');
    expect(page({ testMoney: true }).body).toContain('Test money');
    expect(body.length).toBeLessThan(40_000);
  });

  test.each([
    ['a call with a body', page({}, 'POST')],
    ['another chain', page({}, 'GET', [{ ...offer, network: 'eip155:1' }])],
    ['what needs an approval', page({}, 'GET', [{ ...offer, scheme: 'upto' }])],
    ['a proof', page({ code: 'proof_required', price: { amount: '0.00', mode: 'fixed' } })],
    ['MPP alone', page({}, 'GET', [])],
  ])('offers no wallet for %s', (_what, { body }) => {
    expect(body).not.toContain('<script');
    expect(body).not.toContain('data-pay');
  });
});
