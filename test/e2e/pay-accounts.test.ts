/** Accounts, people and credit: the device flow, claiming, pages and their guards, purchases, credentials, statements. */
import type { Hex } from 'viem';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { Browser } from './support/pay-browser.ts';
import {
  anonymous,
  balanceOf,
  bearer,
  give,
  internal,
  ledgerIsSound,
  type TestAccount,
} from './support/pay-callers.ts';
import { type PayRig, startPayRig } from './support/pay-rig.ts';
import { balance, mppClient, startNetwork, x402Client } from './support/payments-rig.ts';

let rig: PayRig;
let network: Network;
let stopNetwork: () => Promise<void>;
/** News of credit that reached the origin. */
let events: { type: string; accountId: string; balanceMicroUsd: string }[] = [];
let originIsDown = false;

beforeAll(async () => {
  ({ network, stop: stopNetwork } = await startNetwork());
  rig = await startPayRig(network);
  rig.origin = (arrived, reply) => {
    if (originIsDown) return void reply.destroy();
    if (arrived.path === '/internal/pay-events') events.push(JSON.parse(arrived.body));
    reply.writeHead(204).end();
  };
});
afterAll(async () => {
  await rig.stop();
  await stopNetwork();
});
beforeEach(async () => {
  events = [];
  originIsDown = false;
  await rig.sql('DELETE FROM rate_limits');
});

let people = 0;
async function signedUp(): Promise<Browser> {
  const browser = new Browser(rig);
  await browser.get('/sign-up');
  const page = await browser.submit('/sign-up', {
    email: `person${++people}@example.test`,
    password: 'correct horse battery',
  });
  expect(page.status).toBe(200);
  return browser;
}

const form = (path: string, fields: Record<string, string>) =>
  fetch(`${rig.pay}${path}`, { method: 'POST', body: new URLSearchParams(fields) });
interface DeviceCode {
  device_code: string;
  user_code: string;
  verification_uri: string;
  expires_in: number;
  interval: number;
}
const beginDevice = async () =>
  (await (await form('/oauth/device_authorization', { client_id: 'turnpike <b>cli</b>' })).json()) as DeviceCode;
const poll = async ({ device_code }: DeviceCode) => {
  const answer = await form('/oauth/token', {
    grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
    device_code,
  });
  return (await answer.json()) as { error?: string; access_token?: string; account_id?: string };
};
/** As if the device had waited. */
const waited = () => rig.sql('UPDATE device_codes SET polled_at = polled_at - 60000');

async function login(browser: Browser): Promise<TestAccount> {
  const code = await beginDevice();
  await browser.get(`/device?user_code=${code.user_code}`);
  await browser.submit('/device', { decision: 'allow' });
  const { access_token = '', account_id = '' } = await poll(code);
  return { id: account_id, credential: access_token };
}

