/**
 * The owner's console in a real browser, with a wallet in it that signs with the key of a test wallet: all that an owner
 * does there, what strangers write, and what a hostile tenant on the same origin tries.
 * Set TURNPIKE_SCREENSHOTS to a folder to keep pictures.
 */
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { account, balances, deploy, jsonPost, jsonPut, mandateFetch, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import {
  addWallet,
  lookAt,
  newPage,
  type Opened,
  openBrowser,
  type PageWallet,
  patientPage,
} from './support/page-browser.ts';

const EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
/** What it keeps has hostile names and contents. */
const NOTES = `const EVIL = ${JSON.stringify(EVIL)};
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === '/fill') {
      await env.STORE.put(EVIL, EVIL, { metadata: { of: EVIL } });
      for (let n = 0; n < 120; n += 1) await env.STORE.put('key-' + String(n).padStart(3, '0'), 'value ' + n);
      await env.BUCKET.put('folder/' + EVIL, EVIL, { httpMetadata: { contentType: 'text/html' } });
      await env.BUCKET.put('raw.bin', new Uint8Array([0, 1, 2, 255]));
      await env.DB.batch([
        env.DB.prepare('CREATE TABLE "no""tes" (id INTEGER PRIMARY KEY, text TEXT, done INTEGER)'),
        env.DB.prepare('INSERT INTO "no""tes" (text, done) VALUES (?, NULL), (?, 1)').bind(EVIL, 'milk'),
      ]);
    }
    console.log(EVIL, pathname);
    if (pathname === '/fails') throw new Error(EVIL);
    return new Response('first ' + (env.TOKEN ?? 'none'));
  },
}`;
/** A tenant on a path address that goes for the console. */
const HOSTILE = `export default { fetch(request) {
  const { pathname } = new URL(request.url);
  if (pathname === '/x.js') return new Response('document.title = "taken"', { headers: { 'content-type': 'text/javascript' } });
  return new Response('<!doctype html><title>Hostile</title><h1>Hostile</h1>', { headers: { 'content-type': 'text/html' } });
} }`;
const OWNER = 1;
const OTHER = 2;

let host: TestHost;
let browser: Browser;
/** Public origin: what wallets are asked to sign for. */
let home: string;
let context: BrowserContext;
let opened: Opened;
let page: Page;
let wallet: PageWallet;
const done: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  [host, browser] = await Promise.all([startHost(), openBrowser()]);
  home = `http://localhost:${host.port}`;
  const pay = (index: number) => mppFetch(host.network, index);
  await Promise.all([
    deploy(pay(OWNER), host.url, {
      slug: 'notes',
      code: NOTES,
      bindings: { kv: true, d1: true, r2: true },
      secrets: { OLD_TOKEN: 'hidden' },
      paidRoutes: [{ method: 'GET', path: '/paid', price: '0.05', description: EVIL }],
    }),
    deploy(pay(OTHER), host.url, { slug: 'hostile', code: HOSTILE }),
  ]);
  await fetch(`${host.url}/notes/fill`);
  const paid = await pay(OTHER)(`${host.url}/notes/paid`);
  expect(paid.status).toBe(200);
  context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
  wallet = await addWallet(context, host.network, account(host.network, OWNER));
  opened = await newPage(context);
  page = opened.page;
  page.on('dialog', (dialog) => void dialog.accept());
});
afterAll(async () => {
  await browser?.close();
  await host?.stop();
});
afterEach(async () => {
  for (const end of done.splice(0)) await end();
  expect(await page.title()).not.toMatch(/^[12]$|taken/);
});

const button = (name: string | RegExp) => page.getByRole('button', { name });
const goTo = async (hash: string, heading: string | RegExp) => {
  await page.goto(`${home}/_admin/console${hash}`);
  await page.getByRole('heading', { level: 1, name: heading }).waitFor();
};
const signIn = async () => {
  await goTo('', /Sign in|Your deployments/);
  if ((await button('Sign out').count()) > 0) return;
  await button('Sign in with Test Wallet').click();
  await page.getByRole('heading', { name: 'Your deployments' }).waitFor();
};

