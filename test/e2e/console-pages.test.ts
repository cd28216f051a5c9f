/**
 * The operator's console in a real browser, on the real host: log-in by the printed link, every page in both colours and
 * three widths, by keyboard, and what strangers, other pages, stolen cookies and hostile texts come to. Set
 * TURNPIKE_SCREENSHOTS to a folder to keep pictures.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { expectTime } from '../times.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { COLOURS, openBrowser, patientPage, tabThrough } from './support/page-browser.ts';
import { seedDeployments } from './support/seed.ts';
import { until } from './support/until.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const EVIL = '"><script>window.pwned=1</script><img src=x onerror=window.pwned=1>';
const PAGES = [
  '',
  'tenants',
  'tenants/hello',
  'money',
  'services',
  'domains',
  'backups',
  'blocks',
  'audit',
  'settings',
];
const HANDLER = `export default { fetch(request) {
  if (new URL(request.url).pathname === '/fail') throw new Error(${JSON.stringify(EVIL)});
  console.log(${JSON.stringify(EVIL)});
  return new Response('hi');
} }`;

let host: TestHost;
let folder: string;
let base: string;
let token: string;
let browser: Browser;
let context: BrowserContext;
let page: Page;
/** What the browser complained about, and requests that left the console. */
let complaints: string[];

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-console-'));
  const passphrase = path.join(folder, 'passphrase');
  writeFileSync(passphrase, 'a long enough passphrase', { mode: 0o600 });
  host = await startHost({
    builtins: ['pay'],
    flags: {
      'backup-target': path.join(folder, 'backups'),
      'backup-passphrase-file': passphrase,
      'mail-from': `${EVIL}@example.test`,
    },
    env: { TURNPIKE_STORAGE_SQL_TOKEN: 'never-shown-1' },
  });
  base = `http://127.0.0.1:${host.adminPort}/console`;
  token = /op_[\w-]+/.exec(host.output())?.[0] ?? '';
  browser = await openBrowser();
  const route = { method: 'GET', path: '/paid', price: '0.05', mode: 'fixed' };
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'hello',
    code: HANDLER,
    secrets: { HIDDEN: 'never-shown-2' },
    paidRoutes: [route],
  });
  await seedDeployments(host.data, 'hello', 5_000);
  await mppFetch(host.network, 1)(`${host.url}/hello/paid`);
  await fetch(`${host.url}/hello/fail`);
  await host.operator('PUT', '/tenants/hello/note', { note: EVIL });
  await host.operator('POST', '/blocks', { subject: '198.51.100.0/24', reason: EVIL });
  await host.operator('POST', '/backup', {});
});
afterAll(async () => {
  await browser?.close();
  await host?.stop();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  complaints = [];
  context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  page = await patientPage(context);
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith('data:')) complaints.push(request.url());
  });
});
afterEach(() => context.close());

async function logIn(role: 'operator' | 'reader' = 'operator'): Promise<void> {
  const { json } = await host.operator('POST', '/console-links', { role });
  await page.goto((json as { url: string }).url);
  await page.waitForURL(base);
}

async function picture(name: string): Promise<void> {
  const kept = process.env.TURNPIKE_SCREENSHOTS;
  if (kept) await page.screenshot({ path: path.join(kept, `${name}.png`), fullPage: true });
}

/** @param options of axe */
async function violations(options: object = {}): Promise<string[]> {
  if (await page.evaluate("typeof axe === 'undefined'")) await page.evaluate(AXE);
  const { violations: found } = (await page.evaluate(
    `axe.run({ exclude: [['.scroll tr:nth-child(n + 4)']] }, ${JSON.stringify(options)})`,
  )) as {
    violations: { id: string; nodes: { html: string }[] }[];
  };
  return found.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
}

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
}

/** Without a browser, which would not lie about where a form came from. */
function send(
  method: string,
  at: string,
  headers: Record<string, string>,
  form?: Record<string, string>,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      { port: host.adminPort, host: '127.0.0.1', method, path: at, agent: false },
      (response) => {
        const pieces: Buffer[] = [];
        response.on('data', (piece: Buffer) => pieces.push(piece));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text: Buffer.concat(pieces).toString(),
          }),
        );
      },
    );
    for (const [name, value] of Object.entries(headers)) request.setHeader(name, value);
    if (form) request.setHeader('content-type', 'application/x-www-form-urlencoded');
    request.on('error', reject);
    request.end(form === undefined ? undefined : new URLSearchParams(form).toString());
  });
}

const own = () => ({ origin: new URL(base).origin });

