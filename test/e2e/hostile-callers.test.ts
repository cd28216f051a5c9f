/** Callers who pay nothing and fill memory, and tenants whose pages reach for the origin that they share with others. */
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import { connect, type Socket } from 'node:net';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';

const MB = 1_048_576;
const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

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

/** Resident memory of the supervisor, bytes. */
function resident(): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${host.pid}/status`, 'utf8'))?.[1]) * 1024;
}

/** Connections that each declare 21 MB and send what they can of 20. @returns the status of each, and the most memory */
async function flood(path: string, count: number, fields = ''): Promise<{ statuses: string[]; most: number }> {
  const chunk = Buffer.alloc(65_536, 'a');
  let most = 0;
  const sockets: Socket[] = [];
  const answers = Array.from({ length: count }, async (_, index) => {
    const socket = connect({ port: host.port, host: '127.0.0.1', localAddress: `127.0.0.${1 + (index % 8)}` });
    sockets.push(socket);
    socket.on('error', () => {});
    let sent = 0;
    const push = () => {
      while (sent < 20 * MB && !socket.destroyed) {
        sent += chunk.length;
        if (!socket.write(chunk)) return void socket.once('drain', push);
      }
    };
    socket.write(`POST ${path} HTTP/1.1\r\nhost: localhost\r\n${fields}content-length: ${21 * MB}\r\n\r\n`);
    push();
    const [first] = (await once(socket, 'data')) as [Buffer];
    most = Math.max(most, resident());
    return first.toString('latin1', 9, 12);
  });
  try {
    return { statuses: await Promise.all(answers), most };
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

describe('bodies', () => {
  it('of callers who do not pay are not read, on no path that costs', async () => {
    await flood('/_admin/deploy', 4);
    const before = resident();
    for (const path of ['/_admin/deploy', '/_admin/renew/evil', '/_admin/evil/domains', '/_admin/code/evil']) {
      const { statuses, most } = await flood(path, 60);
      expect([...new Set(statuses)].filter((status) => !/^4\d\d$/.test(status))).toEqual([]);
      expect(most - before).toBeLessThan(150 * MB);
      expect(await (await fetch(`${host.url}/neighbour/`)).text()).toBe('<p>evil');
    }
  });

  it('of callers who only seem to pay are held within a budget, and honest ones are served', async () => {
    const payment = await forged();
    const before = resident();
    const flooding = flood('/_admin/deploy', 24, `payment-signature: ${payment}\r\n`);
    const code = `/*${'\n'.repeat(9.5 * MB)}*/export default { fetch: () => new Response('large') }`;
    const { statuses, most } = await flooding;
    expect(statuses).toContain('503');
    expect(most - before).toBeLessThan(250 * MB);
    await deploy(mppFetch(host.network, 1), host.url, { slug: 'large', code });
    expect(await (await fetch(`${host.url}/large/`)).text()).toBe('large');
  });
});

/** A payment for what is asked, in all but its signature. */
async function forged(): Promise<string> {
  const asked = await fetch(`${host.url}/_admin/deploy`, { method: 'POST', headers: { host: 'localhost' } });
  await asked.arrayBuffer();
  const required = JSON.parse(Buffer.from(asked.headers.get('payment-required') ?? '', 'base64').toString());
  const accepted = required.accepts.find(({ scheme }: { scheme: string }) => scheme === 'exact');
  const address = `0x${'1'.repeat(40)}`;
  const authorization = {
    from: address,
    to: accepted.payTo,
    value: accepted.amount,
    validAfter: '0',
    validBefore: '9999999999',
    nonce: `0x${'2'.repeat(64)}`,
  };
  const payment = { x402Version: 2, accepted, payload: { signature: '0x00', authorization } };
  return Buffer.from(JSON.stringify(payment)).toString('base64');
}

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
    const executablePath = process.env.CHROMIUM ?? BROWSERS.find(existsSync);
    if (!executablePath) throw new Error('no Chromium: install it (apt-get install chromium) or set CHROMIUM');
    browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  });
  afterAll(() => browser?.close());

  /** What a script of the page gets: `ok …` or the name of the error. */
  const attempt = (page: Page, script: string): Promise<string> =>
    page.evaluate(`(async () => { ${script} })().then((r) => 'ok ' + r, (e) => e.name)`);

  const register = (script: string, scope: string) =>
    `return (await navigator.serviceWorker.register('${script}', { scope: '${scope}' })).scope`;

  it('take nothing of others: no worker, no cookies, no storage, no pages of the pay platform', async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
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
    const page = await browser.newPage();
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
