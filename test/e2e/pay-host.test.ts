/**
 * The pay platform on the whole host: edge, sandboxes, way out, payments. A tenant's API is put behind it by the
 * operator's command and bought by stock clients and from credit; the clock is moved, and the host killed.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { balances, deploy, jsonPost, mppFetch, account as walletOf, x402Fetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { bearer, payFromCredit, type TestAccount } from './support/pay-callers.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const DAY_MS = 86_400_000;

/** A shop that knows nothing of payment but how to ask for it. */
const SHOP = `
export default {
  async fetch(request) {
    const usage = request.headers.get('x-pay-usage');
    const path = new URL(request.url).pathname;
    if (path === '/internal/pay-events') return new Response(null, { status: 204 });
    if (!request.headers.get('signature')) return new Response('unsigned', { status: 401 });
    if (usage === 'none') return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 2 }] }, { status: 402 });
    return Response.json({ account: request.headers.get('x-pay-account'), usage });
  },
};`;

let host: TestHost;
/** Of the command; its account is in it. */
let home = 'home';

/** @throws what the command said, where it failed */
const run = async (...args: string[]) => {
  const { code, json } = await turnpike(['--json', '--data', host.data, '--host-url', host.url, ...args], {
    cwd: host.data,
    env: { HOME: path.join(host.data, home) },
  });
  if (code !== 0) throw new Error(JSON.stringify(json()));
  return json();
};
const platformIsUp = () =>
  until(
    async () => ((await fetch(`${host.url}/pay/healthz`)).status === 200 ? true : undefined),
    () => host.output(),
  );
const register = async (): Promise<TestAccount> => {
  const answer = await fetch(`${host.url}/pay/accounts/anonymous`, { method: 'POST' });
  const { accountId, credential } = (await answer.json()) as { accountId: string; credential: string };
  return { id: accountId, credential };
};
const balanceUsd = async (account: TestAccount) =>
  ((await (await fetch(`${host.url}/pay/me`, { headers: bearer(account) })).json()) as { balanceUsd: string })
    .balanceUsd;

/** With a host name that need not resolve. */
function get(target: string, name: string): Promise<{ status: number; text: string; policy: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: '127.0.0.1', port: host.port, path: target, headers: { host: name } },
      async (answer) => {
        let text = '';
        for await (const chunk of answer) text += chunk;
        resolve({ status: answer.statusCode ?? 0, text, policy: String(answer.headers['content-security-policy']) });
      },
    );
    sent.once('error', reject);
    sent.end();
  });
}

beforeAll(async () => {
  host = await startHost({ builtins: ['pay'] });
  await platformIsUp();
  await deploy(mppFetch(host.network, 0), host.url, { slug: 'shop', code: SHOP });
});
afterAll(() => host.stop());

test('the operator puts a tenant’s API behind the gateway with one command each for place, price and plan', async () => {
  await run('services', 'set', 'shop', '{app_url}/shop', '--name', 'The shop');
  await run('services', 'meter', 'shop', 'look', '0.02', '--description', 'One look');
  await run('services', 'plan', 'shop', 'default', '5.00', '--expires-after-days', '10');
  const { services } = await run('services', 'ls');
  expect(services).toContainEqual(
    expect.objectContaining({
      slug: 'shop',
      meters: [{ slug: 'look', priceUsd: '0.02', creditOnly: false, description: 'One look' }],
      plans: [{ id: 'default', minimumUsd: '5.00', expiresAfterDays: 10 }],
    }),
  );
  expect((await fetch(`${host.url}/shop/x`)).status).toBe(401);
});

test.each([
  ['mppx', mppFetch, 1, 'mpp'],
  ['@x402/fetch', x402Fetch, 2, 'x402'],
] as const)('stock %s buys a call for the price of two looks', async (_name, client, wallet, token) => {
  const { address } = walletOf(host.network, wallet);
  const before = (await balances(host.network, address))[token];
  const answer = await client(host.network, wallet)(`${host.url}/pay/shop/x?${token}`);
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ usage: '[{"meterSlug":"look","quantity":2}]' });
  expect(before - (await balances(host.network, address))[token]).toBe(40_000n);
});

