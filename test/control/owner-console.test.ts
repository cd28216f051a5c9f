import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { sessionEndpoints } from '../../host/control/api/owner/session.ts';
import { consolePages } from '../../host/control/owner-console/pages.ts';
import { configSchema } from '../../host/shared/config.ts';
import { consolePlace } from '../../host/shared/console-place.ts';

const publicUrl = 'https://api.example.com';

function pagesOf(pathPages: 'sandbox' | 'trust', baseDomain = 'localhost') {
  const config = configSchema.parse({ ...defaults, baseDomain, edge: { ...defaults.edge, pathPages } });
  return {
    config,
    pages: consolePages({ config, publicUrl, network: { name: 'none' }, places: [], testMoney: () => false }),
  };
}
const get = async (pathPages: 'sandbox' | 'trust', host: string) => {
  const answer = await pagesOf(pathPages).pages[0]?.render({ host } as never);
  return { policy: answer?.headers.get('content-security-policy') ?? '', text: (await answer?.text()) ?? '' };
};

it('runs its own modules alone, and calls the API alone', async () => {
  const { policy, text } = await get('sandbox', 'api.example.com');
  expect(policy).toMatch(
    /^default-src 'none'; script-src https:\/\/api\.example\.com\/_admin\/console\/\w{16}\/; connect-src https:\/\/api\.example\.com\/_admin\/; /,
  );
  expect(policy).toContain("frame-ancestors 'none'");
  expect(policy).not.toMatch(/unsafe|'self'/);
  expect(text).toContain('<script type="module" src="/_admin/console/');
});

it('is small, and each module names those that there are', async () => {
  const files = pagesOf('sandbox').pages.filter(({ path }) => path.endsWith('.js'));
  const texts = new Map<string, string>();
  for (const { path, render } of files)
    texts.set(path.split('/').pop() ?? '', await (await render({} as never)).text());
  const named = (name: string, how: RegExp) =>
    [...(texts.get(name) ?? '').matchAll(how)].map(([, module = '']) => module);
  const AT_ONCE = /from '\.\/([\w.-]+)'/g;
  const LATER = /import\('\.\/([\w.-]+)'\)/g;
  const loaded = (first: readonly string[]) => {
    const all = new Set(first);
    for (const name of all) for (const module of named(name, AT_ONCE)) all.add(module);
    return [...all].map((name) => texts.get(name) ?? expect.fail(`there is no ${name}`)).join('');
  };
  const size = (...names: string[]) => loaded(names).length;
  expect(size('main.js')).toBeLessThan(25_000);
  expect(gzipSync(loaded(['main.js'])).length).toBeLessThan(9_000);
  // The largest page of a slug.
  for (const tab of named('slug.js', LATER)) expect(size('main.js', 'slug.js', tab), tab).toBeLessThan(48_000);
  expect(size('main.js', ...named('main.js', LATER))).toBeLessThan(50_000);
  const all = [...texts.values()].join('');
  expect([...texts.keys()].flatMap((name) => named(name, LATER)).filter((name) => !texts.has(name))).toEqual([]);
  expect(all).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\/\*\*/);
});

it('does not run under another name of the host, nor where pages of tenants act for its origin', async () => {
  const elsewhere = await get('sandbox', '127.0.0.1:8402');
  expect(elsewhere.text).not.toContain('<script');
  expect(elsewhere.text).toContain('href="https://api.example.com/_admin/console"');
  const trusting = await get('trust', 'api.example.com');
  expect(trusting.text).not.toContain('<script');
  expect(trusting.policy).not.toContain('script-src');
  const { config } = pagesOf('trust');
  const begin = sessionEndpoints({ config, publicUrl } as never).find(({ path }) => path === '/_admin/sign-in');
  const request = new Request(`${publicUrl}/_admin/sign-in`, { method: 'POST', body: '{}' });
  await expect(begin?.handle({ request, params: {}, context: {} } as never)).rejects.toMatchObject({
    code: 'forbidden',
  });
});

it('is alone on an origin of its own below a base domain, also where pages of tenants act for that of the host', async () => {
  const at = 'console.apps.example.com';
  const { pages, config } = pagesOf('trust', 'apps.example.com');
  const page = pages.find((one) => one.path === '/' && one.at === at);
  const answer = await page?.render({ host: at } as never);
  expect(answer?.headers.get('content-security-policy')).toContain(
    `connect-src https://${at}/_admin/; style-src https://${at}/look.`,
  );
  expect(await answer?.text()).toContain('<script type="module"');
  // What the host's own origin has of it leads there.
  const left = pages.filter((one) => one.at === undefined);
  expect(left.map(({ path }) => path)).toEqual(['/_admin/console', '/_admin/console/']);
  const led = await left[0]?.render({ host: 'api.example.com' } as never);
  expect([led?.status, led?.headers.get('location')]).toEqual([302, `https://${at}/`]);
  const begin = sessionEndpoints({ config, publicUrl } as never).find(({ path }) => path === '/_admin/sign-in');
  const from = (origin: string) =>
    begin?.handle({
      request: new Request(`https://${at}/_admin/sign-in`, { method: 'POST', body: '{}', headers: { origin } }),
      params: {},
      context: {},
    } as never);
  await expect(from(publicUrl)).rejects.toMatchObject({ code: 'forbidden' });
  await expect(from('https://hello.apps.example.com')).rejects.toMatchObject({ code: 'forbidden' });
  await expect(from(`https://${at}`)).rejects.toMatchObject({ code: 'invalid_field' });
});

it.each([
  ['https://console.example.com', 'example.com', 'https://console.example.com/_admin/console', false],
  ['https://api.example.com:8443', 'Apps.example.com', 'https://console.apps.example.com:8443/', true],
  ['http://localhost:8402', 'localhost', 'http://localhost:8402/_admin/console', false],
])('a host at %s with tenants below %s has it at %s', (host, baseDomain, url, isOwn) => {
  expect(consolePlace(host, baseDomain)).toMatchObject({ url, isOwn });
});
