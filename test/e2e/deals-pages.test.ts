/**
 * What everybody reads of deals for nothing: pages in a real browser, and descriptions that programs use. Set
 * TURNPIKE_SCREENSHOTS to a folder to keep pictures.
 */
import { execFile } from 'node:child_process';
import { request } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DiscoveryDocument } from '../../node_modules/mppx/dist/discovery/Discovery.js';
import { account, balances } from './support/callers.ts';
import { readDatabase, startDealsHost } from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import {
  addWallet,
  lookAt,
  newPage,
  type Opened,
  openBrowser,
  type PageWallet,
  patientPage,
} from './support/page-browser.ts';

const EVIL = `'"><script>document.title = 1</script><img src=x>`;

let host: TestHost;
let browser: Browser;

beforeAll(async () => {
  host = await startDealsHost();
  browser = await openBrowser();
});
afterAll(async () => {
  await browser?.close();
  await host?.stop();
});

/** With a host name that need not resolve. */
function get(
  name: string,
  target: string,
  more: { headers?: Record<string, string>; form?: Record<string, string> } = {},
): Promise<{ status: number; text: string; policy: string }> {
  return new Promise((resolve, reject) => {
    const body = more.form && String(new URLSearchParams(more.form));
    const headers = {
      host: `${name}:${host.port}`,
      ...(body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' }),
      ...more.headers,
    };
    const method = body === undefined ? 'GET' : 'POST';
    const sent = request({ host: '127.0.0.1', port: host.port, path: target, headers, method }, async (answer) => {
      let text = '';
      for await (const chunk of answer) text += chunk;
      resolve({ status: answer.statusCode ?? 0, text, policy: String(answer.headers['content-security-policy']) });
    });
    sent.once('error', reject);
    sent.end(body);
  });
}

async function open(
  target: string,
  options: { width?: number; dark?: boolean; name?: string } = {},
): Promise<{ text: string; complaints: string[]; prices: number; overflow: number }> {
  const context = await browser.newContext({
    viewport: { width: options.width ?? 1_000, height: 900 },
    javaScriptEnabled: false,
    colorScheme: options.dark ? 'dark' : 'light',
  });
  try {
    const page = await patientPage(context);
    const complaints: string[] = [];
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text());
    });
    const answer = await page.goto(target);
    expect(answer?.status()).toBe(200);
    const folder = process.env.TURNPIKE_SCREENSHOTS;
    if (folder && options.name)
      await page.screenshot({ path: path.join(folder, `${options.name}.png`), fullPage: true });
    return {
      // biome-ignore lint/performance/useDomNodeTextContent: what a person sees, with the spaces between cells
      text: await page.locator('body').innerText(),
      complaints,
      prices: await page.locator('svg.chart path.line').count(),
      overflow: Number(
        await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth'),
      ),
    };
  } finally {
    await context.close();
  }
}

describe('the landing page', () => {
  test('shows a live deal with its price chart, baseline and evidence, without any script', async () => {
    const { text, complaints, prices, overflow } = await open(`${host.url}/deals/`, { name: 'landing' });
    expect(prices).toBe(1);
    expect(text).toMatch(/Live deal/i);
    expect(text).toMatch(/Demo data/);
    expect(text).toMatch(/Baseline\s+\d+\.\d\d EUR, the lowest from \d{4}-\d\d-\d\d to/);
    expect(text).toContain('Evidence');
    expect(text).toContain('0.15 USD a call');
    expect(complaints).toEqual([]);
    expect(overflow).toBe(0);
  });

  test.each([
    ['deals', '/deals/'],
    ['deals-docs', '/deals/docs'],
    ['deals-search', '/deals/search'],
    ['deals-search-made', `/deals/search?q=&currency=eur&min_discount_bps=1000&sort=discount`],
    ['deals-search-refused', `/deals/search?max_price_minor=1&q=${encodeURIComponent(EVIL)}`],
    ['pay', '/pay/'],
    ['pay-sign-in', `/sign-in?next=${encodeURIComponent('/dashboard')}`],
    ['pay-sign-up', '/sign-up'],
    ['pay-reset', '/reset'],
    ['pay-device', '/device?user_code=ABCD-EFGH'],
  ])('%s: on every screen, in both schemes, for everybody', async (name, target) => {
    const context = await browser.newContext();
    try {
      const opened = await newPage(context);
      // Accounts have an origin of their own.
      const origin = name.startsWith('pay-') ? `http://pay.localhost:${host.port}` : host.url;
      expect((await opened.page.goto(origin + target))?.status()).toBe(200);
      await lookAt(opened, name);
    } finally {
      await context.close();
    }
  });

  test('has links and styles that work below the path and on a host name of its own', async () => {
    for (const [name, folder] of [
      ['localhost', '/deals'],
      ['deals.localhost', ''],
    ] as const) {
      const page = await get(name, `${folder}/`);
      expect(page.policy).toContain("default-src 'none'");
      const links = [...page.text.matchAll(/(?:href|src)="(\/[^"]*)"/g)].map(([, link]) => link ?? '');
      expect(links.length).toBeGreaterThan(5);
      for (const link of new Set(links)) {
        expect(link.startsWith(`${folder}/`)).toBe(true);
        expect((await get(name, link)).status, `${link} of ${name}`).toBe(200);
      }
      expect(page.text).not.toContain('<script');
    }
  });
});

