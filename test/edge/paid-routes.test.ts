/** Which requests have a price: also those whose path only looks different. */
import { expect, test } from 'vitest';
import { matchPaidRoute } from '../../host/edge/paid-routes.ts';

const ROUTES = [
  { method: 'GET', path: '/report' },
  { method: 'POST', path: '/v1/*' },
  { method: '*', path: '/any/' },
  { method: 'get', path: '/a b' },
];

test.each([
  ['GET', '/report'],
  ['GET', '/report?x=/free'],
  ['HEAD', '/report'],
  ['GET', '/report/'],
  ['GET', '//report'],
  ['GET', '/./report'],
  ['GET', '/x/../report'],
  ['GET', '/x/%2e%2E/report'],
  ['GET', '/x/.%2e/report'],
  ['GET', '/%72eport'],
  ['GET', '/%2572eport'],
  ['GET', '\\report'],
  ['GET', '/x\\..\\report'],
  ['GET', '/x%5c..%5creport'],
  ['GET', '/%2freport'],
  ['GET', '/rep\tort'],
  ['GET', '/a%20b'],
  ['POST', '/v1/listen'],
  ['POST', '/v1/'],
  ['POST', '/v1'],
  ['POST', '/v1/a/../b'],
  ['POST', '/free/..%2fv1/x'],
  ['DELETE', '/any'],
])('%s %s has a price', (method, path) => {
  expect(matchPaidRoute(ROUTES, method, path)).toBeDefined();
});

test.each([
  ['POST', '/report'],
  ['GET', '/report/x'],
  ['GET', '/reports'],
  ['GET', '/free?/report'],
  ['GET', '/v1/listen'],
  ['POST', '/v2/listen'],
  ['POST', '/v10'],
  ['GET', '/'],
])('%s %s is free', (method, path) => {
  expect(matchPaidRoute(ROUTES, method, path)).toBeUndefined();
});

test('everything has a price under *', () => {
  expect(matchPaidRoute([{ method: '*', path: '/*' }], 'PATCH', '/')).toBeDefined();
  expect(matchPaidRoute([{ method: 'GET', path: '/' }], 'GET', '/?a')).toBeDefined();
});
