/**
 * A person in a real browser: signs up, confirms a program, reads the dashboard. Set TURNPIKE_SCREENSHOTS to a folder
 * to keep pictures of the pages.
 */
import path from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { openBrowser, patientPage, violations } from './support/page-browser.ts';
import { anonymous, give, internal } from './support/pay-callers.ts';
import { type PayRig, startPayRig } from './support/pay-rig.ts';
import { mandateClient, startNetwork } from './support/payments-rig.ts';

let rig: PayRig;
let browser: Browser;
let page: Page;
let stopNetwork: () => Promise<void>;
/** Everything that the browser itself complained about. */
let complaints: string[];

beforeAll(async () => {
  const { network, stop } = await startNetwork();
  stopNetwork = stop;
  rig = await startPayRig(network);
  browser = await openBrowser();
});
afterAll(async () => {
  await browser?.close();
  await rig?.stop();
  await stopNetwork?.();
});
beforeEach(async () => {
  complaints = [];
  // More people sign up here than from one address in an hour.
  await rig.sql('DELETE FROM rate_limits');
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 } });
  page = await patientPage(context);
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
});
afterEach(async () => {
  await page.context().close();
});

async function picture(name: string): Promise<void> {
  const folder = process.env.TURNPIKE_SCREENSHOTS;
  if (folder) await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
}

async function signUp(email: string): Promise<void> {
  await page.getByLabel('E-mail address').fill(email);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Sign up' }).click();
}