test('the stock mppx command, with the credential of an account beside its payment, buys credit', async () => {
  const account = await register();
  const wallet = host.network.wallets[6];
  const command = path.join(path.dirname(fileURLToPath(import.meta.resolve('mppx'))), 'bin.js');
  const url = `${host.url}/pay/shop/plans/default/purchase`;
  const authorization = `authorization: Bearer ${account.credential}`;
  for (const protocol of ['mpp', 'x402']) {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [command, url, '-s', '--protocol', protocol, '-H', authorization, '-J', '{"amountUsd":"5.00"}'],
      {
        env: {
          PATH: process.env.PATH ?? '',
          HOME: path.join(host.data, 'home'),
          MPPX_PRIVATE_KEY: wallet?.privateKey ?? '',
          MPPX_RPC_URL: host.network.rpcUrl,
        },
      },
    );
    expect(JSON.parse(stdout)).toMatchObject({ accountId: account.id, amountUsd: '5.00' });
  }
  expect(await balanceUsd(account)).toBe('10.00');
});

test('the command registers, tops up and pays from credit, within its limit', async () => {
  // Another one for each try.
  home = `home-${randomUUID()}`;
  await run('account', 'register');
  await run('account', 'topup', '5.00', '--service', 'shop', '--max-pay', '5');
  const url = `${host.url}/pay/shop/x`;
  await expect(run('pay', url, '--credit', '--max-pay', '0.03')).rejects.toThrow('more than the limit');
  const paid = await run('pay', url, '--credit', '--max-pay', '0.04');
  expect(paid).toMatchObject({ status: 200, paid: { protocol: 'credit', amount: '0.04' } });
  expect((await run('account', 'balance')).balanceUsd).toBe('4.96');
  expect(await run('pay', url, '--max-pay', '0.04')).toMatchObject({ status: 200, paid: { amount: '0.04' } });
});

test('the command signs a mandate for credit, shows it, and ends it', async () => {
  await expect(run('account', 'auto-topup', '5.00', '--max-pay', '19.99')).rejects.toThrow('more than the limit');
  const signed = await run('account', 'auto-topup', '5.00', '--below', '0.50', '--max-pay', '20');
  expect(signed.mandate).toMatchObject({ amountUsd: '5.00', belowUsd: '0.50', limitUsd: '20.00', everyDays: 30 });
  expect((await run('account', 'auto-topup')).mandate).toEqual(signed.mandate);
  expect(await run('account', 'auto-topup', '--off')).toEqual({ mandate: null });
  expect(await run('account', 'auto-topup')).toEqual({ mandate: null, draws: [] });
});

test('credit is bought, spent, kept over a kill of the host, and expires when business time says so', async () => {
  const account = await register();
  const bought = await x402Fetch(host.network, 3)(
    `${host.url}/pay/shop/plans/default/purchase`,
    jsonPost({ amountUsd: '5.00' }, bearer(account)),
  );
  expect(bought.status).toBe(201);
  const answer = await payFromCredit(`${host.url}/pay/shop/x`, account);
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ account: account.id });
  expect(await balanceUsd(account)).toBe('4.96');
  await host.kill();
  host = await host.restart();
  await platformIsUp();
  expect(await balanceUsd(account)).toBe('4.96');
  expect((await payFromCredit(`${host.url}/pay/shop/x`, account)).status).toBe(200);
  await host.advance(9 * DAY_MS);
  expect(await balanceUsd(account)).toBe('4.92');
  await host.advance(DAY_MS + 60_000);
  expect(await balanceUsd(account)).toBe('0.00');
  expect((await payFromCredit(`${host.url}/pay/shop/x`, account)).status).toBe(402);
});

test('a person’s pages are on their own host name, and nowhere else', async () => {
  const page = await get('/sign-in', `pay.localhost:${host.port}`);
  expect(page.status).toBe(200);
  expect(page.text).toContain('<title>Sign in');
  expect(page.policy).toContain("default-src 'none'");
  expect((await get('/pay/sign-in', `localhost:${host.port}`)).status).toBe(404);
  expect((await get('/shop/x', `pay.localhost:${host.port}`)).status).toBe(404);
});

test('the sweep runs by the host’s own schedule', async () => {
  await host.advance(60_000);
  const { tenants } = (await host.operator('GET', '/tenants')).json as { tenants: { slug: string }[] };
  expect(tenants.map(({ slug }) => slug)).toContain('pay');
  await until(async () => {
    const { text } = await host.operator('GET', '/metrics');
    return /turnpike_cron_run_seconds_count\{[^}]*outcome="ok"[^}]*\} [1-9]/.test(text) ? true : undefined;
  });
});
