/** What of an answer reaches the caller where tenants share an origin. */
import { describe, expect, test } from 'vitest';
import { type AnswerPlace, answerFields, confinedCookie } from '../../host/edge/answer-fields.ts';
import { answerField } from '../../host/http/message/fields.ts';
import { parseResponseHead } from '../../host/http/message/head.ts';

const PATH: AnswerPlace = {
  via: 'path',
  prefix: '/hello',
  hostName: 'api.example.com',
  host: 'api.example.com:8402',
  trusted: false,
};
const SUBDOMAIN: AnswerPlace = {
  via: 'subdomain',
  prefix: '',
  hostName: 'hello.example.com',
  host: 'hello.example.com',
  trusted: true,
};
const DOMAIN: AnswerPlace = { via: 'domain', prefix: '', hostName: 'shop.test', host: 'shop.test', trusted: true };
const BUILT_IN: AnswerPlace = { ...PATH, trusted: true };

describe('cookies on a path address', () => {
  test.each([
    ['a=b', 'a=b; Path=/hello'],
    ['a=b; Path=/', 'a=b; Path=/hello'],
    ['a=b;path=/;PATH = /other; Secure', 'a=b; Secure; Path=/hello'],
    ['a=b; Domain=example.com; HttpOnly', 'a=b; HttpOnly; Path=/hello'],
    ['a=b; domain', 'a=b; Path=/hello'],
    ['', '; Path=/hello'],
  ])('%s', (cookie, expected) => {
    expect(confinedCookie(cookie, PATH)).toBe(expected);
  });
});

test('a subdomain may set cookies for itself, not for its neighbours', () => {
  expect(confinedCookie('a=b; Path=/x; Domain=example.com', SUBDOMAIN)).toBe('a=b; Path=/x');
  expect(confinedCookie('a=b; Domain=.hello.example.com', SUBDOMAIN)).toBe('a=b; Domain=.hello.example.com');
});

test('a domain of its own is left alone', () => {
  expect(confinedCookie('a=b; Domain=shop.test; Path=/', DOMAIN)).toBe('a=b; Domain=shop.test; Path=/');
});

test('fields that speak for the origin are dropped only where it is shared', () => {
  const head = parseResponseHead(
    'HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=1\r\nService-Worker-Allowed: /\r\nClear-Site-Data: "*"\r\nA: b\r\n',
    'GET',
    answerField,
  );
  expect(answerFields(head, BUILT_IN, 'id', 'now')).toBe('A: b\r\ndate: now\r\nx-request-id: id\r\n');
  expect(answerFields(head, DOMAIN, 'id', 'now')).toContain('Service-Worker-Allowed: /\r\n');
});

test("the handler's own date stays, its request id and price do not", () => {
  const head = parseResponseHead(
    'HTTP/1.1 200 OK\r\nDate: then\r\nX-Request-Id: mine\r\nX-Charge: 9\r\nx-turnpike-context: x\r\n',
    'GET',
    answerField,
  );
  expect(answerFields(head, BUILT_IN, 'id', 'now')).toBe('date: then\r\nx-request-id: id\r\n');
});

test('pages on a path address are sandboxed, whatever policy and type the handler names; elsewhere none is', () => {
  const head = parseResponseHead(
    'HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Security-Policy: sandbox allow-same-origin allow-scripts\r\n',
    'GET',
    answerField,
  );
  const policies = answerFields(head, PATH, 'id', 'now').match(/^content-security-policy: sandbox .*$/gim);
  expect(policies).toHaveLength(2);
  expect(policies?.[1]).not.toContain('allow-same-origin');
  for (const place of [SUBDOMAIN, DOMAIN, BUILT_IN]) {
    expect(answerFields(head, place, 'id', 'now').match(/sandbox/g)).toHaveLength(1);
  }
});

test.each([
  'Clear-Site-Data',
  'service-worker-allowed',
  'Accept-CH',
  'Set-Login',
  'Activate-Storage-Access',
  'Use-As-Dictionary',
  'NEL',
  'Set-Cookie2',
])('%s is dropped where the origin is shared', (name) => {
  const head = parseResponseHead(`HTTP/1.1 304 Not Modified\r\n${name}: x\r\n`, 'GET', answerField);
  expect(answerFields(head, PATH, 'id', 'now').toLowerCase()).not.toContain(name.toLowerCase());
  expect(answerFields(head, DOMAIN, 'id', 'now')).toContain(`${name}: x`);
});

describe('redirects on a path address stay below it', () => {
  const location = (value: string, place: AnswerPlace = PATH, status = '302 Found') =>
    /^location: (.*)$/m
      .exec(
        answerFields(
          parseResponseHead(`HTTP/1.1 ${status}\r\nLocation: ${value}\r\nA: b\r\n`, 'GET', answerField),
          place,
          'id',
          'now',
        ).replace('Location', 'location'),
      )?.[1]
      ?.trim();
  test.each([
    ['/about', '/hello/about'],
    ['/', '/hello/'],
    ['/a?b=/c#d', '/hello/a?b=/c#d'],
    ['http://api.example.com:8402/login?next=%2F', '/hello/login?next=%2F'],
    ['https://API.example.com:8402', '/hello/'],
    ['/hello', '/hello'],
    ['/hello/there', '/hello/there'],
    ['/helloes', '/hello/helloes'],
    ['about', 'about'],
    ['?page=2', '?page=2'],
    ['//other.example/x', '//other.example/x'],
    ['https://other.example/x', 'https://other.example/x'],
    ['http://api.example.com/x', 'http://api.example.com/x'],
    ['mailto:a@b.c', 'mailto:a@b.c'],
  ])('%s', (value, expected) => expect(location(value)).toBe(expected));
  test('what is no redirect, and other addresses, are left alone', () => {
    expect(location('/a', PATH, '201 Created')).toBe('/a');
    expect(location('/a', SUBDOMAIN)).toBe('/a');
    expect(location('/a', BUILT_IN)).toBe('/hello/a');
  });
});

test('search engines are told to leave previews out, and nothing else', () => {
  const head = parseResponseHead('HTTP/1.1 200 OK\r\nA: b\r\n', 'GET', answerField);
  for (const place of [PATH, SUBDOMAIN, BUILT_IN]) {
    expect(answerFields(head, place, 'id', 'now')).not.toContain('noindex');
    const fields = answerFields(head, { ...place, preview: '0123456789ab' }, 'id', 'now');
    expect(fields).toContain('x-robots-tag: noindex\r\n');
  }
});
