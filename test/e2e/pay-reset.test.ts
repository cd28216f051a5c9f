/** Password reset: the link comes by e-mail or from the operator, works once, and does not reveal who has an account. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { Browser } from './support/pay-browser.ts';
import { OPERATOR_KEY, type PayRig, startPayRig } from './support/pay-rig.ts';
import { startNetwork } from './support/payments-rig.ts';
import { startMail, type TestMail } from './support/smtp.ts';
import { until } from './support/until.ts';

const FIRST = 'correct horse battery';
const SECOND = 'another horse battery';

let network: Network;
let stopNetwork: () => Promise<void>;
let mail: TestMail;
let rig: PayRig;
let received: string[];

beforeAll(async () => {
  ({ network, stop: stopNetwork } = await startNetwork());
  mail = await startMail();
  received = mail.received;
  rig = await startPayRig(network, {
    secrets: { MAILER_URL: 'http://mailer.internal' },
    allow: [`unix:${mail.socket}`],
  });
});
afterAll(async () => {
  await rig?.stop();
  await mail?.stop();
  await stopNetwork?.();
});
beforeEach(async () => {
  received.length = 0;
  await rig.sql('DELETE FROM rate_limits');
});

async function signUp(email: string): Promise<Browser> {
  const browser = new Browser(rig);
  await browser.get('/sign-up');
  expect((await browser.submit('/sign-up', { email, password: FIRST })).status).toBe(200);
  return browser;
}

async function signIn(email: string, password: string): Promise<number> {
  const browser = new Browser(rig);
  await browser.get('/sign-in');
  return (await browser.submit('/sign-in', { email, password })).status;
}

async function ask(email: string): Promise<Browser> {
  const browser = new Browser(rig);
  await browser.get('/reset');
  await browser.submit('/reset', { email });
  return browser;
}

/** The path of the link in the newest e-mail to an address, once it got so many; the text is quoted-printable. */
async function mailed(to: string, count = 1): Promise<string> {
  const emails = () => received.filter((email) => email.includes(`To: ${to}\r\n`));
  const email = await until(() => (emails().length >= count ? emails().at(-1) : undefined));
  const link = /\/reset\/new\?token=tpr_[\w-]{43}(?=\s)/.exec(
    email.replaceAll('=\r\n', '').replaceAll('=3D', '='),
  )?.[0];
  if (!link) throw new Error(`no link in:\n${email}`);
  return link;
}

test('a link from the mailbox sets a new password, once, and ends all sessions', async () => {
  const before = await signUp('ann@example.com');
  expect((await ask(' Ann@EXAMPLE.com ')).last.text).toContain('Look into your mailbox');
  const link = await mailed('ann@example.com');
  const browser = new Browser(rig);
  expect((await browser.get(link)).status).toBe(200);
  const form = browser.last;
  const short = await browser.submit('/reset/new', { password: 'short' });
  expect([short.status, short.text.includes('10 to 200 characters')]).toEqual([400, true]);
  expect((await browser.submit('/reset/new', { password: SECOND })).text).toContain('Your password is changed');
  // Signed in with the old password: over.
  expect((await before.get('/dashboard')).text).toContain('action="/sign-in"');
  expect([await signIn('ann@example.com', FIRST), await signIn('ann@example.com', SECOND)]).toEqual([401, 200]);
  browser.last = form;
  expect((await browser.submit('/reset/new', { password: 'a third horse battery' })).status).toBe(404);
  expect((await browser.get(link)).text).toContain('This link was used');
  const [person] = await rig.sql("SELECT confirmed_at FROM humans WHERE email = 'ann@example.com'");
  expect(person?.confirmed_at).toBeGreaterThan(0);
});

test('nobody learns whether an address has an account, and no mailbox is flooded', async () => {
  await signUp('bob@example.com');
  const unknown = (await ask('nobody@example.com')).last;
  const known = (await ask('bob@example.com')).last;
  const plain = ({ status, text }: { status: number; text: string }) => [
    status,
    text.replace(/csrf" value="[^"]*"/g, ''),
  ];
  expect(plain(known)).toEqual(plain(unknown));
  const asked = async () =>
    (await rig.sql<{ count: number }>("SELECT count FROM rate_limits WHERE bucket = 'reset:bob@example.com'"))[0]
      ?.count;
  for (let count = 2; count <= 3; count += 1) {
    await mailed('bob@example.com', count - 1);
    await ask('bob@example.com');
  }
  await mailed('bob@example.com', 3);
  await ask('bob@example.com');
  await until(async () => (await asked()) === 4 || undefined);
  expect(received).toHaveLength(3);
  await rig.sql('DELETE FROM rate_limits');
  const statuses = [];
  for (let count = 0; count < 7; count += 1) statuses.push((await ask('nobody@example.com')).last.status);
  expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429]);
});

