import { expect, test } from 'vitest';
import { paidByCookie } from '../../host/control/payment-cookie.ts';

const URL = 'http://h.example/shop/report?of=today';
const cookie = (url: unknown) =>
  `turnpike-payment=${Buffer.from(JSON.stringify({ resource: { url } })).toString('base64')}`;
const read = (cookies: string, more: RequestInit = {}) => {
  const request = new Request('http://inside/report', { ...more, headers: { cookie: cookies, ...more.headers } });
  const { headers, method } = paidByCookie(request, URL, ['authorization', 'payment-signature']);
  return { payment: headers.get('payment-signature'), cookie: headers.get('cookie'), method };
};

test('a payment for this very URL counts as the header would, and no handler sees the cookie', () => {
  const value = cookie(URL).split('=').slice(1).join('=');
  expect(read(`a=1; ${cookie(URL)}; b=2`)).toEqual({ payment: value, cookie: 'a=1; b=2', method: 'GET' });
  expect(read(cookie(URL))).toEqual({ payment: value, cookie: null, method: 'GET' });
  // Browsers send the cookies of several paths, the longest path first.
  expect(read(`${cookie('http://h.example/shop/other')}; ${cookie(URL)}`).payment).toBe(value);
});

test.each([
  ['another URL', cookie(`${URL}&and=more`)],
  ['no JSON', 'turnpike-payment=bm8='],
  ['no base64', 'turnpike-payment=%%%'],
  ['no object', 'turnpike-payment=bnVsbA=='],
  ['another name', cookie(URL).replace('turnpike', 'xturnpike')],
])('a cookie of %s pays nothing', (_what, given) => {
  expect(read(given).payment).toBeNull();
});

test('it pays for nothing but reading, and not beside another payment', () => {
  expect(read(cookie(URL), { method: 'POST', body: 'x' })).toEqual({ payment: null, cookie: null, method: 'POST' });
  expect(read(cookie(URL), { headers: { 'payment-signature': 'own' } }).payment).toBe('own');
  expect(read(cookie(URL), { headers: { authorization: 'Payment x' } }).payment).toBeNull();
});

test('requests without it are left alone', () => {
  const request = new Request('http://inside/', { headers: { cookie: 'a=1' } });
  expect(paidByCookie(request, URL, [])).toBe(request);
});
