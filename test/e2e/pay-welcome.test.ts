/** The welcome bonus where money is real: for a confirmed address, once per mailbox, with an end and a limit. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { Browser } from './support/pay-browser.ts';
import { type PayRig, startPayRig } from './support/pay-rig.ts';
import { startNetwork } from './support/payments-rig.ts';
import { startMail, type TestMail } from './support/smtp.ts';

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
    // Two bonuses in all.
    secrets: {
      PAY_NETWORK: 'tempo',
      WELCOME_DAYS: '30',
      WELCOME_TOTAL_USD: '10.00',
      MAILER_URL: 'http://mailer.internal',
    },
    allow: [`unix:${mail.socket}`],
  });
});
afterAll(async () => {
  await rig?.stop();
  await mail?.stop();
  await stopNetwork?.();
});
beforeEach(async () => {
  await rig.sql('DELETE FROM rate_limits');
});

async function signUp(email: string, at = rig): Promise<Browser> {
  const browser = new Browser(at);
  await browser.get('/sign-up');
  expect((await browser.submit('/sign-up', { email, password: 'correct horse battery' })).status).toBe(200);
  return browser;
}

/** Has a code sent, and answers it with the whole e-mail. */
async function sentCode(browser: Browser): Promise<{ code: string; email: string }> {
  const before = received.length;
  expect((await browser.submit('/dashboard/email-code', { code: '' })).status).toBe(200);
  expect(received).toHaveLength(before + 1);
  const email = received.at(-1) ?? '';
  return { code: /Your code is (\d{8})/.exec(email)?.[1] ?? '', email };
}

const grants = () =>
  rig.sql<{ amount: number; promotional: number; expires_at: number | null; created_at: number }>(
    "SELECT amount, promotional, expires_at, created_at FROM grants WHERE source = 'welcome' ORDER BY created_at",
  );

test('an address that nobody confirmed gets nothing, a confirmed one gets credit with an end', async () => {
  const browser = await signUp('ann@example.com');
  expect(browser.last.text).toContain('Confirm your e-mail address');
  expect(await grants()).toEqual([]);
  const { code, email } = await sentCode(browser);
  expect(email).toMatch(/^To: ann@example\.com$/m);
  expect(email).toMatch(/^From: pay@example\.com$/m);
  const wrong = String((Number(code) + 1) % 100_000_000).padStart(8, '0');
  expect((await browser.submit('/dashboard/email-code', { code: wrong })).status).toBe(400);
  expect(await grants()).toEqual([]);
  await browser.get('/dashboard');
  await browser.submit('/dashboard/email-code', { code });
  expect(browser.last.text).toContain('Welcome bonus');
  expect(browser.last.text).not.toContain('Confirm your e-mail address');
  const [grant, ...others] = await grants();
  expect(others).toEqual([]);
  expect(grant).toMatchObject({ amount: 5_000_000, promotional: 1 });
  expect((grant?.expires_at ?? 0) - (grant?.created_at ?? 0)).toBeGreaterThan(29 * 86_400_000);
  await browser.get('/dashboard');
  expect(await grants()).toHaveLength(1);
});

test('a mailbox gets it once, however it is spelled, and all of them together no more than the limit', async () => {
  const again = await signUp('ann+2@example.com');
  expect(again.last.text).not.toContain('Confirm your e-mail address');
  const people = await Promise.all(['bob', 'cem', 'dia'].map((name) => signUp(`${name}@example.com`)));
  for (const person of people)
    await person.submit('/dashboard/email-code', { code: (await sentCode(person)).code }).catch(() => undefined);
  // Ann's and one more.
  expect(await grants()).toHaveLength(2);
});

test('a guess is one of ten in an hour, and a code goes to a mailbox five times', async () => {
  await rig.sql('DELETE FROM welcomed');
  const browser = await signUp('eve@example.com');
  for (let count = 0; count < 5; count += 1) await sentCode(browser);
  const form = browser.last;
  expect((await browser.submit('/dashboard/email-code', { code: '' })).status).toBe(429);
  for (let count = 0; count < 10; count += 1) {
    browser.last = form;
    await browser.submit('/dashboard/email-code', { code: '00000000' });
  }
  browser.last = form;
  expect((await browser.submit('/dashboard/email-code', { code: '00000000' })).status).toBe(429);
});

test('where no e-mail can be sent, there is no bonus', async () => {
  const silent = await startPayRig(network, { secrets: { PAY_NETWORK: 'tempo' } });
  try {
    const browser = await signUp('fay@example.com', silent);
    expect(browser.last.text).not.toContain('Welcome bonus');
    expect(await silent.sql("SELECT 1 FROM grants WHERE source = 'welcome'")).toEqual([]);
  } finally {
    await silent.stop();
  }
});
