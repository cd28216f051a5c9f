/** Which slug, or control, a request belongs to. */
import { describe, expect, test } from 'vitest';
import { hostName, type Names, RouteTable } from '../../host/edge/route-table.ts';
import type { Route } from '../../host/shared/contracts.ts';

function route(slug: string, domains: string[] = []): Route {
  return { slug, state: 'active', domains, paidRoutes: [], idleTimeoutMs: 1, maxBodyBytes: 1 };
}

function table(names: Partial<Names> = {}): RouteTable {
  const routes = new RouteTable({
    publicUrl: undefined,
    baseDomain: 'localhost',
    reservedSlugs: ['www', 'pay'],
    ...names,
  });
  routes.replace([route('hello', ['shop.example.com']), { ...route('pay'), trustedPages: true }]);
  return routes;
}

/** In short: `slug path` of a tenant, else the kind. */
function found(routes: RouteTable, host: string, target: string): string {
  const resolution = routes.resolve(host, target);
  return resolution.kind === 'tenant' ? `${resolution.route.slug} ${resolution.tenantPath}` : resolution.kind;
}

describe('previews', () => {
  const ID = '0123456789ab';
  const previews = (state: Route['state'] = 'active') => {
    const routes = table();
    routes.put({ ...route('hello', ['shop.example.com']), state, previews: [ID] });
    return routes;
  };

  test.each([
    ['localhost', `/${ID}--hello/a?b`, { prefix: `/${ID}--hello`, via: 'path' }],
    [`${ID}--hello.localhost:8402`, '/a?b', { prefix: '', via: 'subdomain' }],
  ])('%s%s is the version of that id', (host, target, where) => {
    expect(previews().resolve(host, target)).toMatchObject({
      ...where,
      kind: 'tenant',
      route: { slug: 'hello' },
      tenantPath: '/a?b',
      preview: ID,
    });
  });

  test('the slug itself, its domain and unknown ids are no previews', () => {
    const routes = previews();
    for (const [host, target] of [
      ['localhost', '/hello/'],
      ['hello.localhost', '/'],
      ['shop.example.com', '/'],
    ] as const)
      expect(routes.resolve(host, target)).toMatchObject({ kind: 'tenant', preview: undefined });
    for (const label of ['ba9876543210--hello', `${ID}--other`, `${ID}-hello`, `${ID.toUpperCase()}--hello`])
      expect(found(routes, 'localhost', `/${label}/`), label).not.toMatch(/hello/);
    expect(found(routes, `ba9876543210--hello.localhost`, '/')).toBe('unknown');
  });

  test.each(['expired', 'decommissioned'] as const)('a slug that is %s has none', (state) => {
    expect(found(previews(state), 'localhost', `/${ID}--hello/`)).toBe('unknown');
    expect(found(previews(state), `${ID}--hello.localhost`, '/')).toBe('unknown');
  });

  test('a slug of that form, which an earlier host let somebody take, stays where it is', () => {
    const routes = previews();
    routes.put(route(`${ID}--hello`));
    expect(routes.resolve('localhost', `/${ID}--hello/`)).toMatchObject({
      route: { slug: `${ID}--hello` },
      preview: undefined,
    });
  });
});

describe('by path', () => {
  test.each<[string, string]>([
    ['/hello', 'slash'],
    ['/hello/', 'hello /'],
    ['/hello?a=/b', 'slash'],
    ['/hello/a/b?c', 'hello /a/b?c'],
    ['/hello//a', 'hello //a'],
    ['/hello/../_admin/deploy', 'hello /../_admin/deploy'],
    ['/hello/%2e%2e/_admin', 'hello /%2e%2e/_admin'],
    ['/hello/..%2f_admin', 'hello /..%2f_admin'],
    ['/hello/\\..\\_admin', 'hello /\\..\\_admin'],
    ['/pay/x', 'pay /x'],
    ['/', 'control'],
    ['/?x', 'control'],
    ['/_admin/deploy', 'control'],
    ['/llms.txt', 'control'],
    ['/openapi.json', 'control'],
    ['/.well-known/x', 'control'],
    ['/docs', 'control'],
    ['/healthz', 'control'],
    ['/www', 'control'],
    ['/Hello', 'control'],
    ['/_admin/shop/domains/%C3%A4.example', 'control'],
    ['/_admin/get/x?a=//b/%2e', 'control'],
    ...[
      '//hello/x',
      '/./hello',
      '/../hello',
      '/%68ello',
      '/hello%2f..',
      '/hello;x/y',
      '/hello\\x',
      '/%5fadmin/deploy',
      '/%5Fadmin',
      '//_admin/deploy',
      '/x/../_admin/deploy',
      '/./_admin/deploy',
      '/_admin/../_admin/get/x',
      '/%2e/_admin/get/x',
      '/_admin/%67et/x',
      '/_admin/get/x%2f..',
      '/_admin/get/%00',
      '/_admin;x/deploy',
      '/_admin\\deploy',
      '/_admin//deploy',
      '/llms%2etxt',
    ].map((target): [string, string] => [target, 'unknown']),
    ['/nobody', 'unknown'],
    ['/nobody/hello', 'unknown'],
    ['/hellox', 'unknown'],
  ])('%s', (target, expected) => {
    expect(found(table(), 'api.example.com', target)).toBe(expected);
  });
});

