/** What tenants may declare as paid routes, and which one a request falls under. */
import { describe, expect, test } from 'vitest';
import { findPaidRoute, parsePaidRoutes, tollRoutes } from '../../host/payments/paid-routes.ts';
import { matchPaidRoute } from '../../host/shared/match-paid-route.ts';
import { Problem } from '../../host/shared/problem.ts';

const route = (change: Record<string, unknown> = {}) => ({ method: 'GET', path: '/report', price: '0.01', ...change });

test('defaults are filled in and methods are upper case', () => {
  expect(parsePaidRoutes([route({ method: 'post' })])).toEqual([{ ...route({ method: 'POST' }), mode: 'fixed' }]);
  expect(parsePaidRoutes([{ path: '/all', price: '1' }])[0]?.method).toBe('*');
  expect(parsePaidRoutes([{ path: '/mcp', tool: 'look', price: '1' }])[0]?.method).toBe('POST');
});

describe('what is refused names the field', () => {
  test.each([
    ['not a list', { a: 1 }, '/paidRoutes'],
    ['a price of nothing', [route({ price: '0' })], '/paidRoutes/0/price'],
    ['a negative price', [route({ price: '-1' })], '/paidRoutes/0/price'],
    ['a price with seven decimals', [route({ price: '0.0000001' })], '/paidRoutes/0/price'],
    ['an exponent', [route({ price: '1e3' })], '/paidRoutes/0/price'],
    ['a number', [route({ price: 1 })], '/paidRoutes/0/price'],
    ['a fortune', [route({ price: '10000.01' })], '/paidRoutes/0/price'],
    ['digits of another script', [route({ price: '٥' })], '/paidRoutes/0/price'],
    ['a path without a slash', [route({ path: 'report' })], '/paidRoutes/0/path'],
    ['a star in the middle', [route({ path: '/a/*/b' })], '/paidRoutes/0/path'],
    ['dot segments', [route({ path: '/a/../b' })], '/paidRoutes/0/path'],
    ['a page without a slash', [route({ page: 'pay.html' })], '/paidRoutes/0/page'],
    ['a page elsewhere', [route({ page: '//pay.example' })], '/paidRoutes/0/page'],
    ['a page above', [route({ page: '/a/../report' })], '/paidRoutes/0/page'],
    ['a tool of another method', [{ path: '/mcp', tool: 'look', price: '1', method: 'GET' }], '/paidRoutes/0/method'],
    ['a tool below a path', [{ path: '/mcp/*', tool: 'look', price: '1' }], '/paidRoutes/0/path'],
    ['a tool with a page', [{ path: '/mcp', tool: 'look', price: '1', page: '/pay.html' }], '/paidRoutes/0/tool'],
    [
      'a path whole and by tools',
      [
        { path: '/mcp', tool: 'a', price: '1' },
        { path: '/MCP/', method: 'POST', price: '1' },
      ],
      '/paidRoutes/1',
    ],
    [
      'a tool twice',
      [
        { path: '/mcp', tool: 'a', price: '1' },
        { path: '/mcp', tool: 'A', price: '2' },
      ],
      '/paidRoutes/1',
    ],
    ['a page with a price', [route(), route({ path: '/b', page: '/REPORT/' })], '/paidRoutes/1/page'],
    ['a page below a price', [route({ path: '/b', page: '/a/pay' }), route({ path: '/a/*' })], '/paidRoutes/0/page'],
    ['an escape', [route({ path: '/a%2fb' })], '/paidRoutes/0/path'],
    ['a query', [route({ path: '/a?b=1' })], '/paidRoutes/0/path'],
    ['an unknown method', [route({ method: 'BREW' })], '/paidRoutes/0/method'],
    ['an unknown mode', [route({ mode: 'free' })], '/paidRoutes/0/mode'],
    ['live without a meter', [route({ live: true })], '/paidRoutes/0/live'],
    ['live for a POST', [route({ live: true, mode: 'metered', method: 'POST' })], '/paidRoutes/0/live'],
    ['an unknown key', [route({ discount: 5 })], '/paidRoutes/0'],
    ['the same route twice', [route(), route({ price: '2' })], '/paidRoutes/1'],
    ['the same route in another case', [route(), route({ path: '/Report/' })], '/paidRoutes/1'],
    ['too many', Array.from({ length: 101 }, (_, i) => route({ path: `/r${i}` })), '/paidRoutes'],
  ])('%s', (_name, input, pointer) => {
    let problem: unknown;
    try {
      parsePaidRoutes(input);
    } catch (error) {
      problem = error;
    }
    expect(problem).toBeInstanceOf(Problem);
    expect((problem as Problem).code).toBe('invalid_field');
    expect((problem as Problem).errors?.[0]?.pointer).toBe(pointer);
  });
});

test('the closest route wins: exact before prefix, longer before shorter, a method before any', () => {
  const routes = parsePaidRoutes([
    { path: '/*', price: '9' },
    { path: '/v1/*', price: '3' },
    { path: '/v1/report', price: '2' },
    { method: 'POST', path: '/v1/report', price: '1' },
  ]);
  const price = (method: string, path: string) => findPaidRoute(routes, method, path)?.price;
  expect(price('POST', '/v1/report')).toBe('1');
  expect(price('GET', '/v1/report?x=1')).toBe('2');
  expect(price('GET', '/v1/other')).toBe('3');
  expect(price('GET', '/else')).toBe('9');
});

test('the edge also hands over POST on metered routes, where session clients manage their channels', () => {
  const routes = parsePaidRoutes([
    { method: 'GET', path: '/m', price: '1', mode: 'metered' },
    { method: 'GET', path: '/f', price: '1' },
    { method: 'POST', path: '/p', price: '1', mode: 'metered' },
  ]);
  expect(tollRoutes(routes).filter((each) => each.method === 'POST')).toEqual([
    { method: 'POST', path: '/p' },
    { method: 'POST', path: '/m' },
  ]);
});

test('the edge hands over OPTIONS of every priced path', () => {
  const routes = parsePaidRoutes([
    { method: 'GET', path: '/m', price: '1' },
    { path: '/all/*', price: '1' },
  ]);
  for (const path of ['/m', '/M/', '/all/x'])
    expect(matchPaidRoute(tollRoutes(routes), 'OPTIONS', path), path).toBeDefined();
  expect(matchPaidRoute(tollRoutes(routes), 'OPTIONS', '/free')).toBeUndefined();
});
