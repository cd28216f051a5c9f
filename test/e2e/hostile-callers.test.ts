/** Callers who pay nothing and fill memory, and tenants whose pages reach for the origin that they share with others. */
import http from 'node:http';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { Flooding, forgedPayment, LARGE, large, MB, resident, residentOf } from './support/flooding.ts';
import { startHost, type TestHost } from './support/host.ts';
import { openBrowser, patientPage } from './support/page-browser.ts';
import { until } from './support/until.ts';

/** What a process may grow by while a flood goes on, garbage that a busy machine has not collected yet included. Without bounds it is 500 MB and more. */
const MOST = 300 * MB;
/** What it may keep of a flood that is over. */
const KEPT = 100 * MB;

const EVIL = `const page = { 'content-type': 'text/html', 'service-worker-allowed': '/' };
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname.endsWith('/who')) return new Response(request.headers.get('cf-connecting-ip'));
    if (pathname.endsWith('/call')) return fetch(await request.text());
    if (pathname.endsWith('/clear'))
      return new Response('<p>cleared', { headers: { ...page, 'clear-site-data': '"*"', 'set-cookie': 'a=b; path=/' } });
    if (request.headers.get('service-worker') || pathname.endsWith('.js') )
      return new Response('self.x = 1', { headers: { ...page, 'content-type': 'text/javascript' } });
    return new Response('<p>evil', { headers: page });
  },
};`;

let host: TestHost;
beforeAll(async () => {
  host = await startHost({ builtins: ['pay'] });
  const owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'evil', code: EVIL });
  await deploy(owner, host.url, { slug: 'neighbour', code: EVIL });
});
afterAll(() => host?.stop());

/** @param answers that are enough @returns the most that a process grew by until they came */
async function mostUntil(
  flooding: Flooding,
  answers: (statuses: string[]) => boolean,
  before: Map<number, number>,
): Promise<number> {
  let most = 0;
  await until(() => {
    most = Math.max(most, growth(before));
    return answers(flooding.statuses) || flooding.isOver || undefined;
  });
  return most;
}

/** The most that any of them has grown by. */
const growth = (before: Map<number, number>) => Math.max(...[...before].map(([pid, bytes]) => residentOf(pid) - bytes));

describe('bodies', () => {
  let first: Map<number, number>;
  beforeAll(async () => {
    const warm = new Flooding(host, large('/_admin/deploy'), 4);
    await mostUntil(warm, (statuses) => statuses.length === 4, resident(host));
    warm.stop();
    first = resident(host);
  });

  it.each(['/_admin/deploy', '/_admin/renew/evil', '/_admin/evil/domains', '/_admin/code/evil'])(
    'of callers who do not pay are not read at %s',
    async (path) => {
      const flooding = new Flooding(host, large(path), 60);
      expect(await mostUntil(flooding, (statuses) => statuses.length === 60, first)).toBeLessThan(MOST);
      expect(await (await fetch(`${host.url}/neighbour/`)).text()).toBe('<p>evil');
      flooding.stop();
      expect(flooding.statuses.filter((status) => !/^4\d\d$/.test(status))).toEqual([]);
    },
  );

  it('that stay unfinished are bounded for each caller, and others are served', async () => {
    const head = 'POST /_admin/deploy HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65536';
    const flooding = new Flooding(host, { head, piece: LARGE.subarray(0, 64_000), bytes: 64_000 }, 1_600);
    const tooMany = 1_600 - 8 * 128;
    const refused = (statuses: string[]) => statuses.filter((status) => status === '503').length >= tooMany;
    expect(await mostUntil(flooding, refused, first)).toBeLessThan(MOST);
    expect(refused(flooding.statuses)).toBe(true);
    const { status } = await fetch(`${host.url}/_admin/deploy`, jsonPost({ slug: 'x' }));
    expect(status).toBe(402);
    flooding.stop();
  });

  it('in chunks of one byte take no more than others', async () => {
    const head = 'POST /_admin/renew/evil HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked';
    const flooding = new Flooding(host, { head, piece: Buffer.from('1\r\na\r\n'.repeat(5_000)), bytes: MB }, 200);
    expect(await mostUntil(flooding, (statuses) => statuses.length === 200, first)).toBeLessThan(MOST);
    flooding.stop();
  });

  it('of callers who only seem to pay are held within a budget, and honest ones are served', async () => {
    const flooding = new Flooding(
      host,
      large('/_admin/deploy', `payment-signature: ${await forgedPayment(host)}\r\n`),
      24,
    );
    expect(await mostUntil(flooding, (statuses) => statuses.includes('503'), first)).toBeLessThan(MOST);
    expect(flooding.statuses).toContain('503');
    await deploy(mppFetch(host.network, 1), host.url, { slug: 'small', code: EVIL });
    expect(await (await fetch(`${host.url}/small/`)).text()).toBe('<p>evil');
    expect(growth(first)).toBeLessThan(MOST);
    flooding.stop();
  });

  it('leave no memory behind that the system lacks', async () => {
    await until(
      () => growth(first) < KEPT || undefined,
      () => `${growth(first) / MB} MB are kept`,
    );
  });
});