describe('a person with a wallet in the browser', () => {
  const PAYER = 4;
  let opened: Opened;
  let wallet: PageWallet;
  const payer = () => account(host.network, PAYER);
  const held = async () => (await balances(host.network, payer().address)).x402;
  beforeEach(async () => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    wallet = await addWallet(context, host.network, payer());
    opened = await newPage(context);
  });
  afterEach(() => opened.page.context().close());
  const home = () => `http://localhost:${host.port}`;
  const payButton = () => opened.page.getByRole('button', { name: /^Pay .* with Test Wallet$/ });
  const bodyText = () => opened.page.locator('body').textContent();

  test('makes a query by the form with the keyboard, sees what it costs, and runs it', async () => {
    const { page } = opened;
    await page.goto(`${home()}/deals/search`);
    await page.getByLabel('Words').focus();
    await page.keyboard.type('e');
    await page.getByRole('textbox', { name: 'Currency Three' }).focus();
    await page.keyboard.type('eur');
    await page.keyboard.press('Enter');
    const run = page.getByRole('link', { name: 'Run it for 0.15 USD' });
    expect(await run.getAttribute('href')).toBe(`${home()}/pay/deals/v1/deals?q=e&currency=eur`);
    expect(await page.locator('#query').textContent()).toContain(
      `curl -i '${home()}/pay/deals/v1/deals?q=e&currency=eur'`,
    );
    await run.focus();
    await page.keyboard.press('Enter');
    await payButton().waitFor();
    // What nothing matches is free.
    await page.goto(`${home()}/deals/search?q=nothing-is-called-so`);
    await page.getByRole('link', { name: 'Run it', exact: true }).click();
    await page.getByRole('heading', { name: 'No deal matches' }).waitFor();
    expect(await page.locator('main').textContent()).toContain('nothing was charged');
    await page.goto(`${home()}/deals/search?q=${encodeURIComponent(EVIL)}&currency=x`);
    expect(await page.getByLabel('Words').inputValue()).toBe(EVIL);
    expect(await page.getByRole('alert').textContent()).toContain('currency');
    expect(await page.title()).toContain('Search deals');
    expect(opened.complaints).toEqual([]);
  });

  test('is told where credit alone pays', async () => {
    const { page } = opened;
    const target = `${home()}/pay/deals/v1/watches`;
    await page.route(target, (route) =>
      route.continue({ method: 'POST', postData: '{"query":{},"trigger":{"on":["enter"]}}' }),
    );
    await page.goto(target);
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(
      'Watches of deals: A watch and its first 24 hours',
    );
    await lookAt(opened, 'pay-credit-402');
  });

  test('pays a call of the gateway, sees its answer, and is told what was refused', async () => {
    const { page } = opened;
    const before = await held();
    await page.goto(`${home()}/pay/deals/v1/deals?limit=1`);
    await payButton().waitFor();
    await lookAt(opened, 'pay-gateway-402');
    wallet.instead = (method) => (method === 'eth_signTypedData_v4' ? `0x${'11'.repeat(65)}` : undefined);
    await payButton().click();
    await page.locator('.note.bad').waitFor();
    expect(await held()).toBe(before);
    wallet.instead = () => undefined;
    await payButton().click();
    await page.getByText('paid: 0.15 USD').waitFor();
    expect(await page.locator('svg.chart path.line').count()).toBe(1);
    expect(await page.getByText('Baseline').count()).toBe(1);
    await lookAt(opened, 'deals-found');
    const answer = await bodyText();
    expect(before - (await held())).toBe(150_000n);
    // Again it is the same answer, for nothing.
    await page.reload();
    expect(await bodyText()).toBe(answer);
    expect(before - (await held())).toBe(150_000n);
    // What is sold is no page of the host: it has an origin of its own.
    expect(await page.evaluate('self.origin')).toBe('null');
    // Another question is another purchase, and programs get the document as ever.
    await page.goto(`${home()}/pay/deals/v1/deals?limit=2`);
    await payButton().waitFor();
    const bare = await fetch(`${host.url}/pay/deals/v1/deals?limit=1`, { headers: { accept: 'application/json' } });
    expect([bare.status, bare.headers.get('content-type')]).toEqual([402, 'application/problem+json']);
  });

  test('watches a query from the account, ends it, and finds it on the statement of the month', async () => {
    const { page } = opened;
    const pages = `http://pay.localhost:${host.port}`;
    await page.goto(`${home()}/deals/search?q=${encodeURIComponent(EVIL)}&currency=eur&min_discount_bps=1000`);
    await page.getByRole('link', { name: 'Watch it from your account' }).click();
    await page.getByRole('link', { name: 'Sign up' }).click();
    await page.getByLabel('E-mail address').fill('watches@example.test');
    await page.getByLabel('Password').fill('correct horse battery');
    await page.getByRole('button', { name: 'Sign up' }).click();
    await page.getByText('None yet.').waitFor();
    expect(await page.getByRole('textbox', { name: /^Words/ }).inputValue()).toBe(EVIL);
    const ledger = async () =>
      (
        await readDatabase<{ credit: number }>(
          host,
          'pay',
          `SELECT coalesce(sum(l.balance), 0) AS credit FROM ledger_accounts l JOIN accounts a ON a.id = l.owner
           JOIN humans h ON h.id = a.human_id WHERE l.id LIKE 'grant:%' AND h.email = 'watches@example.test'`,
        )
      )[0]?.credit ?? 0;
    const had = await ledger();
    // The same form twice is one watch.
    const form = page.locator('form[action="/dashboard/watches"]');
    const fields = (await form.evaluate(
      'Object.fromEntries(new FormData(document.querySelector("#new form")))',
    )) as object;
    await page.getByRole('button', { name: 'Watch for $0.25' }).click();
    await page.getByRole('cell', { name: /^words: / }).waitFor();
    const cookie = (await page.context().cookies(pages)).map(({ name, value }) => `${name}=${value}`).join('; ');
    const again = (more: Record<string, string>) =>
      get('pay.localhost', '/dashboard/watches', {
        headers: { cookie, ...more },
        form: fields as Record<string, string>,
      });
    expect((await again({ origin: 'http://evil.localhost' })).status).toBe(403);
    expect((await again({ origin: pages })).status).toBe(303);
    await page.reload();
    const row = page.locator('tbody tr');
    expect(await row.count()).toBe(1);
    expect(await row.textContent()).toContain(`words: ${EVIL.trim()}`);
    expect(await row.textContent()).toContain('running');
    expect(await row.getByText('1.0', { exact: true }).count()).toBe(1);
    expect(had - (await ledger())).toBe(250_000);
    await lookAt({ ...opened, complaints: [] }, 'pay-watches');
    // What costs more than the form said is not bought, and a refusal keeps what was typed.
    await page.getByRole('textbox', { name: /^Country/ }).fill('Germany');
    await page.getByRole('button', { name: 'Watch for $0.25' }).click();
    expect(await page.getByRole('alert').textContent()).toContain('country');
    expect(await page.getByRole('textbox', { name: /^Country/ }).inputValue()).toBe('Germany');
    await page.locator('input[name=most]').evaluate('document.querySelector("input[name=most]").value = "0.24"');
    await page.getByRole('textbox', { name: /^Country/ }).fill('DE');
    await page.getByRole('button', { name: 'Watch for $0.25' }).click();
    expect(await page.getByRole('alert').textContent()).toContain('costs 0.25 USD');
    await page.getByRole('button', { name: /^Pause wat_/ }).click();
    await page.getByText('paused', { exact: true }).waitFor();
    await page.getByRole('button', { name: /^Go on wat_/ }).click();
    await page.getByText('running', { exact: true }).waitFor();
    await page.getByRole('button', { name: /^End wat_/ }).click();
    await page.getByText('None yet.').waitFor();
    expect(had - (await ledger())).toBe(250_000);

    await page.goto(`${pages}/dashboard`);
    await page.getByRole('link', { name: 'Monthly statement' }).click();
    const text = await page.locator('main').textContent();
    expect(text).toContain(`$${(await ledger()) / 1_000_000}`);
    expect(text).toMatch(/Calls\s*deals-watches\s*1\s*-0\.25/);
    await lookAt({ ...opened, complaints: [] }, 'pay-month');
    const link = (await page.getByRole('link', { name: /CSV/ }).getAttribute('href')) ?? '';
    const { text: csv } = await get('pay.localhost', link, { headers: { cookie } });
    const rows = csv
      .trim()
      .split('\r\n')
      .slice(1)
      .map((line) => line.split(','));
    const micro = (line: string[] | undefined) => Math.round(Number(line?.[3]) * 1_000_000);
    expect([rows[0]?.[2], rows.at(-1)?.[2]]).toEqual(['closing', 'opening']);
    expect(micro(rows[0])).toBe(await ledger());
    expect(rows.slice(1).reduce((sum, line) => sum + micro(line), 0)).toBe(micro(rows[0]));
    const statusOf = async (month: string) =>
      (await get('pay.localhost', `/dashboard/month?month=${encodeURIComponent(month)}`, { headers: { cookie } }))
        .status;
    for (const month of ['2026-13', '2099-01', "2026-01' OR 1"]) expect(await statusOf(month)).toBe(400);
    expect(await statusOf('2026-01')).toBe(200);
  });

  test('buys credit for the account that is signed in, once for each signature', async () => {
    const { page } = opened;
    const pages = `http://pay.localhost:${host.port}`;
    await page.goto(`${pages}/dashboard/topup?amount=5.00`);
    expect(await page.locator('main').textContent()).toContain('Sign in first');
    await page.goto(`${pages}/sign-up`);
    await page.getByLabel('E-mail address').fill('topup@example.test');
    await page.getByLabel('Password').fill('correct horse battery');
    await page.getByRole('button', { name: 'Sign up' }).click();
    const credit = async () =>
      Number((await page.locator('dl.figures dd').first().textContent())?.replace('$', '') ?? Number.NaN);
    await page.getByRole('heading', { name: 'Top up' }).waitFor();
    const [had, before] = [await credit(), await held()];
    await page.getByLabel('USD', { exact: true }).fill('7.50');
    await page.getByRole('button', { name: 'Pay with a wallet' }).click();
    await payButton().waitFor();
    expect(await page.locator('main').textContent()).toMatch(/7\.50? USD of credit\s*at most/);
    await lookAt(opened, 'pay-topup-402');
    const here = page.url();
    await payButton().click();
    await page.getByText('Paid: the credit is yours.').waitFor();
    expect((await credit()) - had).toBeCloseTo(7.5);
    expect(before - (await held())).toBe(7_500_000n);
    await lookAt(opened, 'pay-dashboard');
    expect(await page.locator('main').textContent()).toContain('Purchase of 7.5');
    // The way back leads to a page that asks again, and takes nothing.
    await page.goto(here);
    await payButton().waitFor();
    await page.goto(`${pages}/dashboard/topup?amount=0.01`);
    expect(await page.locator('main').textContent()).toContain('at least');
    await page.goto(`${pages}/dashboard`);
    expect((await credit()) - had).toBeCloseTo(7.5);
    expect(opened.complaints).toEqual([]);
  });
});

