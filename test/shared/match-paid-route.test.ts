/** Which requests have a price: also those whose path only looks different. */
import { Hono } from 'hono';
import { expect, test } from 'vitest';
import { matchPaidRoute } from '../../host/shared/match-paid-route.ts';

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
  ['GET', '/REPORT'],
  ['GET', '/Report/'],
  ['get', '/report'],
  ['GET', '/report;v=1'],
  ['GET', '/x;/..;a/report'],
  ['GET', '//evil.example/report'],
  ['GET', '/\\evil.example/report'],
  ['GET', '/report%23x'],
  ['GET', '/report%3fx'],
  ['GET', '/report%20'],
  ['GET', '/report.'],
  ['GET', '/rep%C2%ADort'],
  ['GET', '/%EF%BD%92eport'],
  ['GET', '/%EF%BC%8Freport'],
  ['GET', '/%25252572eport'],
  ['POST', '/V1/listen'],
  ['POST', '/v1;x/listen'],
  ['POST', '/free//..%5c%2e./V1'],
  ['GET', '/a%20b'],
  ['POST', '/v1/listen'],
  ['POST', '/v1/'],
  ['POST', '/v1'],
  ['POST', '/v1/a/../b'],
  ['POST', '/free/..%2fv1/x'],
  ['DELETE', '/any'],
])('%s %s has a price', (method, path) => {
  expect(matchPaidRoute(ROUTES, method, path)).toMatchObject({ path: expect.any(String) });
});

test.each([
  ['a tab', '/rep\tort'],
  ['a zero byte', '/report%00'],
  ['an overlong slash', '/x/..%c0%afreport'],
  ['invalid UTF-8', '/report%ff'],
  ['bytes that are not escaped', '/r\xc3\x80port'],
  ['more readings than are worth telling', `/${'a%2525;/..//'.repeat(3_000)}`],
  ['readings under two routes', '/cheap/..%2fdear'],
])('%s is ambiguous', (_name, path) => {
  const routes = [...ROUTES, ...['/dear', '/cheap/*'].map((each) => ({ method: 'GET', path: each }))];
  expect(matchPaidRoute(routes, 'GET', path)).toBe('ambiguous');
  expect(matchPaidRoute([], 'GET', path)).toBeUndefined();
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

/** The same numbers at every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Other spellings of a path: a few changes, one on top of the other. */
function respelled(path: string, random: (below: number) => number): string {
  let text = path;
  for (let left = 1 + random(4); left > 0; left -= 1) {
    const at = 1 + random(text.length);
    const before = text.slice(0, at);
    const after = text.slice(at);
    const code = after.charCodeAt(0);
    const changes = [
      () => before + after.charAt(0).toUpperCase() + after.slice(1),
      () => (code > 0x20 && code < 0x7f ? `${before}%${code.toString(16)}${after.slice(1)}` : text),
      () =>
        /[a-z]/.test(after.charAt(0))
          ? `${before}${encodeURIComponent(String.fromCharCode(code + 0xfee0))}${after.slice(1)}`
          : text,
      () =>
        text.replace(
          '/',
          ['//', '/./', '/x/../', '%2f', '%5c', '\\', '/%2e/', '/x/%2E%2e/', '//h/', '/.;/'][random(10)] ?? '',
        ),
      () => text + (['/', ';x=1', '%20', '%00', '%ff', '.', '?a=/b', '%3fa', '%23', '%c2%ad'][random(10)] ?? ''),
    ];
    text = changes[random(changes.length)]?.() ?? text;
  }
  return text.startsWith('/') ? text : `/${text}`;
}

const decoded = (path: string) => {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
};

/** What routers do to a path, alone or after each other. */
const ROUTER_STEPS: ((path: string) => string)[] = [
  decoded,
  decoded,
  (path) => path.toLowerCase(),
  (path) => path.replace(/\/+$/, ''),
  (path) => path.replace(/\/+/g, '/'),
  (path) => path.replace(/;[^/]*/g, ''),
  (path) => path.normalize('NFKC'),
  (path) => path.replaceAll('\\', '/'),
  (path) => (URL.canParse(path, 'http://h') ? new URL(path, 'http://h').pathname : path),
];

test('no spelling that a router takes for a priced path is free', async () => {
  const random = numbers(7);
  const hono = new Hono();
  hono.get('/report', (c) => c.text('paid'));
  hono.get('/v1/*', (c) => c.text('paid'));
  hono.notFound((c) => c.text('free', 404));
  const routes = [
    { method: 'GET', path: '/report' },
    { method: 'GET', path: '/v1/*' },
  ];
  const served = { hono: 0, express: 0 };
  for (let turn = 0; turn < 4_000; turn += 1) {
    const spelling = respelled(['/report', '/v1/listen'][random(2)] ?? '', random);
    const own = (await hono.request(new Request(`http://h${spelling}`))).status === 200;
    let path = spelling.split('?')[0] ?? '';
    for (let left = random(7); left > 0; left -= 1) path = ROUTER_STEPS[random(ROUTER_STEPS.length)]?.(path) ?? path;
    const express = path === '/report' || path.startsWith('/v1/');
    if (own) served.hono += 1;
    if (express) served.express += 1;
    if (own || express) expect(matchPaidRoute(routes, 'GET', spelling), spelling).toBeDefined();
  }
  expect(served.hono).toBeGreaterThan(500);
  expect(served.express).toBeGreaterThan(500);
});