describe('the console', () => {
  test('signs in with a wallet by keyboard alone, and shows what it owns', async () => {
    await goTo('', 'Sign in');
    await button('Sign in with Test Wallet').waitFor();
    await lookAt(opened, 'owner-sign-in');
    for (let tabs = 0; tabs < 30 && !/^Sign in with/.test(await focus()); tabs += 1) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Your deployments' }).waitFor();
    expect(await focus()).toBe('Your deployments');
    const row = page.getByRole('row', { name: /notes/ });
    await row.waitFor();
    expect(await row.textContent()).toContain('active');
    expect(await row.textContent()).toContain('0.05 USD');
    expect(await page.locator('main').textContent()).not.toContain('hostile');
    await lookAt(opened, 'owner-list');
    // It outlives the page, and ends with the tab.
    await page.reload();
    await page.getByRole('heading', { name: 'Your deployments' }).waitFor();
  });

  test('deploys a dropped file, paid by the wallet, and renews', async () => {
    await signIn();
    const before = await balances(host.network, owner().address);
    await goTo('#/deploy', 'Deploy');
    await lookAt(opened, 'owner-deploy');
    await drop({ 'hello.ts': 'export default { fetch: (): Response => new Response("dropped") }' });
    await page.getByText('1 file').waitFor();
    await page.getByLabel(/^Slug/).fill('dropped');
    await page.getByLabel(/^Secrets/).fill('GREETING=hello\nEMPTY=');
    wallet.instead = (method) => {
      if (method === 'eth_signTypedData_v4') throw Object.assign(new Error('no'), { code: 4001 });
      return undefined;
    };
    await button('Deploy for 0.20 USD').click();
    await page.getByRole('alert').filter({ hasText: 'You declined' }).waitFor();
    wallet.instead = () => undefined;
    await button('Deploy for 0.20 USD').click();
    await page.getByRole('heading', { level: 1, name: 'dropped' }).waitFor();
    expect(await (await fetch(`${host.url}/dropped/`)).text()).toBe('dropped');
    const ends = async () => ((await metadata('dropped')) as { expiresAt: string }).expiresAt;
    const first = Date.parse(await ends());
    await button('Renew for 0.20 USD').click();
    await expect.poll(async () => Date.parse(await ends())).toBe(first + 30 * 86_400_000);
    const after = await balances(host.network, owner().address);
    expect(before.x402 - after.x402).toBe(400_000n);
    // What the wallet has signed elsewhere is seen here, and ended.
    await page.getByText('turnpike renew dropped --auto').waitFor();
    const auto = `${host.url}/_admin/renew/dropped/auto`;
    expect((await mandateFetch(host.network, OWNER)(auto, { method: 'POST' })).status).toBe(200);
    await goTo('#/', 'Your deployments');
    await goTo('#/s/dropped', 'dropped');
    await page.getByText('Renews by itself until').waitFor();
    await button('Renew by hand').click();
    await page.getByText('turnpike renew dropped --auto').waitFor();
    // What the host refuses costs nothing, and says where.
    await goTo('#/deploy', 'Deploy');
    await drop({
      'index.ts': 'import { a } from "./lib.ts"; export default { fetch: () => new Response(a }',
      'lib.ts': 'export const a = 1',
    });
    await page.getByText('2 files').waitFor();
    await page.getByLabel(/^Slug/).fill('broken');
    await button('Deploy for 0.20 USD').click();
    await page.getByRole('alert').filter({ hasText: 'index.ts:1' }).waitFor();
    expect((await balances(host.network, owner().address)).x402).toBe(after.x402);
  });

  test('a folder of modules, a preview, an update and the way back', async () => {
    await signIn();
    await goTo('#/s/dropped/code', 'dropped: code');
    const next = (text: string) => ({
      'index.js': "import { text } from './lib/text.js'; export default { fetch: () => new Response(text) }",
      'lib/text.js': `export const text = ${JSON.stringify(text)}`,
    });
    await drop(next('second'), 'project/');
    await page.getByText('2 files').waitFor();
    await page.getByLabel(/As a preview/).check();
    await button('Update').click();
    const preview = page.getByRole('row', { name: /^2 / }).getByRole('link');
    await preview.waitFor();
    expect(
      await (await fetch(((await preview.getAttribute('href')) ?? '').replace('localhost', '127.0.0.1'))).text(),
    ).toBe('second');
    expect(await (await fetch(`${host.url}/dropped/`)).text()).toBe('dropped');
    await drop(next('third'), 'project/');
    await page.getByText('2 files').waitFor();
    await button('Update').click();
    await page.getByRole('row', { name: /^3 live/ }).waitFor();
    expect(await (await fetch(`${host.url}/dropped/`)).text()).toBe('third');
    await lookAt(opened, 'owner-code');
    await button('Roll back to version 1').click();
    await page.getByRole('row', { name: /^4 live/ }).waitFor();
    expect(await (await fetch(`${host.url}/dropped/`)).text()).toBe('dropped');
  });

  test('shows one slug, and what strangers wrote as text', async () => {
    await signIn();
    await page.getByRole('link', { name: 'notes' }).click();
    await page.getByRole('heading', { level: 1, name: 'notes' }).waitFor();
    await page.getByRole('heading', { name: 'What it charges for' }).waitFor();
    await lookAt(opened, 'owner-overview');

    await goTo('#/s/notes/secrets', 'notes: secrets');
    await page.getByText('OLD_TOKEN').waitFor();
    await page.getByLabel(/^Name/).fill('TOKEN');
    await page.getByLabel(/^Value/).fill('hush');
    await button('Set').click();
    await button('Remove TOKEN').waitFor();
    expect(await (await fetch(`${host.url}/notes/`)).text()).toBe('first hush');
    await lookAt(opened, 'owner-secrets');
    await button('Remove OLD_TOKEN').click();
    await expect.poll(() => button('Remove OLD_TOKEN').count()).toBe(0);
    expect(await page.locator('main').textContent()).not.toContain('hush');

    await goTo('#/s/notes/logs', 'notes: logs');
    await page.getByText('Live.').waitFor();
    await fetch(`${host.url}/notes/live-line`);
    await page
      .locator('.log')
      .getByText(/GET \/live-line 200/)
      .waitFor();
    await fetch(`${host.url}/notes/fails`);
    await page.locator('.log .bad').first().waitFor();
    expect(await page.locator('.log').textContent()).toContain(EVIL);
    await lookAt(opened, 'owner-logs');
    await page.getByLabel('Show lines with').fill('live-line');
    await expect.poll(() => page.locator('.log > div:visible').count()).toBe(2);

    await goTo('#/s/notes/usage', 'notes: usage');
    await page.getByRole('cell', { name: 'GET /paid' }).waitFor();
    const [csv] = await Promise.all([page.waitForEvent('download'), button('Payments as CSV').click()]);
    expect(csv.suggestedFilename()).toBe('notes-payments.csv');
    await lookAt(opened, 'owner-usage');

    await goTo('#/s/notes/domains', 'notes: domains');
    await page.getByLabel(/^Name/).fill('api.example.com');
    await button('Attach').click();
    await page.getByRole('heading', { name: 'api.example.com' }).waitFor();
    expect(await page.getByRole('table').textContent()).toMatch(/CNAME.*TXT/);
    await lookAt(opened, 'owner-domains');
    await button('Detach api.example.com').click();
    await page.getByText('It has no domain').waitFor();

    await goTo('#/s/notes/crons', 'notes: crons');
    await page.getByText('It has not run yet.').waitFor();
    await lookAt(opened, 'owner-crons');
    expect(
      await page
        .locator('main *')
        .evaluateAll((all) => all.filter((one) => /^(?:IMG|SCRIPT|IFRAME)$/.test(one.tagName)).length),
    ).toBe(0);
  });

  test('looks into D1, KV and R2', async () => {
    await signIn();
    await goTo('#/s/notes/data/DB', 'notes: data');
    await button('no"tes').click();
    await page.getByRole('cell', { name: 'milk' }).waitFor();
    expect(await page.getByRole('cell', { name: EVIL }).count()).toBe(1);
    await lookAt(opened, 'owner-d1');
    await page.getByLabel(/^SQL for DB/).fill('SELECT 1 FROM nowhere');
    await button('Run').click();
    await page.getByRole('alert').filter({ hasText: 'nowhere' }).waitFor();

    await goTo('#/s/notes/data/STORE', 'notes: data');
    await button(`View ${EVIL}`).click();
    await expect.poll(() => page.locator('pre').textContent()).toBe(EVIL);
    expect(await page.locator('dl').textContent()).toContain(EVIL);
    expect(await page.getByRole('row').count()).toBe(101);
    await button('More').click();
    await expect.poll(() => page.getByRole('row').count()).toBe(122);
    await page.getByLabel('Keys that begin with').fill('key-00');
    await button('Show').click();
    await expect.poll(() => page.getByRole('row').count()).toBe(11);
    await lookAt(opened, 'owner-kv');
    await page.locator('summary').press('Enter');
    await page.getByLabel('Key', { exact: true }).fill('key-00x');
    await page.getByLabel('Value', { exact: true }).fill('by hand');
    await button('Set').click();
    await button('View key-00x').click();
    await expect.poll(() => page.locator('pre').textContent()).toBe('by hand');
    await button('Delete key-00x').click();
    await expect.poll(() => page.getByRole('row').count()).toBe(11);

    await goTo('#/s/notes/data/BUCKET', 'notes: data');
    await button(`View folder/${EVIL}`).click();
    await expect.poll(() => page.locator('pre').textContent()).toBe(EVIL);
    await lookAt(opened, 'owner-r2');
    const [saved] = await Promise.all([page.waitForEvent('download'), button('Download raw.bin').click()]);
    expect(saved.suggestedFilename()).toBe('raw.bin');
    await page.locator('summary').press('Enter');
    await page
      .getByLabel('File', { exact: true })
      .setInputFiles({ name: 'up.txt', mimeType: 'text/plain', buffer: Buffer.from('up') });
    await button('Store').click();
    await button('Delete up.txt').click();
    await expect.poll(() => button('Delete up.txt').count()).toBe(0);
  });
});