test('the docs say every operation and its price', async () => {
  const { text, complaints, overflow } = await open(`${host.url}/deals/docs`, { name: 'docs' });
  for (const call of [
    'GET /v1/deals',
    'GET /v1/rules',
    'POST /v1/watches',
    'GET /v1/watches',
    'POST /v1/watches/{id}/pause',
    'POST /v1/watches/{id}/resume',
    'DELETE /v1/watches/{id}',
  ])
    expect(text).toContain(call);
  expect(complaints).toEqual([]);
  expect(overflow).toBe(0);
});

describe('for programs', () => {
  const read = async (page: string) => {
    const answer = await fetch(`${host.url}/deals${page}`);
    expect(answer.status, page).toBe(200);
    return { type: answer.headers.get('content-type') ?? '', text: await answer.text() };
  };

  test('openapi.json is what an MPP client reads as discovery, and says what the gateway really asks for', async () => {
    const document = JSON.parse((await read('/openapi.json')).text);
    expect(() => DiscoveryDocument.parse(document)).not.toThrow();
    expect(document.servers).toEqual([{ url: expect.stringMatching(/\/pay\/deals$/) }]);
    const offers = document.paths['/v1/deals'].get['x-payment-info'].offers;
    const asked = await fetch(`${host.url}/pay/deals/v1/deals`);
    const required = JSON.parse(Buffer.from(asked.headers.get('payment-required') ?? '', 'base64').toString());
    expect(offers.map(({ amount }: { amount: string }) => amount)).toContain(required.accepts[0].amount);
    expect(document.paths['/v1/watches'].post['x-payment-info'].offers).toEqual([
      expect.objectContaining({ method: 'credit', amount: '250000' }),
    ]);
    expect((await read('/.well-known/openapi.json')).text).toBe(JSON.stringify(document, null, 2));
  });

  test('every reference of openapi.json leads to a schema, and every path parameter is declared', async () => {
    const { text } = await read('/openapi.json');
    const document = JSON.parse(text);
    for (const [, name] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g))
      expect(document.components.schemas).toHaveProperty(name ?? '');
    expect(document.paths['/v1/watches/{id}'].delete.parameters).toContainEqual(
      expect.objectContaining({ name: 'id', in: 'path', required: true }),
    );
  });

  test.each([
    ['/llms.txt', 'text/plain', 'GET http'],
    ['/auth.md', 'text/markdown', 'accounts/anonymous'],
    ['/robots.txt', 'text/plain', 'sitemap.xml'],
    ['/sitemap.xml', 'application/xml', '<loc>'],
    ['/.well-known/security.txt', 'text/plain', 'Expires: '],
    ['/.well-known/api-catalog', 'application/linkset+json', 'service-desc'],
  ])('%s', async (page, type, part) => {
    const answer = await read(page);
    expect(answer.type).toContain(type);
    expect(answer.text).toContain(part);
  });

  test('every page of the sitemap is there', async () => {
    const { text } = await read('/sitemap.xml');
    const pages = [...text.matchAll(/<loc>([^<]+)<\/loc>/g)].map(([, page]) => page ?? '');
    expect(pages.length).toBeGreaterThan(3);
    for (const page of pages) expect((await fetch(page.replace(/^http:\/\/[^/]+/, host.url))).status).toBe(200);
  });
});

