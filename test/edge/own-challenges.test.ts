import { expect, it } from 'vitest';
import { tenantChallenges } from '../../host/edge/own-challenges.ts';

const PLACE = {
  via: 'path',
  prefix: '/shop',
  hostName: 'api.example.com',
  host: 'api.example.com',
  trusted: false,
  route: { tenant: 't1' },
} as const;
const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const mpp = (scope: string, write = (opaque: string) => `"${opaque}"`) =>
  `WWW-Authenticate: Payment id="x", realm="api.example.com", opaque=${write(base64url({ n: 'abc', scope }))}\r\n`;
const siwx = (uri: string) =>
  `payment-required: ${Buffer.from(JSON.stringify({ x402Version: 2, accepts: [], extensions: { 'sign-in-with-x': { info: { uri } } } })).toString('base64')}\r\n`;
const shown = (lines: string) => tenantChallenges(lines, PLACE);

it.each([
  mpp('binding:t1'),
  mpp('mandate:t1'),
  mpp('proof:tenant:t1:anything'),
  'www-authenticate: Basic realm="api.example.com"\r\n',
  'www-authenticate: Payment id="x", realm="elsewhere.example", opaque="eyJhIjoiYiJ9eyJhIjoiYiJ9eyJhIjoiYiJ9"\r\n',
  'payment-required: not base64\r\n',
  siwx('https://api.example.com/shop/members'),
  siwx('https://elsewhere.example/_admin/x'),
])('lets a handler show %s', (line) => {
  expect(shown(line)).toBe(line);
});

it.each([
  mpp('operation:deploy'),
  mpp('route:t1:GET /paid'),
  mpp('binding:t2'),
  mpp('mandate:t2'),
  mpp('mandate:renew:hello'),
  mpp('proof:DELETE victim'),
  mpp('proof:tenant:t12:x'),
  // As clients still read it.
  mpp('operation:deploy', (opaque) => opaque),
  mpp('operation:deploy', (opaque) => `"${[...opaque].map((letter) => `\\${letter}`).join('')}"`),
  `www-authenticate: Basic realm="a", ${mpp('operation:deploy').slice(18)}`,
  siwx('https://api.example.com/_admin/victim'),
  siwx('https://API.example.com/x/../_admin/victim'),
])('drops %s', (line) => {
  expect(shown(`${mpp('binding:t1')}${line}`)).toBe(mpp('binding:t1'));
});