describe('a session', () => {
  test('is of one wallet, moves no money, and ends', async () => {
    await signIn();
    const token = await page.evaluate<string>('JSON.parse(sessionStorage.getItem("turnpike-session")).token');
    const as = (of: string, method: string, path: string, body?: unknown) =>
      fetch(`${host.url}${path}`, {
        ...(body ? jsonPut(body) : {}),
        method,
        headers: { authorization: `Bearer ${of}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      });
    expect((await as(token, 'GET', '/_admin/notes/usage')).status).toBe(200);
    expect((await as(token, 'GET', '/_admin/hostile/usage')).status).toBe(403);
    for (const change of [{ payTo: `0x${'1'.repeat(40)}` }, { paidRoutes: [] }, { bindings: { payments: true } }]) {
      const refused = await as(token, 'PUT', '/_admin/code/notes', change);
      expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([403, 'forbidden']);
    }
    expect((await as(token, 'PUT', '/_admin/code/notes', { vars: { A: 'a' } })).status).toBe(200);
    expect((await as(token, 'POST', '/_admin/renew/notes')).status).toBe(402);
    expect(
      (await as(token, 'POST', '/_admin/keys', { slugs: 'all', actions: ['update'], until: '2027-01-01T00:00:00Z' }))
        .status,
    ).toBe(402);
    expect((await as(token, 'POST', '/_admin/session/notes')).status).toBe(403);
    // Another wallet does not pay for it.
    await goTo('#/s/notes', 'notes');
    wallet.instead = (method) =>
      method === 'eth_requestAccounts' ? [account(host.network, OTHER).address] : undefined;
    await button('Renew for 0.20 USD').click();
    await page.getByRole('alert').filter({ hasText: 'you are signed in as' }).waitFor();
    wallet.instead = () => undefined;
    await button('Sign out').click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await expect.poll(async () => (await as(token, 'GET', '/_admin/notes/usage')).status).toBe(401);
    expect(await page.evaluate('JSON.stringify(sessionStorage)')).toBe('{}');
  });

  test('a token of one slug signs in to that one', async () => {
    const answer = await mppFetch(host.network, OWNER)(`${host.url}/_admin/session/notes`, { method: 'POST' });
    const { token } = (await answer.json()) as { token: string };
    await goTo('', 'Sign in');
    await page.getByLabel(/^Token/).fill('owner_nothing');
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.getByRole('alert').filter({ hasText: 'invalid or expired' }).waitFor();
    await page.getByLabel(/^Token/).fill(token);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.getByRole('link', { name: 'notes' }).waitFor();
    expect(await page.getByRole('link', { name: 'dropped' }).count()).toBe(0);
    await button('Sign out').click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });
});

describe('a hostile tenant on the same origin', () => {
  test('reaches neither the session nor the page', async () => {
    await signIn();
    const hostile = await patientPage(context);
    done.push(() => hostile.close());
    const refusals: string[] = [];
    hostile.on('console', (message) => refusals.push(message.text()));
    await hostile.goto(`${home}/hostile/`);
    const tried = await hostile.evaluate<Record<string, unknown>>(`(async () => {
      const outcome = async (work) => { try { return await work(); } catch (error) { return error.name; } };
      const fetched = (path, init) => outcome(async () => (await fetch(path, init)).status);
      const framed = outcome(() => new Promise((resolve) => {
        const frame = document.createElement('iframe');
        frame.src = ${JSON.stringify('/_admin/console')};
        frame.onload = () => resolve(String(frame.contentDocument));
        document.body.append(frame);
      }));
      return {
        origin: self.origin,
        session: await outcome(() => sessionStorage.length),
        local: await outcome(() => localStorage.length),
        cookie: await outcome(() => document.cookie),
        deployments: await fetched('${home}/_admin/deployments'),
        withCookies: await fetched('${home}/_admin/deployments', { credentials: 'include' }),
        signIn: await fetched('${home}/_admin/sign-in', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"address":"0x${'1'.repeat(40)}"}' }),
        simple: await fetched('${home}/_admin/sign-in', { method: 'POST', body: '{"address":"0x${'1'.repeat(40)}"}' }),
        worker: await outcome(() => navigator.serviceWorker.register('/hostile/x.js')),
        frame: await framed,
      };
    })()`);
    expect(tried).toEqual({
      origin: 'null',
      session: 'SecurityError',
      local: 'SecurityError',
      cookie: 'SecurityError',
      deployments: 402,
      withCookies: 'TypeError',
      signIn: 'TypeError',
      simple: 'TypeError',
      worker: expect.stringMatching(/Error$/),
      frame: 'null',
    });

    expect(refusals.join()).toMatch(/frame-ancestors 'none'/);

    const [popup] = await Promise.all([
      context.waitForEvent('page'),
      hostile.evaluate("void (self.opened = open('/_admin/console'))"),
    ]);
    await popup.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await popup.evaluate('opener')).toBeNull();
    expect(await hostile.evaluate('opened.closed')).toBe(true);
    // Its files are no scripts of the console, whoever asks for them.
    const taken = `new Promise((resolve) => { const script = document.createElement('script'); script.onload = () => resolve('ran'); script.onerror = () => resolve('refused'); try { script.src = '${home}/hostile/x.js'; } catch (error) { resolve(error.name); } document.head.append(script); })`;
    expect(await popup.evaluate(taken)).toBe('TypeError');
    await expect(popup.evaluate('document.body.innerHTML = "<b>"')).rejects.toThrow('TrustedHTML');
    expect((await fetch(`${home}/hostile/x.js`, { headers: { 'service-worker': 'script' } })).status).toBe(403);
  });

  test.each([
    ['another origin', { origin: 'https://evil.example' }],
    ['a sandboxed page', { origin: 'null' }],
    ['another site', { 'sec-fetch-site': 'same-site' }],
  ])('nobody signs in from %s', async (_what, headers) => {
    for (const path of ['/_admin/sign-in', '/_admin/session']) {
      const answer = await fetch(
        `${host.url}${path}`,
        jsonPost({ address: `0x${'1'.repeat(40)}` }, headers as Record<string, string>),
      );
      expect(answer.status).toBe(403);
      expect(answer.headers.get('access-control-allow-origin')).toBe(home);
    }
  });
});

const owner = () => account(host.network, OWNER);
const focus = () => page.evaluate<string>('document.activeElement.textContent');
const metadata = async (slug: string) => (await fetch(`${host.url}/_admin/get/${slug}`)).json();

/** Drops files as if from a folder of the person. */
async function drop(files: Record<string, string>, folder = ''): Promise<void> {
  const dataTransfer = await page.evaluateHandle(
    `(() => { const all = new DataTransfer(); for (const [name, text] of Object.entries(${JSON.stringify(files)})) { const file = new File([text], name.split('/').pop()); Object.defineProperty(file, 'name', { value: ${JSON.stringify(folder)} + name }); all.items.add(file); } return all; })()`,
  );
  await page.dispatchEvent('.drop', 'drop', { dataTransfer });
}