describe('the device flow', () => {
  test('gives the program a credential of the account, once, after the person confirmed', async () => {
    const browser = await signedUp();
    const code = await beginDevice();
    expect(code.user_code).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/);
    expect(code).toMatchObject({ verification_uri: `${rig.pages}/device`, expires_in: 600, interval: 5 });
    expect(await poll(code)).toEqual({ error: 'authorization_pending' });
    await browser.get(`/device?user_code=${code.user_code.toLowerCase().replace('-', '%20')}`);
    expect(browser.last.text).toContain(code.user_code);
    expect(browser.last.text).toContain('turnpike &lt;b&gt;cli&lt;/b&gt;');
    expect((await browser.submit('/device', { decision: 'allow' })).text).toContain('Allowed');
    await waited();
    const got = await poll(code);
    expect(got.access_token).toMatch(/^tpk_/);
    const me = await fetch(`${rig.pay}/me`, { headers: { authorization: `Bearer ${got.access_token}` } });
    expect(await me.json()).toMatchObject({ accountId: got.account_id, kind: 'human', balanceUsd: '5.00' });
    await waited();
    expect(await poll(code)).toEqual({ error: 'invalid_grant' });
    const [stored] = await rig.sql<{ all: string }>(
      'SELECT group_concat(hash) AS "all" FROM (SELECT hash FROM credentials UNION SELECT hash FROM device_codes)',
    );
    expect(stored?.all).not.toContain(got.access_token);
    expect(stored?.all).not.toContain(code.device_code);
  });

  test('slows down who asks too often, ends with the code, and says no when the person does', async () => {
    const code = await beginDevice();
    expect(await poll(code)).toEqual({ error: 'authorization_pending' });
    expect(await poll(code)).toEqual({ error: 'slow_down' });
    const [row] = await rig.sql<{ interval_ms: number }>(
      'SELECT interval_ms FROM device_codes WHERE user_code = ?',
      code.user_code,
    );
    expect(Number(row?.interval_ms)).toBe(10_000);
    await rig.sql('UPDATE device_codes SET expires_at = ? WHERE user_code = ?', Date.now() - 1, code.user_code);
    await waited();
    expect(await poll(code)).toEqual({ error: 'expired_token' });
    const browser = await signedUp();
    expect((await browser.get(`/device?user_code=${code.user_code}`)).status).toBe(404);
    const denied = await beginDevice();
    await browser.get(`/device?user_code=${denied.user_code}`);
    await browser.submit('/device', { decision: 'deny' });
    expect(await poll(denied)).toEqual({ error: 'access_denied' });
    expect(await poll({ ...denied, device_code: 'tpd_guess' })).toEqual({ error: 'invalid_grant' });
    expect(await (await form('/oauth/token', { grant_type: 'password' })).json()).toEqual({
      error: 'unsupported_grant_type',
    });
  });

  test('a person who is not signed in comes back to the code after signing in', async () => {
    const code = await beginDevice();
    const browser = new Browser(rig);
    const page = await browser.get(`/device?user_code=${code.user_code}`);
    expect(page.text).toContain('Sign in');
    await browser.get(`/sign-up?next=${encodeURIComponent(`/device?user_code=${code.user_code}`)}`);
    const after = await browser.submit('/sign-up', {
      email: `person${++people}@example.test`,
      password: 'correct horse battery',
    });
    expect(after.text).toContain(code.user_code);
  });

  test('a body without a label, of whatever kind, makes an account all the same', async () => {
    for (const body of ['null', '[]', '"x"', '{', '{"label":5}'])
      expect((await fetch(`${rig.pay}/accounts/anonymous`, { method: 'POST', body })).status, body).toBe(201);
  });

  test('guessing codes is slow', async () => {
    const browser = await signedUp();
    const statuses: number[] = [];
    for (let index = 0; index < 22; index++) statuses.push((await browser.get('/device?user_code=BBBB-BBBB')).status);
    expect(statuses.slice(0, 20).every((status) => status === 404)).toBe(true);
    expect(statuses.at(-1)).toBe(429);
  });

  test('guessing codes is slow also without looking at them first', async () => {
    const browser = await signedUp();
    const asked = await (await form('/oauth/device_authorization', { client_id: 'cli' })).json();
    const { user_code } = asked as { user_code: string };
    const { text } = await browser.get(`/device?user_code=${user_code}`);
    const csrf = /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? '';
    const statuses: number[] = [];
    for (let index = 0; index < 22; index++)
      statuses.push((await browser.post('/device', { csrf, user_code: 'BBBB-BBBB', decision: 'allow' })).status);
    expect(statuses[0]).toBe(409);
    expect(statuses.at(-1)).toBe(429);
  });
});