test('the commands of auth.md work as they stand: bought per call, registered, topped up, a watch made, read and ended', async () => {
  const [, block = ''] = /```\n([\s\S]*?)```/.exec(await (await fetch(`${host.url}/deals/auth.md`)).text()) ?? [];
  const lines = block.trim().split('\n');
  const turnpike = fileURLToPath(new URL('../../scripts/turnpike.mjs', import.meta.url));
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: path.join(host.data, 'caller'),
    // A wallet with test money.
    TURNPIKE_DATA: host.data,
  };
  const answers: string[] = [];
  for (const line of lines) {
    const made = /wat_[\w-]{8,}/.exec(answers.join(''))?.[0] ?? '';
    const script = `turnpike() { '${process.execPath}' '${turnpike}' "$@"; }\n${line.replace('wat_...', made)}`;
    const { stdout } = await promisify(execFile)('sh', ['-c', script], { env, cwd: host.data });
    answers.push(stdout);
  }
  expect(lines).toHaveLength(6);
  const [deals = '', registered, toppedUp, watch = '', listed = ''] = answers;
  expect(JSON.parse(deals).deals[0]).toMatchObject({ status: 'active' });
  expect(registered).toContain('acc_');
  expect(toppedUp).toContain('the balance is 5.00 USD');
  const { id } = JSON.parse(watch);
  expect(JSON.parse(listed)).toMatchObject({ watches: [{ id, state: 'running' }], events: [] });
  const account = /acc_\w+/.exec(registered ?? '')?.[0];
  expect(await readDatabase(host, 'deals', `SELECT state FROM watches WHERE account = '${account}'`)).toEqual([
    { state: 'deleted' },
  ]);
});