test.each([
  ['/hello', '/hello/'],
  ['/hello?a=/b', '/hello/?a=/b'],
])('%s belongs below the slug: %s', (from, to) => {
  expect(table().resolve('api.example.com', from)).toMatchObject({ kind: 'slash', target: to });
});

test.each([
  ['api.example.com', '/hello/', false],
  ['api.example.com', '/pay/', true],
  ['hello.localhost', '/', true],
  ['shop.example.com', '/', true],
])('pages at %s%s are trusted with their origin: %s', (host, target, trusted) => {
  expect(table().resolve(host, target)).toMatchObject({ trusted });
});

describe('by host', () => {
  test.each([
    ['hello.localhost', '/a', 'hello /a'],
    ['HELLO.localhost:8402', '/hello/a', 'hello /hello/a'],
    ['hello.localhost.', '/_admin/deploy', 'hello /_admin/deploy'],
    ['hello.localhost', '/.well-known/acme-challenge/x', 'control'],
    ['nobody.localhost', '/a', 'unknown'],
    ['a.hello.localhost', '/a', 'unknown'],
    ['shop.example.com', '/a', 'hello /a'],
    ['SHOP.example.com:443', '/hello', 'hello /hello'],
    ['xshop.example.com', '/hello/', 'hello /'],
    ['localhost:1', '/hello/a', 'hello /a'],
    ['[::1]:80', '/hello/a', 'hello /a'],
    ['', '/hello/a', 'hello /a'],
  ])('%s %s', (host, target, expected) => {
    expect(found(table(), host, target)).toBe(expected);
  });

  test('with a public URL, other names are nobody', () => {
    const routes = table({ publicUrl: 'https://api.example.com', baseDomain: 'apps.example.com' });
    expect(found(routes, 'api.example.com', '/hello/a')).toBe('hello /a');
    expect(found(routes, 'hello.apps.example.com', '/a')).toBe('hello /a');
    expect(found(routes, '127.0.0.1:8402', '/hello/a')).toBe('hello /a');
    expect(found(routes, 'gone.example.com', '/hello/a')).toBe('unknown');
    expect(found(routes, 'gone.example.com', '/.well-known/acme-challenge/x')).toBe('control');
  });

  test('the console has a name below a base domain, whatever slug has it', () => {
    const names = { publicUrl: 'https://api.example.com', baseDomain: 'apps.example.com' };
    const routes = table(names);
    routes.put(route('console'));
    for (const target of ['/', '/_admin/deployments', '/hello/', '/console/'])
      expect(found(routes, 'Console.apps.example.com.:8443', target)).toBe('control');
    expect(found(routes, 'api.example.com', '/console/')).toBe('console /');
    expect(found(table(), 'console.localhost', '/')).toBe('unknown');
  });

  test('a public URL below the base domain is no tenant', () => {
    const routes = table({ publicUrl: 'https://hello.example.com', baseDomain: 'example.com' });
    expect(found(routes, 'hello.example.com', '/')).toBe('control');
  });
});

test('changes take effect at once, and a domain follows its owner', () => {
  const routes = table();
  routes.put(route('other', ['shop.example.com']));
  expect(found(routes, 'shop.example.com', '/')).toBe('other /');
  routes.remove('hello');
  expect(found(routes, 'shop.example.com', '/')).toBe('other /');
  expect(found(routes, 'x', '/hello')).toBe('unknown');
  routes.put(route('other'));
  expect(found(routes, 'shop.example.com', '/')).toBe('control');
  expect(routes.size).toBe(2);
});

test('10,000 slugs and their domains are found', () => {
  const many = new RouteTable({ publicUrl: undefined, baseDomain: 'localhost', reservedSlugs: [] });
  many.replace(Array.from({ length: 10_000 }, (_, index) => route(`slug-${index}`, [`d${index}.example.com`])));
  expect(found(many, 'x', '/slug-9999/a')).toBe('slug-9999 /a');
  expect(found(many, 'd77.example.com', '/a')).toBe('slug-77 /a');
  expect(many.size).toBe(10_000);
});

test.each([
  ['X.test:80', 'x.test'],
  ['x.test.', 'x.test'],
  ['[::1]:80', '[::1]'],
  ['', ''],
])('the name of %s', (host, name) => {
  expect(hostName(host)).toBe(name);
});