describe('people', () => {
  test('get the welcome bonus once, however often they sign in and connect', async () => {
    const browser = await signedUp();
    const first = await login(browser);
    const second = await login(browser);
    expect(second.id).toBe(first.id);
    expect(second.credential).not.toBe(first.credential);
    await Promise.all(Array.from({ length: 10 }, () => browser.get('/dashboard')));
    expect(await balanceOf(rig, first)).toBe(5_000_000);
    const [row] = await rig.sql<{ n: number }>('SELECT count(*) AS n FROM grants WHERE account = ?', first.id);
    expect(Number(row?.n)).toBe(1);
  });

  test('sign in with the right password alone; an address is taken once', async () => {
    const email = `person${++people}@example.test`;
    const browser = new Browser(rig);
    await browser.get('/sign-up');
    expect((await browser.submit('/sign-up', { email, password: 'short' })).status).toBe(400);
    expect((await browser.submit('/sign-up', { email: 'nobody', password: 'correct horse battery' })).status).toBe(400);
    await browser.submit('/sign-up', { email: ` ${email.toUpperCase()} `, password: 'correct horse battery' });
    expect(browser.last.text).toContain('Your account');
    expect((await browser.submit('/sign-out', {})).text).toContain('Sign in');
    expect((await browser.get('/dashboard')).text).toContain('Sign in');
    expect((await browser.submit('/sign-in', { email, password: 'wrong horse battery' })).status).toBe(401);
    expect(
      (await browser.submit('/sign-in', { email: 'unknown@example.test', password: 'wrong horse battery' })).status,
    ).toBe(401);
    expect((await browser.submit('/sign-in', { email, password: 'correct horse battery' })).text).toContain(
      'Your account',
    );
    const other = new Browser(rig);
    await other.get('/sign-up');
    expect((await other.submit('/sign-up', { email, password: 'another long password' })).status).toBe(409);
    const [row] = await rig.sql<{ password_hash: string }>('SELECT password_hash FROM humans WHERE email = ?', email);
    expect(row?.password_hash).not.toContain('correct');
  });

  test('an anonymous account starts at 0 and is claimed once, without a second bonus', async () => {
    const agent = await anonymous(rig);
    expect(await balanceOf(rig, agent)).toBe(0);
    await give(rig, agent, '1.00');
    const claim = () => fetch(`${rig.pay}/me/claim`, { method: 'POST', headers: bearer(agent) });
    const codes = [await claim(), await claim()];
    const [first, second] = (await Promise.all(codes.map((answer) => answer.json()))) as { user_code: string }[];
    const [ann, bob] = [await signedUp(), await signedUp()];
    await ann.get(`/device?user_code=${first?.user_code}`);
    expect(ann.last.text).toContain(agent.id);
    await ann.submit('/device', { decision: 'allow' });
    await bob.get(`/device?user_code=${second?.user_code}`);
    expect((await bob.submit('/device', { decision: 'allow' })).status).toBe(409);
    expect((await claim()).status).toBe(409);
    expect(await balanceOf(rig, agent)).toBe(1_000_000);
    expect((await ann.get(`/dashboard?account=${agent.id}`)).text).toContain('1.00');
    expect((await bob.get(`/dashboard?account=${agent.id}`)).status).toBe(404);
    expect((await bob.get(`/dashboard/statement.csv?account=${agent.id}`)).status).toBe(404);
  });
});

