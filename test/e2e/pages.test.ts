/**
 * Pages of the host in a real browser: problems that a browser gets as pages, and a 402 that a person pays with a
 * wallet. Set TURNPIKE_SCREENSHOTS to a folder to keep pictures.
 */
import { createHash } from 'node:crypto';
import type { Browser, BrowserContext } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { expectTime } from '../times.ts';
import { account, balances, deploy, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';
import { addWallet, lookAt, newPage, openBrowser } from './support/page-browser.ts';
import { requiredBesideNonces } from './support/payment-required.ts';
import { until } from './support/until.ts';

const EVIL = '"><script>document.title = 1</script><img src=x onerror="document.title = 2"> </script>';
const HANDLER = `let calls = 0;
export default { fetch(request) {
  const { pathname } = new URL(request.url);
  if (pathname === '/report') return new Response('<!doctype html><title>Report</title><h1 id="answer">The report</h1><script>document.querySelector("h1").dataset.ran = String(self.origin)</script><p>' + (calls += 1) + ' ' + request.headers.get('cookie') + '</p>', { headers: { 'content-type': 'text/html' } });
  if (pathname === '/data') return Response.json({ calls: (calls += 1) });
  if (pathname === '/used') return new Response('used a little', { headers: { 'x-charge': '0.02' } });
  if (pathname === '/fails') return new Response('broken', { status: 500 });
  const html = (text, init = {}) => new Response(text, { ...init, headers: { 'content-type': 'text/html', 'set-cookie': 'mine=1', 'content-security-policy': "script-src *", refresh: '0; url=/free', ...init.headers } });
  const CARD = '<turnpike-payment></turnpike-payment>';
  if (pathname === '/pay-me') return html('<!doctype html><html lang="en"><title>The shop</title><meta name="viewport" content="width=device-width"><style>main { overflow-wrap: anywhere; font-family: serif; max-width: 40rem; margin: auto } section, button { display: none }</style><main><h1>{{description}}</h1><p id="facts" title="{{path}}">{{price}} {{currency}} for {{path}}, {{unknown}}</p><section id="wallet" data-pay="{}"><p id="wallet-list"></p></section><form name="getElementById"></form><img name="currentScript" src="data:," alt="">' + CARD + '<script>document.title = "mine"</script><img src="data:," alt="" onerror="document.title = 3"><script src="/pay.js"></script></main>');
  if (pathname === '/pay-me.html') return Response.redirect(new URL('/pay-me', request.url), 307);
  if (pathname === '/bad/elsewhere') return Response.redirect('https://elsewhere.example/', 302);
  if (pathname === '/bad/paid') return Response.redirect(new URL('/report', request.url), 302);
  if (pathname === '/bad/twice') return html(CARD + CARD);
  if (pathname === '/bad/none') return html('<turnpike-payment >');
  if (pathname === '/bad/json') return html(CARD, { headers: { 'content-type': 'application/json' } });
  if (pathname === '/bad/broken') return html(CARD, { status: 500 });
  if (pathname === '/bad/long') return html(CARD + 'x'.repeat(65_536));
  if (pathname === '/bad/endless') return html(new ReadableStream({ start: (to) => to.enqueue(new TextEncoder().encode(CARD)), pull: (to) => scheduler.wait(200).then(() => to.enqueue(new Uint8Array(1))) }));
  if (pathname === '/bad/silent') return scheduler.wait(60_000);
  if (pathname === '/problem') return new Response('{"status":402,"title":"mine"}', { status: 402, headers: { 'content-type': 'application/problem+json', 'x-turnpike-own': '1' } });
  return new Response('free');
} }`;
const BAD_PAGES = ['elsewhere', 'paid', 'twice', 'none', 'json', 'broken', 'long', 'endless', 'silent'].map(
  (name) => `/bad/${name}`,
);
const BROWSER_ACCEPTS = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';

let host: TestHost;
let browser: Browser;
let context: BrowserContext;
const PAYER = 3;
const REGISTRAR = 'registrar-of-the-test';
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

beforeAll(async () => {
  [host, browser] = await Promise.all([
    startHost({
      flags: { 'base-domain': 'apps.localhost', 'domains-registrar-tokens': JSON.stringify([sha256(REGISTRAR)]) },
    }),
    openBrowser(),
  ]);
  const paidRoutes = [
    { method: 'GET', path: '/report', price: '0.25', description: 'The daily report' },
    { method: 'GET', path: '/data', price: '0.01', description: EVIL },
    { method: 'GET', path: '/fails', price: '0.01' },
    { method: 'GET', path: '/used', price: '0.05', mode: 'metered', description: 'What you use' },
    { method: 'GET', path: '/own/*', price: '0.25', description: EVIL, page: '/pay-me.html' },
    ...BAD_PAGES.map((page) => ({ method: 'GET', path: `/sold${page}`, price: '0.01', page })),
  ];
  const body = { slug: 'shop', code: HANDLER, paidRoutes };
  const deployed = await mppFetch(host.network, 0)(`${host.url}/_admin/deploy`, jsonPost(body));
  expect(deployed.status).toBe(201);
});
afterAll(async () => {
  await browser?.close();
  await host?.stop();
});
beforeEach(async () => {
  context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
});
afterEach(() => context.close());

async function get(path: string, headers: Record<string, string>) {
  const answer = await fetch(`${host.url}${path}`, { headers, redirect: 'manual' });
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

describe('problems', () => {
  test.each([
    ['an unknown slug, said by the edge', '/nobody-is-here/', 404],
    ['a path of the host, said by control', '/_admin/no/such', 404],
    ['a refused payment', '/shop/report', 402],
    ['an owner’s endpoint', '/_admin/shop/usage', 402],
  ])('%s: a page for a browser, and the same document as ever for all others', async (_what, path, status) => {
    const page = await get(path, { accept: BROWSER_ACCEPTS });
    expect(page.status).toBe(status);
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(page.headers.get('content-security-policy')).not.toContain('unsafe');
    expect(page.headers.get('x-content-type-options')).toBe('nosniff');
    expect(page.headers.get('cache-control')).toBe('no-store');
    expect(page.text).toContain(page.headers.get('x-request-id'));
    for (const accept of [
      '*/*',
      'application/json',
      'application/json, text/html',
      'text/html;q=0.5, application/json',
    ]) {
      const other = await get(path, { accept });
      expect(other.status, accept).toBe(status);
      expect(other.headers.get('content-type')).toMatch(/^application\/problem\+json/);
      expect(JSON.parse(other.text)).toMatchObject({ status, requestId: other.headers.get('x-request-id') });
      expect(other.headers.get('x-turnpike-own')).toBeNull();
      for (const name of ['allow', 'access-control-allow-origin'])
        expect(page.headers.get(name)).toBe(other.headers.get(name));
      for (const name of ['www-authenticate', 'payment-required'])
        expect(page.headers.has(name)).toBe(other.headers.has(name));
    }
  });

  test('look right, and are told apart from what a handler says of itself', async () => {
    const opened = await newPage(context);
    await opened.page.goto(`${host.url}/nobody-is-here/`);
    await lookAt(opened, 'not-found');
    const own = await get('/shop/problem', { accept: BROWSER_ACCEPTS });
    expect(own.text).toBe('{"status":402,"title":"mine"}');
    expect(own.headers.get('content-security-policy')).toContain('sandbox');
    const paid = await get('/shop/report', { accept: BROWSER_ACCEPTS });
    expect(paid.headers.get('content-security-policy')).not.toContain('sandbox');
  });
});

describe('the host’s own pages', () => {
  test('say what can be earned and bought, in the one look', async () => {
    const opened = await newPage(context);
    const { page } = opened;
    await page.goto(`${host.url}/`);
    const sold = page.getByRole('link', { name: 'GET /shop/report' });
    expect(await sold.getAttribute('href')).toBe('/shop/report');
    expect(await page.title()).toBe('Turnpike');
    await lookAt(opened, 'landing');
    await page.goto(`${host.url}/docs`);
    await lookAt(opened, 'docs');
  });

  test('the docs show one example at a time, and find what is searched for', async () => {
    const { page, complaints } = await newPage(context);
    await page.goto(`${host.url}/docs`);
    const deploy = page.locator('#post-deploy');
    expect(await deploy.locator('pre:visible').textContent()).toMatch(/^# Answers 402.*\ncurl -i -X POST/);
    await deploy.getByText('Python', { exact: true }).click();
    expect(await deploy.locator('pre:visible').textContent()).toContain('subprocess');
    await page.keyboard.press('Escape');
    await page.locator('h1').click();
    await page.keyboard.press('/');
    await page.keyboard.type('registrarToken');
    await expect.poll(() => page.getByRole('status').textContent()).toBe('1 place');
    expect(await page.locator('[data-find]:visible h3').allTextContents()).toEqual(['Attach a domain']);
    await page.getByRole('searchbox').fill('');
    expect(await page.locator('[data-find]:visible').count()).toBeGreaterThan(20);
    expect(complaints).toEqual([]);
  });
});

describe('the owner’s console, where tenants have a base domain', () => {
  test('is alone on an origin of its own, where a wallet signs in and pays', async () => {
    const home = `http://console.apps.localhost:${host.port}`;
    const owner = account(host.network, 0);
    await addWallet(context, host.network, owner);
    const opened = await newPage(context);
    const { page } = opened;
    await page.goto(`http://localhost:${host.port}/_admin/console#/s/shop`);
    expect(page.url()).toBe(`${home}/#/s/shop`);
    await page.getByRole('button', { name: 'Sign in with Test Wallet' }).click();
    await page.getByRole('heading', { level: 1, name: 'shop' }).waitFor();
    const before = (await balances(host.network, owner.address)).x402;
    await page.getByRole('button', { name: 'Renew for 0.20 USD' }).click();
    await expect.poll(async () => before - (await balances(host.network, owner.address)).x402).toBe(200_000n);
    await lookAt(opened, 'owner-own-origin');
    expect(await page.locator('a[href^="/"]').count()).toBe(0);

    // Nothing else of the host is here, and no tenant, by whatever way.
    const { page: hostile } = await newPage(context);
    const statusOf = async (path: string) => (await hostile.goto(`${home}${path}`))?.status();
    for (const path of ['/docs', '/shop/', '/llms.txt', '/openapi.json', '/console/'])
      expect([path, await statusOf(path)]).toEqual([path, 404]);
    const taken = await mppFetch(host.network, 0)(
      `${host.url}/_admin/deploy`,
      jsonPost({ slug: 'console', code: HANDLER }),
    );
    expect(taken.status).toBe(409);

    // A tenant beside it is of the same site, and gets no session.
    await hostile.goto(`http://shop.apps.localhost:${host.port}/`);
    const body = JSON.stringify({ address: owner.address });
    const tried = await hostile.evaluate<Record<string, unknown>>(`(async () => {
      const outcome = async (work) => { try { return await work(); } catch (error) { return error.name; } };
      document.cookie = 'turnpike-session={"token":"mine"}; domain=apps.localhost; path=/';
      const sent = (path, headers) => outcome(async () => (await fetch('${home}' + path, { method: 'POST', headers, body: ${JSON.stringify(body)} })).status);
      return {
        origin: self.origin,
        session: sessionStorage.length,
        json: await sent('/_admin/sign-in', { 'content-type': 'application/json' }),
        simple: await sent('/_admin/sign-in', {}),
        cookies: await outcome(async () => (await fetch('${home}/_admin/deployments', { credentials: 'include' })).status),
        bare: await outcome(async () => (await fetch('${home}/_admin/deployments')).status),
      };
    })()`);
    expect(tried).toEqual({
      origin: `http://shop.apps.localhost:${host.port}`,
      session: 0,
      json: 'TypeError',
      simple: 'TypeError',
      cookies: 'TypeError',
      bare: 402,
    });
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'shop' }).waitFor();
    expect(await page.evaluate('JSON.parse(sessionStorage.getItem("turnpike-session")).address')).toBe(owner.address);
  });
});

describe('a 402', () => {
  test('is paid with a wallet by keyboard alone, shows the answer, and is not paid twice', async () => {
    const payer = account(host.network, PAYER);
    const wallet = await addWallet(context, host.network, payer);
    wallet.chainId = 1;
    const opened = await newPage(context);
    const { page } = opened;
    const before = await balances(host.network, payer.address);
    await page.goto(`${host.url}/shop/report`);
    expect(await page.locator('h1').textContent()).toBe('The daily report');
    const button = page.getByRole('button', { name: 'Pay 0.25 USDC with Test Wallet' });
    await button.waitFor();
    await lookAt(opened, 'payment');
    for (let tabs = 0; tabs < 20 && !(await button.evaluate('document.activeElement.type === "button"')); tabs += 1)
      await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.locator('#answer').waitFor();
    expect(await page.locator('#answer').textContent()).toBe('The report');
    // Its script ran, on an origin of its own.
    expect(await page.locator('#answer').getAttribute('data-ran')).toBe('null');
    const first = await page.locator('p').textContent();
    expect(first).toBe('1 null');
    expect(wallet.asked).toEqual([
      'eth_requestAccounts',
      'eth_chainId',
      'wallet_switchEthereumChain',
      'wallet_addEthereumChain',
      'eth_chainId',
      'eth_call',
      'eth_signTypedData_v4',
    ]);
    await page.reload();
    expect(await page.locator('p').textContent()).toBe(first);
    const after = await balances(host.network, payer.address);
    expect(before.x402 - after.x402).toBe(250_000n);
    // Another resource below the same path is another purchase.
    await page.goto(`${host.url}/shop/report?of=yesterday`);
    await page.getByRole('button', { name: /^Pay 0.25/ }).waitFor();
  });

  test('shows what strangers wrote as text, and any kind of answer', async () => {
    await addWallet(context, host.network, account(host.network, PAYER));
    const opened = await newPage(context);
    const { page } = opened;
    await page.goto(`${host.url}/shop/data?${encodeURI(EVIL)}`);
    expect(await page.locator('h1').textContent()).toBe(EVIL.trim());
    expect(await page.title()).not.toMatch(/^[12]$/);
    expect(opened.complaints).toEqual([]);
    await page.getByRole('button', { name: /^Pay/ }).click();
    await expect.poll(() => page.locator('body').textContent()).toMatch(/\{"calls":\d+\}/);
  });

  test('says plainly what went wrong, and takes nothing', async () => {
    const payer = account(host.network, PAYER);
    const wallet = await addWallet(context, host.network, payer);
    const { page } = await newPage(context);
    const before = await balances(host.network, payer.address);
    await page.goto(`${host.url}/shop/report?again`);
    const pay = page.getByRole('button', { name: /^Pay/ });
    const status = page.getByRole('status');
    wallet.instead = (method) => {
      if (method === 'eth_signTypedData_v4') throw Object.assign(new Error('no'), { code: 4001 });
      return undefined;
    };
    await pay.click();
    await expect.poll(() => status.textContent()).toContain('You declined');
    wallet.instead = (method) => (method === 'eth_call' ? `0x${'0'.repeat(63)}1` : undefined);
    await pay.click();
    await expect.poll(() => status.textContent()).toContain('has 0.000001 USDC; this costs 0.25 USDC');
    // A signature for nothing that was asked: the host refuses it, and the page says so.
    wallet.instead = (method) => (method === 'eth_signTypedData_v4' ? `0x${'11'.repeat(65)}` : undefined);
    await pay.click();
    await page.locator('.note.bad').waitFor();
    expect(await page.getByRole('alert').textContent()).toMatch(/signature|payment/i);
    await pay.waitFor();
    // Work that fails is not charged.
    wallet.instead = () => undefined;
    await page.goto(`${host.url}/shop/fails`);
    await pay.click();
    await expect.poll(() => page.locator('body').textContent()).toContain('broken');
    expect((await balances(host.network, payer.address)).x402).toBe(before.x402);
  });

  test('without a wallet, or where none can sign, says how to pay from a terminal', async () => {
    const { page } = await newPage(context);
    await page.goto(`${host.url}/shop/report`);
    await expect.poll(() => page.getByRole('status').textContent()).toContain('No wallet was found');
    // What changes something is no page that is loaded again.
    const posted = await fetch(`${host.url}/_admin/deploy`, {
      ...jsonPost({ slug: 'paid', code: HANDLER }),
      headers: { accept: BROWSER_ACCEPTS, 'content-type': 'application/json' },
    });
    expect(await posted.text()).not.toMatch(/<script|data-pay/);
  });

  test('of a metered route is paid by what was used', async () => {
    const payer = account(host.network, PAYER);
    const wallet = await addWallet(context, host.network, payer);
    const opened = await newPage(context);
    const { page } = opened;
    const before = (await balances(host.network, payer.address)).x402;
    const spent = async () => before - (await balances(host.network, payer.address)).x402;
    await page.goto(`${host.url}/shop/used`);
    expect(await page.locator('main').textContent()).toMatch(/at most\s+0\.05 USD/);
    expect(await page.locator('main').textContent()).toContain(`turnpike pay '${host.url}/shop/used' --max-pay 0.05`);
    const pay = page.getByRole('button', { name: 'Pay at most 0.05 USDC with Test Wallet' });
    await pay.waitFor();
    await lookAt(opened, 'payment-metered');
    await pay.click();
    await expect.poll(() => page.locator('body').textContent()).toBe('used a little');
    await expect.poll(spent).toBe(20_000n);
    expect(wallet.asked).not.toContain('eth_sendTransaction');
    await page.reload();
    expect(await page.locator('body').textContent()).toBe('used a little');
  });
});

describe('a tenant’s own page of a 402', () => {
  const shop = () => `http://shop.apps.localhost:${host.port}`;
  const ask = (url: string, accept: string) => curl(url, { headers: { accept } });

  test('is shown on its own origin, and sells by the host’s card alone', async () => {
    const payer = account(host.network, PAYER);
    await addWallet(context, host.network, payer);
    const opened = await newPage(context);
    const { page, complaints } = opened;
    const before = (await balances(host.network, payer.address)).x402;
    await page.goto(`${shop()}/own/report;x{}"'?of=today`);
    expect(await page.locator('h1').textContent()).toBe(EVIL.trim());
    expect(await page.locator('#facts').textContent()).toMatch(
      /^0\.25 USD for \/own\/report%3Bx%7B%7D%22%27, \{\{unknown\}\}$/i,
    );
    const pay = page.getByRole('button', { name: 'Pay 0.25 USDC with Test Wallet' });
    await pay.waitFor();
    // The page's own card is dead, and so is its script; its style stays outside of the host's.
    expect(await page.locator('#wallet-list').first().textContent()).toBe('');
    expect(await page.title()).toBe('The shop');
    expect(complaints.filter((each) => !/Content Security Policy/.test(each))).toEqual([]);
    complaints.length = 0;
    await lookAt(opened, 'payment-own');
    await pay.click();
    await expect.poll(() => page.locator('body').textContent()).toBe('free');
    expect(before - (await balances(host.network, payer.address)).x402).toBe(250_000n);
    expect(await page.context().cookies()).toEqual([expect.objectContaining({ name: 'turnpike-payment' })]);
  });

  test('changes nothing but the body, and nothing for programs', async () => {
    const own = await ask(`${shop()}/own/a`, BROWSER_ACCEPTS);
    const document = await ask(`${shop()}/own/a`, 'application/json');
    expect(own.status).toBe(402);
    expect(own.body).toContain('<title>The shop</title>');
    for (const name of ['set-cookie', 'refresh', 'location']) expect(own.headers.has(name), name).toBe(false);
    expect(own.headers.get('content-security-policy')).toMatch(/script-src 'nonce-[\w+/=]{24}'; form-action 'none'/);
    expect(own.headers.get('cache-control')).toBe('no-store');
    expect(requiredBesideNonces(own)).toEqual(requiredBesideNonces(document));
    expect(document.headers.get('content-type')).toBe('application/problem+json');
    const again = await ask(`${shop()}/own/a`, BROWSER_ACCEPTS);
    const nonceOf = ({ headers }: typeof own) => /nonce-[^']+/.exec(headers.get('content-security-policy') ?? '')?.[0];
    expect(nonceOf(again)).not.toBe(nonceOf(own));
    // Below the host's own address tenants share an origin.
    const shared = await ask(`${host.url}/shop/own/a`, BROWSER_ACCEPTS);
    expect(shared.body).not.toContain('The shop');
    expect(shared.body).toContain('data-pay');
  });

  test('is a static file as well, and is shown at a domain of the tenant', async () => {
    const owner = mppFetch(host.network, 0);
    const page = '<!doctype html><title>From a file</title><turnpike-payment></turnpike-payment>';
    const hash = sha256(page);
    const paidRoutes = [{ path: '/v1/*', price: '0.01', page: '/pay/' }];
    await deploy(owner, host.url, { slug: 'filed', code: HANDLER, paidRoutes });
    const session = (await (await owner(`${host.url}/_admin/session/filed`, { method: 'POST' })).json()) as {
      token: string;
    };
    const headers = { authorization: `Bearer ${session.token}`, 'content-type': 'application/json' };
    const kept = await fetch(`${host.url}/_admin/filed/assets/${hash}`, { method: 'PUT', headers, body: page });
    expect(kept.status).toBe(201);
    const assets = { files: { '/pay/index.html': hash } };
    const updated = await fetch(`${host.url}/_admin/code/filed`, { ...jsonPut({ assets }), headers });
    expect([updated.status, await updated.text()]).toEqual([200, expect.any(String)]);
    const named = { domain: 'filed.test', registrarToken: REGISTRAR };
    expect((await fetch(`${host.url}/_admin/filed/domains`, jsonPost(named))).status).toBe(202);
    for (const origin of ['filed.apps.localhost', 'filed.test']) {
      const url = `http://${origin}:${host.port}/v1/a`;
      const shown = await until(async () => {
        const answer = await ask(url, BROWSER_ACCEPTS);
        return answer.status === 402 ? answer : undefined;
      });
      expect(shown.body, origin).toContain('<title>From a file</title>');
      expect(shown.body, origin).toContain('data-pay');
      expect((await ask(url, '*/*')).headers.get('content-type')).toBe('application/problem+json');
      // The page itself costs nothing.
      expect(await ask(`http://${origin}:${host.port}/pay/`, BROWSER_ACCEPTS)).toMatchObject({
        status: 200,
        body: page,
      });
    }
  });

  test('that is none gives way to the host’s', async () => {
    const from = performance.now();
    // A tenant is asked for few at once.
    const asked = (pages: string[]) => Promise.all(pages.map((page) => ask(`${shop()}/sold${page}`, BROWSER_ACCEPTS)));
    const answers = [
      ...(await asked(BAD_PAGES.slice(0, 4))),
      ...(await asked(BAD_PAGES.slice(4, 7))),
      ...(await asked(BAD_PAGES.slice(7))),
    ];
    const slow = performance.now() - from;
    for (const [index, { status, body, headers }] of answers.entries()) {
      expect([BAD_PAGES[index], status]).toEqual([BAD_PAGES[index], 402]);
      expect(body, BAD_PAGES[index]).toContain('<main id="main"');
      expect(body).not.toContain('turnpike-payment></');
      expect(headers.has('set-cookie')).toBe(false);
    }
    expectTime('eight pages that are none', slow, 10_000);
    const logged = await (await mppFetch(host.network, 0)(`${host.url}/_admin/shop/logs`)).text();
    for (const page of BAD_PAGES) expect(logged).toContain(`the payment page ${page} is not shown: `);
  });
});