test('of many at once one has the link, an old one is over, and a guess finds nothing', async () => {
  await signUp('cem@example.com');
  await ask('cem@example.com');
  const link = await mailed('cem@example.com');
  const browsers = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const browser = new Browser(rig);
      await browser.get(link);
      return browser;
    }),
  );
  const answers = await Promise.all(
    browsers.map((browser, index) => browser.submit('/reset/new', { password: `password number ${index}` })),
  );
  const won = answers.flatMap(({ status }, index) => (status === 200 ? [index] : []));
  expect(won).toHaveLength(1);
  expect(await signIn('cem@example.com', `password number ${won[0]}`)).toBe(200);
  await ask('cem@example.com');
  const old = await mailed('cem@example.com', 2);
  await rig.sql('UPDATE password_resets SET expires_at = ?', Date.now() - 1);
  expect((await new Browser(rig).get(old)).status).toBe(404);
  for (const token of ['', 'tpr_', `tpr_${'A'.repeat(43)}`, "' OR 1=1 --"])
    expect((await new Browser(rig).get(`/reset/new?token=${encodeURIComponent(token)}`)).status).toBe(404);
});

test('the operator makes a link for who has no way to their e-mails', async () => {
  await signUp('dia@example.com');
  const make = (email: string, key = OPERATOR_KEY) =>
    fetch(`${rig.pay}/operator/reset-links`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ email }),
    });
  expect((await make('dia@example.com', 'wrong')).status).toBe(401);
  expect((await make('nobody@example.com')).status).toBe(404);
  const { url, expiresAt } = (await (await make('dia@example.com')).json()) as { url: string; expiresAt: string };
  expect(url.startsWith(`${rig.pages}/reset/new?token=tpr_`)).toBe(true);
  expect(Date.parse(expiresAt)).toBeGreaterThan(Date.now());
  expect(received).toEqual([]);
  const browser = new Browser(rig);
  await browser.get(url.slice(rig.pages.length));
  expect((await browser.submit('/reset/new', { password: SECOND })).status).toBe(200);
  expect(await signIn('dia@example.com', SECOND)).toBe(200);
});

test('who signed up with an address that is not theirs keeps nothing of it', async () => {
  const thief = await signUp('eve@example.com');
  const made = async (browser: Browser) => {
    await browser.get('/dashboard');
    const { text } = await browser.submit('/dashboard/credentials', {});
    return /tpk_[\w-]{43}/.exec(text)?.[0] ?? '';
  };
  const me = async (credential: string, place: string, body?: object) => {
    const headers = { authorization: `Bearer ${credential}`, 'content-type': 'application/json' };
    const init = body && { method: 'POST', body: JSON.stringify(body) };
    return (await fetch(`${rig.pay}/me${place}`, { headers, ...init })).status;
  };
  const credential = await made(thief);
  expect(await me(credential, '/renewals', { slug: 'thiefs', mostUsd: '1.00' })).toBe(201);
  expect(await me(credential, '/webhooks', { url: 'https://example.com/hook' })).toBe(201);
  await ask('eve@example.com');
  const owner = new Browser(rig);
  await owner.get(await mailed('eve@example.com'));
  const done = await owner.submit('/reset/new', { password: SECOND });
  expect(done.text).toContain('are disconnected, too');
  expect(await me(credential, '')).toBe(401);
  const [left] = await rig.sql(
    'SELECT (SELECT count(*) FROM renewals WHERE ended_at IS NULL) AS renewals, (SELECT count(*) FROM webhooks) AS webhooks',
  );
  expect(left).toEqual({ renewals: 0, webhooks: 0 });
  // Of who has confirmed the address, programs stay connected.
  await owner.get('/sign-in');
  await owner.submit('/sign-in', { email: 'eve@example.com', password: SECOND });
  const own = await made(owner);
  await ask('eve@example.com');
  await owner.get(await mailed('eve@example.com', 2));
  expect((await owner.submit('/reset/new', { password: FIRST })).text).toContain('Programs stay connected');
  expect(await me(own, '')).toBe(200);
});