describe('pages', () => {
  test('are not on the origin that tenants share, and the API is not on theirs', async () => {
    for (const path of ['/sign-in', '/sign-up', '/device', '/dashboard']) {
      expect((await fetch(rig.pay + path)).status).toBe(404);
    }
    const home = await fetch(rig.pay, { redirect: 'manual' });
    expect(home.headers.get('location')).toBe(rig.pages);
    for (const path of [
      '/deals/v1/deals',
      '/me',
      '/oauth/token',
      '/internal/charges',
      '/operator/services',
      '/llms.txt',
    ]) {
      expect((await rig.browse(path)).status).toBe(404);
    }
  });

  test('load nothing from elsewhere, run no script, and cannot be framed', async () => {
    const browser = await signedUp();
    for (const target of ['/dashboard', '/device', '/sign-in']) {
      const page = await browser.get(target);
      const policy = String(page.headers['content-security-policy']);
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain('unsafe');
      expect(page.text).not.toMatch(/<script|\son\w+=|style=|https?:\/\/(?!localhost)/i);
    }
  });

  test('refuse forms that come from elsewhere', async () => {
    const browser = await signedUp();
    const code = await beginDevice();
    await browser.get(`/device?user_code=${code.user_code}`);
    const csrf = /name="csrf" value="([^"]+)"/.exec(browser.last.text)?.[1] ?? '';
    const fields = { user_code: code.user_code, decision: 'allow' };
    expect((await browser.post('/device', fields)).status).toBe(403);
    expect((await browser.post('/device', { ...fields, csrf: 'x' })).status).toBe(403);
    expect((await browser.post('/device', { ...fields, csrf }, { origin: rig.url })).status).toBe(403);
    expect((await browser.post('/device', { ...fields, csrf }, { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    const other = await signedUp();
    expect((await other.post('/device', { ...fields, csrf })).status).toBe(403);
    expect(await poll(code)).toEqual({ error: 'authorization_pending' });
    expect((await browser.post('/device', { ...fields, csrf })).status).toBe(200);
  });

  test.each([
    'https://evil.example',
    '//evil.example',
    '/\\evil.example',
    '/dashboard/../../evil',
    'javascript:alert(1)',
    '/device?user_code=%0d%0aX: y',
  ])('do not lead to %s after signing in', async (next) => {
    const browser = new Browser(rig);
    await browser.get(`/sign-up?next=${encodeURIComponent(next)}`);
    expect(browser.last.text).not.toContain('evil.example');
    await browser.submit('/sign-up', {
      email: `person${++people}@example.test`,
      password: 'correct horse battery',
      next,
    });
    expect(browser.last.text).toMatch(/Your account|Connect a program|not known/);
  });

  test('cookies are for this host alone and out of reach of scripts', async () => {
    const page = await rig.browse('/sign-up');
    const cookies = [page.headers['set-cookie'] ?? []].flat();
    expect(cookies.length).toBeGreaterThan(0);
    for (const cookie of cookies) {
      expect(cookie).toMatch(/HttpOnly/);
      expect(cookie).toMatch(/SameSite=Lax/);
      expect(cookie).not.toMatch(/Domain/i);
    }
  });

  test('what is stored is shown as text', async () => {
    const browser = await signedUp();
    const account = await login(browser);
    await give(rig, account, '0.01', { memo: '<img src=x onerror=alert(1)>' });
    const page = await browser.get('/dashboard');
    expect(page.text).toContain('&lt;img src=x onerror=alert(1)&gt;');
    expect(page.text).not.toContain('<img');
  });
});

describe('credentials', () => {
  test('are listed without their secrets, made, and revoked at once', async () => {
    const account = await anonymous(rig);
    const call = (path: string, init: RequestInit = {}, who = account) =>
      fetch(`${rig.pay}/me${path}`, { ...init, headers: bearer(who) });
    const made = (await (await call('/credentials', { method: 'POST' })).json()) as { id: string; credential: string };
    const listed = await (await call('/credentials')).text();
    expect(listed).toContain(made.id);
    expect(listed).not.toContain(made.credential);
    const second = { id: account.id, credential: made.credential };
    expect((await call('', {}, second)).status).toBe(200);
    const stranger = await anonymous(rig);
    expect((await call(`/credentials/${made.id}`, { method: 'DELETE' }, stranger)).status).toBe(404);
    expect((await call(`/credentials/${made.id}`, { method: 'DELETE' })).status).toBe(204);
    expect((await call('', {}, second)).status).toBe(401);
    expect((await call('')).status).toBe(200);
  });

  test('are revoked and made on the dashboard, and shown there once', async () => {
    const browser = await signedUp();
    const account = await login(browser);
    await browser.get('/dashboard');
    await browser.submit('/dashboard/revoke', {});
    expect((await fetch(`${rig.pay}/me`, { headers: bearer(account) })).status).toBe(401);
    const page = await browser.submit('/dashboard/credentials', {});
    const credential = /<code id="issued">(tpk_[\w-]+)</.exec(page.text)?.[1] ?? '';
    expect((await fetch(`${rig.pay}/me`, { headers: bearer({ credential }) })).status).toBe(200);
    expect((await browser.get('/dashboard')).text).not.toContain(credential);
  });
});

describe('buying credit', () => {
  const purchaseUrl = () => `${rig.pay}/deals-watches/plans/default/purchase`;
  const buy = (
    account: TestAccount | undefined,
    amountUsd: unknown,
    client: { fetch: typeof fetch } = { fetch },
    more: object = {},
  ) =>
    client.fetch(purchaseUrl(), {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(account ? bearer(account) : {}) },
      body: JSON.stringify({ amountUsd, ...more }),
    });
  const walletKey = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

  test.each([
    '4.99',
    '5.001',
    '5e0',
    ' 5',
    '5 ',
    '-5',
    '+5',
    '٥',
    '5.',
    '.5',
    '5,00',
    '0005',
    '1234567',
    '',
    5,
    null,
    ['5'],
  ])('amountUsd %j is refused', async (amountUsd) => {
    const account = await anonymous(rig);
    const answer = await buy(account, amountUsd);
    // 0005 is five dollars in six digits; everything else here is no amount, or too small.
    expect(answer.status).toBe(amountUsd === '0005' ? 402 : 400);
  });

  test.each(['5', '5.0', '5.00'])('amountUsd %j asks for five dollars', async (amountUsd) => {
    const answer = await buy(await anonymous(rig), amountUsd);
    expect(answer.status).toBe(402);
    const required = JSON.parse(Buffer.from(answer.headers.get('payment-required') ?? '', 'base64').toString());
    expect(required.accepts[0].amount).toBe('5000000');
  });

  test.each(['MPP', 'x402'] as const)(
    'a stock %s client pays; one grant, and the origin is told at once',
    async (protocol) => {
      const account = await anonymous(rig);
      const client = protocol === 'MPP' ? mppClient(network, walletKey(0)) : x402Client(network, walletKey(1));
      const token = protocol === 'MPP' ? 'tempo' : 'usdc';
      const before = await balance(network, token, client.address);
      const answer = await buy(account, '5.00', client);
      expect(answer.status).toBe(201);
      expect(await answer.json()).toMatchObject({ accountId: account.id, amountUsd: '5.00', balanceUsd: '5.00' });
      expect(before - (await balance(network, token, client.address))).toBe(5_000_000n);
      await expect
        .poll(() => events)
        .toContainEqual(
          expect.objectContaining({ type: 'credit_granted', accountId: account.id, balanceMicroUsd: '5000000' }),
        );
      expect(await ledgerIsSound(rig)).toBe(true);
    },
  );

  test('the same payment 20 times at once and once more is one grant', async () => {
    const account = await anonymous(rig);
    const client = mppClient(network, walletKey(2));
    await buy(account, '6.00', client);
    const headers = { authorization: client.sent.authorization ?? '', 'content-type': 'application/json' };
    const again = () => fetch(purchaseUrl(), { method: 'POST', headers, body: JSON.stringify({ amountUsd: '6.00' }) });
    const answers = [...(await Promise.all(Array.from({ length: 20 }, again))), await again()];
    for (const answer of answers) expect(answer.status).toBeLessThan(500);
    expect(answers.at(-1)?.status).toBe(201);
    expect(await balanceOf(rig, account)).toBe(6_000_000);
    const other = await fetch(purchaseUrl(), {
      method: 'POST',
      headers,
      body: JSON.stringify({ amountUsd: '600.00' }),
    });
    expect(other.status).toBe(402);
    expect(await balanceOf(rig, account)).toBe(6_000_000);
  });

  test('a platform that died between the payment and the grant grants after its start', async () => {
    const account = await anonymous(rig);
    const client = mppClient(network, walletKey(3));
    // The database dies at the moment of the grant: the payment is taken by then.
    await rig.sql(
      `CREATE TRIGGER test_crash BEFORE INSERT ON grants BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`,
    );
    const lost = await buy(account, '7.00', client);
    expect(lost.status).toBe(500);
    await rig.sql('DROP TRIGGER test_crash');
    expect(await balanceOf(rig, account)).toBe(0);
    await rig.restart();
    await rig.sql('UPDATE purchases SET created_at = created_at - 600000');
    await rig.sweep();
    expect(await balanceOf(rig, account)).toBe(7_000_000);
    await rig.sweep();
    expect(await balanceOf(rig, account)).toBe(7_000_000);
  });

  test('without an account it says how to get one; for another’s account anybody may pay', async () => {
    const nobody = await buy(undefined, '5.00');
    expect(nobody.status).toBe(401);
    expect(await nobody.text()).toContain('accounts/anonymous');
    const account = await anonymous(rig);
    const client = x402Client(network, walletKey(4));
    expect((await buy(undefined, '5.00', client, { accountId: account.id })).status).toBe(201);
    expect(await balanceOf(rig, account)).toBe(5_000_000);
    expect((await fetch(`${rig.pay}/deals-watches/plans/none/purchase`, { method: 'POST', body: '{}' })).status).toBe(
      404,
    );
  });

  test('an origin that is away is told later', async () => {
    originIsDown = true;
    const account = await anonymous(rig);
    await give(rig, account, '1.00');
    await rig.sweep();
    expect(events).toEqual([]);
    originIsDown = false;
    await rig.sql('UPDATE origin_events SET next_at = 0');
    await rig.sweep();
    expect(events).toContainEqual(expect.objectContaining({ accountId: account.id }));
    const [left] = await rig.sql<{ n: number }>('SELECT count(*) AS n FROM origin_events');
    expect(Number(left?.n)).toBe(0);
  });
});

describe('the statement', () => {
  test('has every movement with its request, as JSON and CSV, and how long the credit lasts', async () => {
    const account = await anonymous(rig);
    await give(rig, account, '1.00', { memo: '=HYPERLINK("x"), "quoted"' });
    for (const day of [1, 2]) {
      await internal(rig, '/charges', {
        key: `watch_day:w1:${day}`,
        accountId: account.id,
        serviceSlug: 'deals-watches',
        usage: [{ meterSlug: 'watch_day', quantity: 1 }],
      });
    }
    const me = await fetch(`${rig.pay}/me`, { headers: bearer(account) });
    const body = (await me.json()) as { lines: { amountUsd: string; requestId: string | null }[]; runwayDays: number };
    expect(body).toMatchObject({ balanceUsd: '0.80', heldUsd: '0.00', runwayDays: 28 });
    expect(body.lines.map(({ amountUsd }) => amountUsd)).toEqual(['-0.10', '-0.10', '1.00']);
    expect(body.lines[0]?.requestId).toBe('watch_day:w1:2');
    const csv = await (await fetch(`${rig.pay}/me?format=csv`, { headers: bearer(account) })).text();
    const lines = csv.split('\r\n');
    expect(lines).toHaveLength(5);
    expect(lines[0]).toBe('id,at,kind,amount_usd,service,usage,request_id,memo');
    expect(lines[3]).toContain(`"'=HYPERLINK(""x""), ""quoted"""`);
    expect(lines[1]).toContain(',-0.10,');
  });

  test('is whole as CSV, however long it is', async () => {
    const account = await anonymous(rig);
    await give(rig, account, '200.00');
    for (let batch = 0; batch < 11; batch++) {
      const charges = Array.from({ length: 100 }, (_, index) => ({
        key: `watch_day:long:${batch * 100 + index}`,
        accountId: account.id,
        serviceSlug: 'deals-watches',
        usage: [{ meterSlug: 'watch_day', quantity: 1 }],
      }));
      expect((await internal(rig, '/charges/batch', { charges })).status).toBe(200);
    }
    const read = async (more: string) => {
      const answer = await fetch(`${rig.pay}/me?format=csv${more}`, { headers: bearer(account) });
      const [, ...lines] = (await answer.text()).trimEnd().split('\r\n');
      return lines.map((line) => line.split(',')[6]);
    };
    const keys = Array.from({ length: 1_100 }, (_, index) => `watch_day:long:${1_099 - index}`);
    expect((await read('')).slice(0, 1_100)).toEqual(keys);
    expect(await read('')).toHaveLength(1_101);
    const page = (await (await fetch(`${rig.pay}/me`, { headers: bearer(account) })).json()) as { cursor: string };
    expect((await read(`&before=${page.cursor}`)).slice(0, 100)).toEqual(keys.slice(1_000));
  });
});

describe('the auth.md protocol', () => {
  const json = async (path: string) => (await fetch(`${rig.pay}${path}`)).json();
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${rig.pay}${path}`, { method: 'POST', body: JSON.stringify(body) });
    return { status: answer.status, body: (await answer.json()) as Record<string, string> };
  };
  const token = async (fields: Record<string, string>) => {
    const answer = await form('/oauth/token', fields);
    return { status: answer.status, body: (await answer.json()) as Record<string, string> };
  };
  const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
  const CLAIM = 'urn:workos:agent-auth:grant-type:claim';
  const registered = async () => (await post('/agent/identity', { type: 'anonymous' })).body;
  const exchanged = (assertion = '') => token({ grant_type: JWT_BEARER, assertion });
  const meOf = (credential = '') => fetch(`${rig.pay}/me`, { headers: { authorization: `Bearer ${credential}` } });

  test('is found from a 401, by two hops of metadata', async () => {
    const denied = await fetch(`${rig.pay}/me`);
    expect(denied.headers.get('www-authenticate')).toBe(
      `Bearer resource_metadata="${rig.pay}/.well-known/oauth-protected-resource"`,
    );
    expect(await json('/.well-known/oauth-protected-resource')).toEqual({
      resource: rig.pay,
      resource_name: 'Pay',
      authorization_servers: [rig.pay],
      scopes_supported: ['account'],
      bearer_methods_supported: ['header'],
      resource_documentation: `${rig.pay}/auth.md`,
    });
    expect(await json('/.well-known/oauth-authorization-server')).toMatchObject({
      issuer: rig.pay,
      token_endpoint: `${rig.pay}/oauth/token`,
      grant_types_supported: ['urn:ietf:params:oauth:grant-type:device_code', JWT_BEARER, CLAIM],
      agent_auth: {
        skill: `${rig.pay}/auth.md`,
        identity_endpoint: `${rig.pay}/agent/identity`,
        claim_endpoint: `${rig.pay}/agent/identity/claim`,
        identity_types_supported: ['anonymous'],
      },
    });
    const text = await fetch(`${rig.pay}/auth.md`);
    expect(text.headers.get('content-type')).toContain('text/markdown');
    for (const endpoint of ['/agent/identity', '/agent/identity/claim', '/oauth/token'])
      expect(await text.clone().text()).toContain(`POST ${rig.pay}${endpoint}`);
  });

  test('an agent registers, exchanges its assertion, and a person claims the account with what is on it', async () => {
    const registration = await registered();
    expect(registration).toMatchObject({
      registration_id: expect.stringMatching(/^reg_/),
      registration_type: 'anonymous',
      pre_claim_scopes: ['account'],
      claim_url: `${rig.pay}/agent/identity/claim`,
      claim_token: expect.stringMatching(/^clm_/),
    });
    const got = await exchanged(registration.identity_assertion);
    expect(got).toMatchObject({ status: 200, body: { token_type: 'Bearer', scope: 'account' } });
    const { access_token: credential = '', account_id: id = '' } = got.body;
    expect(await (await meOf(credential)).json()).toMatchObject({ accountId: id, kind: 'anonymous', claimed: false });
    const claimed = () => token({ grant_type: CLAIM, claim_token: registration.claim_token ?? '' });
    expect((await claimed()).body.error).toBe('invalid_grant');
    const begun = await post('/agent/identity/claim', { claim_token: registration.claim_token, email: 'a@b.example' });
    const attempt = begun.body.claim_attempt as unknown as Record<string, string>;
    expect(attempt).toMatchObject({ verification_uri: `${rig.pages}/device`, expires_in: 600, interval: 5 });
    expect((await claimed()).body.error).toBe('authorization_pending');
    expect((await claimed()).body.error).toBe('slow_down');
    const browser = await signedUp();
    await browser.get(`/device?user_code=${attempt.user_code}`);
    await browser.submit('/device', { decision: 'allow' });
    await waited();
    const all = await Promise.all([claimed(), claimed(), claimed()]);
    expect(all.filter(({ status }) => status === 200)).toHaveLength(1);
    const later = all.find(({ status }) => status === 200)?.body.access_token;
    for (const each of [credential, later])
      expect(await (await meOf(each)).json()).toMatchObject({ accountId: id, claimed: true });
    expect(await exchanged(registration.identity_assertion)).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant' },
    });
    expect(await post('/agent/identity/claim', { claim_token: registration.claim_token })).toMatchObject({
      status: 409,
      body: { error: 'previously_claimed' },
    });
    const stored = JSON.stringify(await rig.sql('SELECT * FROM agent_registrations'));
    expect(stored).not.toContain(registration.claim_token);
  });

  test('a person who was not the one to claim it gets no credential to the agent', async () => {
    const registration = await registered();
    const codes = await Promise.all(
      [1, 2].map(async () => {
        const { body } = await post('/agent/identity/claim', { claim_token: registration.claim_token });
        return (body.claim_attempt as unknown as { user_code: string }).user_code;
      }),
    );
    for (const code of codes) {
      const browser = await signedUp();
      await browser.get(`/device?user_code=${code}`);
      await browser.submit('/device', { decision: 'allow' });
    }
    await waited();
    const [row] = await rig.sql<{ device_hash: string }>(
      'SELECT device_hash FROM agent_registrations WHERE id = ?',
      registration.registration_id ?? '',
    );
    const [code] = await rig.sql<{ human_id: string; owner: string }>(
      'SELECT d.human_id, a.human_id AS owner FROM device_codes d JOIN accounts a ON a.id = d.claimed_account WHERE d.hash = ?',
      row?.device_hash ?? '',
    );
    const { status, body } = await token({ grant_type: CLAIM, claim_token: registration.claim_token ?? '' });
    if (code?.human_id === code?.owner) expect(status).toBe(200);
    else expect([status, body.error]).toEqual([400, 'access_denied']);
  });

  test.each([
    ['nothing', () => ''],
    ['another signature', (good: string) => `${good.slice(0, -3)}abc`],
    [
      'another registration',
      (good: string) => {
        const [head, claims = '', mac] = good.split('.');
        const changed = { ...JSON.parse(Buffer.from(claims, 'base64url').toString()), sub: 'reg_x' };
        return [head, Buffer.from(JSON.stringify(changed)).toString('base64url'), mac].join('.');
      },
    ],
    ['no signature', (good: string) => `${Buffer.from('{"alg":"none"}').toString('base64url')}.${good.split('.')[1]}.`],
  ])('an assertion with %s gives nothing', async (_what, change) => {
    const { identity_assertion = '' } = await registered();
    expect(await exchanged(change(identity_assertion))).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant' },
    });
  });

  test('methods that are not taken are named, and what is no method is refused', async () => {
    for (const [body, status, error] of [
      [{ type: 'service_auth', login_hint: 'a@b.example' }, 403, 'service_auth_not_enabled'],
      [{ type: 'identity_assertion', assertion: 'x' }, 403, 'issuer_not_enabled'],
      [{ type: 'other' }, 400, 'invalid_request'],
      [[], 400, 'invalid_request'],
    ] as const)
      expect(await post('/agent/identity', body)).toMatchObject({ status, body: { error } });
    expect(await post('/agent/identity/claim', { claim_token: 'clm_x' })).toMatchObject({
      status: 400,
      body: { error: 'invalid_claim_token' },
    });
    await rig.sql('UPDATE agent_registrations SET claim_expires_at = 1');
    const { claim_token } = await registered();
    await rig.sql('UPDATE agent_registrations SET claim_expires_at = 1');
    expect((await post('/agent/identity/claim', { claim_token })).body.error).toBe('claim_expired');
    await rig.sweep();
    expect(await rig.sql('SELECT * FROM agent_registrations')).toEqual([]);
  });
});