/** The cookie of a new session, and the word in its forms. */
async function session(given = token): Promise<{ cookie: string; csrf: string }> {
  const answer = await send('POST', '/console/log-in', own(), { token: given });
  const cookie = answer.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
  const { text } = await send('GET', '/console', { cookie });
  return { cookie, csrf: /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? '' };
}

const act = (
  who: { cookie: string; csrf: string },
  fields: Record<string, string>,
  headers: Record<string, string> = {},
) => send('POST', '/console/act', { ...own(), cookie: who.cookie, ...headers }, { csrf: who.csrf, ...fields });

test('the link of the first start logs in, once, and leaves nothing behind', async () => {
  const link = /http:\S+#once_\S+/.exec(host.output())?.[0] ?? '';
  await page.goto(link);
  await page.waitForURL(base);
  expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe('Overview');
  expect(await page.evaluate('document.cookie')).toBe('');
  const [cookie] = await context.cookies(base);
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict', path: '/console' });
  await page.goBack();
  expect(page.url()).not.toContain('once_');
  await context.clearCookies();
  const again = page.waitForResponse((response) => response.request().method() === 'POST');
  await page.goto(link);
  expect((await again).status()).toBe(401);
  expect(complaints).toEqual([expect.stringContaining('401')]);
});

test('every page fits, is accessible, runs nothing of strangers and answers quickly with 5,000 tenants', async () => {
  await page.goto(`${base}/log-in`);
  expect(await violations()).toEqual([]);
  await picture('log-in-1280-light');
  await logIn();
  const faults: string[] = [];
  for (const place of PAGES) {
    const name = place.replace('/', '-') || 'overview';
    const at = place === '' ? base : `${base}/${place}`;
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize({ width: 390, height: 800 });
    const answer = await page.goto(at);
    expect([place, answer?.status()]).toEqual([place, 200]);
    const { responseEnd, requestStart } = answer?.request().timing() ?? { responseEnd: 0, requestStart: 0 };
    expectTime(`the page ${name} with 5,000 tenants`, responseEnd - requestStart, 200);
    // What is folded has to fit, too.
    await page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true");
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const width of [390, 1280, 1920]) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await page.evaluate('document.documentElement.scrollWidth');
        if (Number(wide) > width) faults.push(`${name} at ${width}: ${wide} wide`);
        const isLooked = colorScheme === 'light' ? width === 390 : width === 1280;
        const found = isLooked ? await violations(colorScheme === 'light' ? {} : COLOURS) : [];
        faults.push(...found.map((one) => `${name} at ${width}, ${colorScheme}: ${one}`));
        await picture(`${name}-${width}-${colorScheme}`);
      }
    }
    await tabThrough(page, name);
    expect(await page.evaluate('window.pwned')).toBeUndefined();
    expect(await page.content()).not.toContain('never-shown');
  }
  expect(faults).toEqual([]);
  expect(complaints).toEqual([]);
});

test('hostile searches are text; logs come as they are written', async () => {
  await logIn();
  await page.goto(`${base}/tenants?q=${encodeURIComponent(EVIL)}&sort=${encodeURIComponent(EVIL)}`);
  expect(await page.getByLabel('Search').inputValue()).toBe(EVIL);
  await page.goto(`${base}/tenants/hello`);
  await expect.poll(() => page.locator('.log').textContent()).toContain('window.pwned');
  const before = await page.locator('.log > div').count();
  await fetch(`${host.url}/hello/`);
  await expect.poll(() => page.locator('.log > div').count()).toBeGreaterThan(before);
  expect(await page.locator('.log script, .log img').count()).toBe(0);
  expect(await page.evaluate('window.pwned')).toBeUndefined();
  expect(complaints).toEqual([]);
});