test('who comes for the first time is told what it is, before signing in', async () => {
  await page.goto(rig.pages);
  const text = await page.locator('main').textContent();
  expect(text).toMatch(/Deals.*\$0\.15/s);
  expect(text).toContain('A new account starts with $5.00');
  for (const [width, colorScheme] of [
    [390, 'light'],
    [1280, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    expect(await violations(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
  }
  await page.getByRole('link', { name: 'Open an account' }).click();
  await expect.poll(() => page.getByRole('heading').first().textContent()).toBe('Sign up');
  expect(await violations(page)).toEqual([]);
  expect(complaints).toEqual([]);
});

test('a person confirms a program, and sees its calls on the dashboard', async () => {
  const begun = await fetch(`${rig.pay}/oauth/device_authorization`, {
    method: 'POST',
    body: new URLSearchParams({ client_id: 'turnpike' }),
  });
  const code = (await begun.json()) as { device_code: string; user_code: string; verification_uri: string };
  await page.goto(code.verification_uri);
  await page.getByRole('link', { name: 'Sign up' }).click();
  await picture('sign-up');
  await signUp('ann@example.test');
  await page.getByLabel('Code').fill(code.user_code.toLowerCase());
  await picture('code');
  await page.getByRole('button', { name: 'Continue' }).click();
  await expect.poll(() => page.locator('.usercode').textContent()).toBe(code.user_code);
  await picture('confirm');
  await page.getByRole('button', { name: 'Allow', exact: true }).click();
  await expect.poll(() => page.getByRole('heading').first().textContent()).toBe('Allowed');
  await picture('allowed');
  const token = await fetch(`${rig.pay}/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({
      grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
      device_code: code.device_code,
    }),
  });
  const { account_id } = (await token.json()) as { account_id: string };
  await internal(rig, '/charges', {
    key: 'watch_day:w1:1',
    accountId: account_id,
    serviceSlug: 'deals-watches',
    usage: [{ meterSlug: 'watch_day', quantity: 3 }],
  });
  await page.getByRole('link', { name: 'Go to your dashboard' }).click();
  const text = await page.locator('main').textContent();
  expect(text).toContain('$4.70');
  expect(text).toContain('109 days');
  expect(text).toContain('Welcome bonus');
  expect(text).toContain('watch_day:w1:1');
  expect(text).toContain('-0.30');
  await picture('dashboard');
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture('dashboard-dark');
  await page.setViewportSize({ width: 390, height: 800 });
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
  await picture('dashboard-phone');
  await page.getByRole('button', { name: 'Revoke' }).click();
  await expect.poll(() => page.getByRole('button', { name: 'Revoke' }).count()).toBe(0);
  expect(complaints).toEqual([]);
});

test('a person says who is told of low credit, tries it, and sees what was told', async () => {
  await page.goto(`${rig.pages}/sign-up`);
  await signUp('dan@example.test');
  await page.getByRole('link', { name: 'Webhooks' }).click();
  await page.getByLabel('Address').fill('https://receiver.example.test/hooks/credit');
  await page.getByRole('button', { name: 'Add a webhook' }).click();
  await expect.poll(() => page.locator('#secret').textContent()).toMatch(/^whsec_/);
  await page.getByLabel(/Tell when credit falls below/).fill('7.00');
  await page.getByRole('button', { name: 'Set', exact: true }).click();
  await expect.poll(() => page.locator('main').textContent()).toContain('credit is low');
  await page.getByRole('button', { name: 'Send a test' }).click();
  await expect.poll(() => page.locator('main').textContent()).toMatch(/Test.*waiting/s);
  for (const [width, colorScheme] of [
    [390, 'light'],
    [1280, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    expect(await violations(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    await picture(`webhooks-${width}`);
  }
  await page.getByRole('button', { name: 'Remove' }).click();
  await expect.poll(() => page.locator('main').textContent()).toContain('nobody is told');
  await page.getByLabel('Address').fill('http://mailer.internal/');
  await page.getByRole('button', { name: 'Add a webhook' }).click();
  await expect.poll(() => page.getByRole('alert').textContent()).toContain('that host is not public');
  complaints = complaints.filter((text) => !text.includes('status of 400'));
  expect(complaints).toEqual([]);
});

test('a person sees the mandate that a program signed, what was drawn on it, and ends it', async () => {
  await page.goto(`${rig.pages}/sign-up`);
  await signUp('eve@example.test');
  await page.getByRole('button', { name: 'Make a credential' }).click();
  const credential = (await page.locator('#issued').textContent()) ?? '';
  expect(await page.locator('#auto-topup').textContent()).toContain('Off.');
  const signed = await mandateClient(rig.network, rig.network.wallets?.[6]?.privateKey ?? '0x').fetch(
    `${rig.pay}/me/auto-topup`,
    {
      method: 'POST',
      headers: { authorization: `Bearer ${credential}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        amountUsd: '5.00',
        belowUsd: '6.00',
        limitUsd: '20.00',
        until: new Date(Date.now() + 30 * 86_400_000).toISOString(),
      }),
    },
  );
  expect(signed.status).toBe(201);
  await expect
    .poll(async () => {
      await page.goto(`${rig.pages}/dashboard`);
      return page.locator('#auto-topup').textContent();
    })
    .toMatch(/\$5\.00 of \$20\.00.*paid/s);
  for (const [width, colorScheme] of [
    [390, 'light'],
    [1280, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    expect(await violations(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    await picture(`auto-topup-${width}`);
  }
  await page.getByRole('button', { name: 'End it now' }).click();
  await expect.poll(() => page.locator('#auto-topup').textContent()).toContain('Off.');
  expect(complaints).toEqual([]);
});

test('a person lets a deployment renew from credit, and ends it', async () => {
  await page.goto(`${rig.pages}/sign-up`);
  await signUp('fay@example.test');
  await page.getByRole('link', { name: 'Renewals' }).click();
  await page.getByLabel('Deployment').fill('Hello world');
  await page.getByLabel(/At most USD/).fill('0.25');
  await page.getByRole('button', { name: 'Let it renew' }).click();
  await expect.poll(() => page.getByRole('alert').textContent()).toContain('the name of a deployment is expected');
  await page.getByLabel('Deployment').fill('hello');
  await page.getByLabel(/At most USD/).fill('0.25');
  await page.getByRole('button', { name: 'Let it renew' }).click();
  await expect.poll(() => page.locator('#token').textContent()).toMatch(/^rnw_[\w-]{43}$/);
  await page.setViewportSize({ width: 390, height: 900 });
  expect(await violations(page)).toEqual([]);
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
  await picture('renewals');
  await page.getByRole('button', { name: 'End it now' }).click();
  await expect.poll(() => page.locator('main').textContent()).toContain('None.');
  complaints = complaints.filter((text) => !text.includes('status of 400'));
  expect(complaints).toEqual([]);
});

test('a person takes an agent’s account over and switches to it', async () => {
  const agent = await anonymous(rig);
  await give(rig, agent, '2.50');
  const claim = await fetch(`${rig.pay}/me/claim`, {
    method: 'POST',
    headers: { authorization: `Bearer ${agent.credential}` },
  });
  const { verification_uri_complete } = (await claim.json()) as { verification_uri_complete: string };
  await page.goto(verification_uri_complete);
  await page.getByRole('link', { name: 'Sign up' }).click();
  await signUp('bob@example.test');
  await picture('claim');
  await page.getByRole('button', { name: 'Take it over' }).click();
  await page.getByRole('link', { name: 'Go to your dashboard' }).click();
  await page.getByRole('link', { name: /^Agent acc_/ }).click();
  expect(await page.locator('main').textContent()).toContain('$2.50');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect.poll(() => page.getByRole('heading').first().textContent()).toBe('Sign in');
  expect(complaints).toEqual([]);
});

test.each([
  ['the origin that tenants share', (url: string) => url],
  ['a host name of its own', (url: string) => url.replace('localhost', 'evil.localhost')],
])('a page of another tenant on %s gets nothing: not by framing, fetching, cookies or forms', async (_where, of) => {
  await page.goto(`${rig.pages}/sign-up`);
  await signUp(`carol${of('localhost').length}@example.test`);
  const session = async () =>
    (await page.context().cookies(rig.pages)).find(({ name }) => name.endsWith('session'))?.value;
  const before = await session();
  expect(before).toMatch(/^tps_/);
  rig.origin = (_arrived, reply) => {
    reply.writeHead(200, { 'content-type': 'text/html' });
    reply.end(`<!doctype html><title>evil</title><iframe src="${rig.pages}/dashboard"></iframe>
<form method="post" action="${rig.pages}/dashboard/credentials"><button>Win</button></form>`);
  };
  const framed = page.waitForEvent('console', {
    predicate: (message) => /frame-ancestors|refused/i.test(message.text()),
  });
  await page.goto(`${of(rig.url)}/deals/`);
  await framed;
  for (const target of [`${rig.pages}/dashboard`, `${rig.pages}/dashboard/statement.csv`]) {
    const stolen = await page.evaluate(`fetch('${target}', { credentials: 'include' })
      .then((answer) => answer.text(), () => 'refused')`);
    expect(stolen).toBe('refused');
  }
  expect(await page.evaluate('document.cookie')).toBe('');
  await page.getByRole('button', { name: 'Win' }).click();
  await page.waitForURL(`${rig.pages}/**`);
  expect(await page.locator('body').textContent()).not.toContain('tpk_');
  await page.goto(`${rig.pages}/dashboard`);
  expect(await page.locator('main').textContent()).toContain('No program can use this account now.');
  expect(await session()).toBe(before);
});
