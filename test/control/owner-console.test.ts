import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { sessionEndpoints } from '../../host/control/api/owner/session.ts';
import { consolePages } from '../../host/control/owner-console/pages.ts';
import { configSchema } from '../../host/shared/config.ts';

const publicUrl = 'https://api.example.com';

function pagesOf(pathPages: 'sandbox' | 'trust') {
  const config = configSchema.parse({ ...defaults, edge: { ...defaults.edge, pathPages } });
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
  const texts = await Promise.all(files.map(async ({ render }) => (await render({} as never)).text()));
  expect(texts.join('').length).toBeLessThan(60_000);
  expect(gzipSync(texts.join('')).length).toBeLessThan(20_000);
  const names = files.map(({ path }) => path.split('/').pop());
  const named = texts.flatMap((text) => [...text.matchAll(/from '\.\/([\w.]+)'/g)].map(([, name]) => name));
  expect(named.filter((name) => !names.includes(name))).toEqual([]);
  expect(texts.join('')).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\/\*\*/);
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