test('by keyboard alone: log in, find a tenant, suspend it, and let it serve again', async () => {
  const { keyboard } = page;
  const tabTo = async (name: RegExp) => {
    for (let turns = 0; turns < 80; turns++) {
      await keyboard.press('Tab');
      const focused = await page.evaluate(
        '(document.activeElement?.closest("label")?.textContent ?? document.activeElement?.textContent ?? "").trim()',
      );
      if (name.test(String(focused))) return;
    }
    throw new Error(`nothing named ${name} can be reached`);
  };
  await page.goto(`${base}/tenants`);
  await tabTo(/^Token/);
  await keyboard.type(token);
  await keyboard.press('Enter');
  await page.waitForURL(`${base}/tenants`);
  await tabTo(/^Search/);
  await keyboard.type('hell');
  await keyboard.press('Enter');
  await page.waitForURL(/q=hell/);
  await tabTo(/^hello$/);
  await keyboard.press('Enter');
  await page.waitForURL(/tenants\/hello$/);
  await tabTo(/^Suspend$/);
  await keyboard.press('Enter');
  await tabTo(/^Reason/);
  await keyboard.type(EVIL);
  await keyboard.press('Enter');
  await expect.poll(() => page.getByRole('status').first().textContent()).toBe('Done.');
  expect((await fetch(`${host.url}/hello/`)).status).toBe(403);
  await page.getByRole('button', { name: 'Let it serve again' }).focus();
  await keyboard.press('Enter');
  await expect.poll(async () => (await fetch(`${host.url}/hello/`)).status).toBe(200);
  // The page that follows is there: a script in one that is being left fails.
  await page.getByRole('button', { name: 'Let it serve again' }).waitFor({ state: 'detached' });
  expect(await page.evaluate('window.pwned')).toBeUndefined();
  await page.goto(`${base}/audit?slug=hello`);
  const acts = await page.locator('main table').textContent();
  expect(acts).toContain('POST /tenants/:slug/suspend');
  expect(acts).toContain('console');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.waitForURL(/log-in$/);
  await page.goto(`${base}/money`);
  expect(page.url()).toContain('/log-in');
});

test('a decommissioning has to be confirmed by its name', async () => {
  await logIn();
  await page.goto(`${base}/tenants/seed-7`);
  const box = page.locator('details', { hasText: 'Nobody brings it back' });
  for (const [typed, heading] of [
    ['seed-8', 'A field is not acceptable'],
    ['seed-7', 'seed-7 decommissioned'],
  ] as const) {
    await box.locator('summary').click();
    await box.getByRole('textbox').fill(typed);
    await box.getByRole('button').click();
    await expect.poll(() => page.getByRole('heading', { level: 1 }).textContent()).toBe(heading);
    if (typed === 'seed-8') await page.getByRole('link', { name: 'Back', exact: true }).click();
  }
  expect((await host.operator('GET', '/tenants/seed-7')).json).toMatchObject({ state: 'decommissioned' });
});

test('who may only read sees everything but secrets, and changes nothing', async () => {
  const made = await host.operator('POST', '/tokens', { role: 'reader' });
  const reader = (made.json as { token: string }).token;
  await logIn('reader');
  for (const place of PAGES) {
    await page.goto(place === '' ? base : `${base}/${place}`);
    expect([place, await page.locator('form[action$="/act"]').count()]).toEqual([place, 0]);
  }
  const who = await session(reader);
  const note = { method: 'PUT', path: '/tenants/hello/note', back: '/console', 'text.note': 'x' };
  expect((await act(who, note)).status).toBe(403);
  expect((await act(who, { ...note, token })).status).toBe(403);
  expect((await act(who, { method: 'POST', path: '/pay/grants', token })).status).toBe(403);
  const bearer = { authorization: `Bearer ${reader}` };
  expect((await send('GET', '/tenants/hello', bearer)).status).toBe(200);
  expect((await send('DELETE', '/tenants/hello', bearer)).status).toBe(403);
  expect((await send('POST', '/tokens', bearer)).status).toBe(403);
  expect((await host.operator('GET', '/tenants/hello')).json).toMatchObject({ note: EVIL, state: 'active' });
  const { json } = await host.operator('GET', '/audit');
  expect(json).toMatchObject({ entries: expect.arrayContaining([expect.objectContaining({ role: 'reader' })]) });
  await host.operator('DELETE', '/tokens/reader');
  expect((await send('GET', '/console', { cookie: who.cookie })).headers.location).toContain('/log-in');
  expect((await send('GET', '/tenants/hello', bearer)).status).toBe(401);
});