describe('the host', () => {
  it('has one spelling of each of its own paths', async () => {
    const status = (path: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        http
          .get({ port: host.port, host: '127.0.0.1', path }, (answer) => {
            answer.resume();
            resolve(answer.statusCode);
          })
          .once('error', reject);
      });
    expect(await status('/_admin/get/evil')).toBe(200);
    for (const path of ['/%5fadmin/get/evil', '/x/../_admin/get/evil', '//_admin/get/evil', '/_admin/%67et/evil'])
      expect(await status(path), path).toBe(404);
  });

  it('tells the operator’s metrics to nobody who came by another name', async () => {
    const metrics = (name: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        http
          .get({ port: host.adminPort, host: '127.0.0.1', path: '/metrics', headers: { host: name } }, (answer) => {
            answer.resume();
            resolve(answer.statusCode);
          })
          .once('error', reject);
      });
    expect(await metrics(`localhost:${host.adminPort}`)).toBe(200);
    expect(await metrics(`rebound.example:${host.adminPort}`)).toBe(403);
  });

  it('knows its own tenants apart when they call it', async () => {
    const who = async (slug: string) =>
      (
        await fetch(`${host.url}/${slug}/call`, { method: 'POST', body: `http://localhost:${host.port}/evil/who` })
      ).text();
    const [evil, neighbour] = [await who('evil'), await who('neighbour')];
    expect(evil).toMatch(/^fd[0-9a-f:]+$/);
    expect(neighbour).toMatch(/^fd[0-9a-f:]+$/);
    expect(evil).not.toBe(neighbour);
    expect(await who('evil')).toBe(evil);
    expect(await (await fetch(`${host.url}/evil/who`)).text()).toBe('127.0.0.1');
  });
});

describe('pages of a tenant on the shared origin', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser?.close());

  /** What a script of the page gets: `ok …` or the name of the error. */
  const attempt = (page: Page, script: string): Promise<string> =>
    page.evaluate(`(async () => { ${script} })().then((r) => 'ok ' + r, (e) => e.name)`);

  const register = (script: string, scope: string) =>
    `return (await navigator.serviceWorker.register('${script}', { scope: '${scope}' })).scope`;

  it('take nothing of others: no worker, no cookies, no storage, no pages of the pay platform', async () => {
    const context = await browser.newContext();
    const page = await patientPage(context);
    const origin = `http://localhost:${host.port}`;
    await page.goto(`${origin}/pay/`);
    const cookies = (await context.cookies()).map(({ name, path }) => `${name} ${path}`);
    expect(cookies.length).toBeGreaterThan(0);

    await page.goto(`${origin}/evil`);
    expect(page.url()).toBe(`${origin}/evil/`);
    for (const [script, scope] of [
      ['/evil', '/'],
      ['/evil?x.js', '/'],
      ['/evil/sw.js', '/'],
      ['/evil/sw.js', '/evil/'],
    ] as const)
      expect(await attempt(page, register(script, scope)), script).not.toMatch(/^ok/);
    expect(await attempt(page, `return document.cookie = 'x=y; path=/pay'`)).toBe('SecurityError');
    expect(await attempt(page, 'return localStorage.length')).toBe('SecurityError');
    expect(await attempt(page, `return (await fetch('/pay/', { credentials: 'include' })).status`)).toBe('TypeError');
    expect(
      await attempt(
        page,
        `const frame = document.createElement('iframe'); frame.src = '/evil/sw.js'; document.body.append(frame);
         await new Promise((done) => { frame.onload = done; });
         return frame.contentWindow.document.title`,
      ),
    ).not.toMatch(/^ok/);

    // On a page that is trusted with the origin, the script itself is still refused.
    await page.goto(`${origin}/pay/`);
    expect(await attempt(page, register('/evil', '/'))).not.toMatch(/^ok/);
    expect(await attempt(page, register('/evil/sw.js', '/evil/'))).not.toMatch(/^ok/);

    await page.goto(`${origin}/evil/clear`);
    const after = await context.cookies();
    expect(after.map(({ name, path }) => `${name} ${path}`)).toEqual(expect.arrayContaining(cookies));
    expect(after.find(({ name }) => name === 'a')?.path).toBe('/evil');
    await context.close();
  });

  it('have an origin of their own at their subdomain', async () => {
    const page = await patientPage(browser);
    await page.goto(`http://evil.localhost:${host.port}/`);
    expect(await attempt(page, register('/sw.js', '/'))).toMatch(/^ok/);
    expect(await attempt(page, 'return localStorage.length')).toBe('ok 0');
    await page.close();
  });
});

it('a slug without its slash keeps query, other methods and handshakes', async () => {
  const redirect = await fetch(`${host.url}/evil?a=b`, { redirect: 'manual' });
  expect([redirect.status, redirect.headers.get('location')]).toEqual([308, '/evil/?a=b']);
  expect(redirect.headers.get('access-control-allow-origin')).toBe('*');
  expect((await fetch(`${host.url}/evil`, { ...jsonPost({}), redirect: 'manual' })).status).toBe(200);
});