test('other names, other sites, other ports, other sessions and stolen cookies come to nothing', async () => {
  const who = await session();
  const other = await session();
  const block = { method: 'POST', path: '/blocks', back: '/console/blocks', 'text.subject': '192.0.2.1' };
  for (const name of ['evil.example', `evil.example:${host.adminPort}`])
    expect((await send('GET', '/console/log-in', { host: name })).status).toBe(403);
  for (const origin of ['', 'null', 'https://evil.example', `http://127.0.0.1:${host.port}`, host.url]) {
    expect([origin, (await act(who, block, { origin })).status]).toEqual([origin, 403]);
    expect((await send('POST', '/console/log-in', { origin }, { token })).status).toBe(403);
  }
  expect((await act(who, block, { 'sec-fetch-site': 'same-site' })).status).toBe(403);
  expect(
    (await send('GET', '/console/api/tenants', { cookie: who.cookie, 'sec-fetch-site': 'same-site' })).status,
  ).toBe(403);
  expect((await act({ ...who, csrf: other.csrf }, block)).status).toBe(403);
  expect((await act({ ...who, csrf: '' }, block)).status).toBe(403);
  // Money, access, and whatever a tenant's own API does: the cookie alone is not enough.
  const careful = [
    { method: 'POST', path: '/payments/open/out_x', 'text.action': 'waive' },
    { method: 'POST', path: '/payments/resume' },
    { method: 'POST', path: '/tokens', 'text.role': 'operator' },
    { method: 'POST', path: '/console-links' },
    { method: 'POST', path: '/clock', 'number.advanceMs': '1' },
    { method: 'POST', path: '/backup', 'text.target': folder },
    { method: 'POST', path: '/pay/grants', 'text.accountId': 'x' },
  ];
  for (const fields of careful) expect([fields.path, (await act(who, fields)).status]).toEqual([fields.path, 401]);
  expect((await act(who, { ...careful[0], token: 'op_wrong' } as never)).status).toBe(401);
  expect((await act(who, { ...careful[0], token } as never)).status).toBe(404);
  for (const odd of ['//evil.example/x', 'https://evil.example/', ''])
    expect((await act(who, { method: 'POST', path: odd })).status).toBe(400);
  expect((await act(who, { ...block, back: 'https://evil.example/' })).headers.location).toBe('/console');
  expect((await send('GET', '/console/log-in?to=//evil.example', {})).text).not.toContain('evil');
  // The cookie over https has another name, and does not count without it.
  const secure = await send('POST', '/console/log-in', { origin: own().origin.replace('http:', 'https:') }, { token });
  const [cookie = ''] = secure.headers['set-cookie'] ?? [];
  expect(cookie).toMatch(/^__Host-turnpike-console=[\w.-]+; Path=\/; Secure; HttpOnly; SameSite=Strict$/);
  const plain = cookie.split(';')[0]?.replace('__Host-', '') ?? '';
  expect((await send('GET', '/console', { cookie: plain })).status).toBe(303);
  // Ended is ended.
  expect(
    (await send('POST', '/console/log-out', { ...own(), cookie: other.cookie }, { csrf: other.csrf })).status,
  ).toBe(303);
  expect((await act(other, block)).status).toBe(401);
});

test('a new token ends every session, and what they follow; no token is in the audit log or the output', async () => {
  const who = await session();
  const stream = send('GET', '/console/api/tenants/hello/logs', { cookie: who.cookie, accept: 'text/event-stream' });
  const before = token;
  token = ((await host.operator('POST', '/tokens', { role: 'operator' })).json as { token: string }).token;
  await stream;
  expect((await send('GET', '/console', { cookie: who.cookie })).status).toBe(303);
  expect((await send('POST', '/console/log-in', own(), { token: before })).status).toBe(401);
  expect((await session()).cookie).not.toBe('');
  const audit = (await host.operator('GET', '/audit?limit=1000')).text;
  expect(audit).toContain('POST /console/log-in');
  expect(audit).not.toMatch(/opr?_[\w-]{20}|once_/);
  expect(host.output()).not.toContain(token);
});

test('guesses are limited, and a host that was killed remembers log-ins, log-outs and its history', async () => {
  const [who, out] = [await session(), await session()];
  expect((await send('POST', '/console/log-out', { ...own(), cookie: out.cookie }, { csrf: out.csrf })).status).toBe(
    303,
  );
  const guesses = await Promise.all(
    Array.from({ length: 30 }, (_, index) => send('POST', '/console/log-in', own(), { token: `op_${index}` })),
  );
  const refused = guesses.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(15);
  expect(Number(refused[0]?.headers['retry-after'])).toBeGreaterThan(0);
  // A stranger's guesses keep nobody out who has the token.
  expect((await send('POST', '/console/log-in', own(), { token })).status).toBe(303);
  type Told = { points: { requests: number }[]; busiest: object[] };
  const told = async () => (await host.operator('GET', '/history?range=hour')).json as Told;
  const sum = ({ points }: Told) => points.reduce((total, { requests }) => total + requests, 0);
  const before = sum(await told());
  expect(before).toBeGreaterThan(3);
  await host.kill();
  host = await host.restart();
  await until(async () => ((await told()).busiest.length > 0 ? true : undefined));
  expect(sum(await told())).toBeGreaterThanOrEqual(before);
  const shown = await Promise.all([who, out].map(({ cookie }) => send('GET', '/console', { cookie })));
  expect(shown.map(({ status }) => status)).toEqual([200, 303]);
});
