/** What accounts are told: decided by the ledger's transactions, once for each time, whatever is called how often. */
import { Webhook } from 'standardwebhooks';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { Ledger } from '../../builtin-tenants/pay/src/credit/ledger.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import { KEPT_EVENTS } from '../../builtin-tenants/pay/src/database/notices.ts';
import { Webhooks } from '../../builtin-tenants/pay/src/notices/webhooks.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const WORK = { account: 'acc_a', service: 'deals', usage: '[]' };
let db: MemoryDatabase;
let ledger: Ledger;
let webhooks: Webhooks;
let now: number;
let keys = 0;

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  now = Date.UTC(2026, 10, 26);
  ledger = new Ledger(db, () => now);
  webhooks = new Webhooks(db, () => now);
  for (const id of ['acc_a', 'acc_b'])
    db.sql("INSERT INTO accounts (id, kind, created_at) VALUES (?, 'anonymous', ?)", id, now);
  await grant(1_000);
});
afterEach(() => {
  vi.unstubAllGlobals();
  db.close();
});

const grant = (amount: number, more: object = {}) =>
  ledger.grant({ key: `g${++keys}`, account: 'acc_a', amount, source: 'purchase', promotional: false, ...more });
const charge = (amount: number) => ledger.charge({ ...WORK, key: `c${++keys}`, amount });
const told = () =>
  db
    .sql<{ type: string; data: string }>('SELECT type, data FROM webhook_events ORDER BY place')
    .map(({ type, data }) => [type, JSON.parse(data)]);
const types = () => told().map(([type]) => type);

describe('credit that falls below what the account has named', () => {
  beforeEach(async () => {
    await webhooks.add('acc_a', 'https://a.example/');
    await webhooks.add('acc_b', 'https://b.example/');
    await webhooks.setLowBalance('acc_a', 500);
  });

  test('is told once, and again after it was enough', async () => {
    await charge(500);
    expect(told()).toEqual([]);
    await charge(1);
    await charge(1);
    expect(told()).toEqual([['balance_low', { balance: 499, lowBalance: 500 }]]);
    await grant(1);
    await grant(1);
    expect(await webhooks.notices('acc_a')).toMatchObject({ isLow: false });
    await charge(1);
    expect(types()).toEqual(['balance_low', 'balance_low']);
    expect(db.sql('SELECT DISTINCT account FROM webhook_events e JOIN webhooks w ON w.id = e.webhook')).toEqual([
      { account: 'acc_a' },
    ]);
  });

  test('twenty charges at once tell it once', async () => {
    await Promise.all(Array.from({ length: 20 }, () => charge(30)));
    expect(types()).toEqual(['balance_low']);
  });

  test('what is held counts until it is taken, and a call that fails tells nothing', async () => {
    for (const [hold, amount] of [
      ['h1', 900],
      ['h2', 50],
    ] as const)
      await ledger.hold(hold, { ...WORK, amount });
    await ledger.release('h1');
    expect(types()).toEqual([]);
    await ledger.hold('h3', { ...WORK, amount: 600 });
    await ledger.capture('h2');
    expect(types()).toEqual([]);
    await ledger.capture('h3');
    expect(told()).toEqual([['balance_low', { balance: 350, lowBalance: 500 }]]);
  });

  test('credit that ends is told, too', async () => {
    await charge(600);
    await grant(1_000, { expiresAt: now + 1 });
    now += 1;
    await ledger.expireGrants();
    expect(types()).toEqual(['balance_low', 'balance_low']);
  });

  test('a threshold above the credit says so at once, and tells nothing', async () => {
    await webhooks.setLowBalance('acc_a', 5_000);
    expect(await webhooks.notices('acc_a')).toMatchObject({ lowBelow: 5_000, isLow: true });
    await charge(1);
    expect(told()).toEqual([]);
    await webhooks.setLowBalance('acc_a', null);
    await charge(999);
    expect(told()).toEqual([]);
  });
});

describe('work that a service suspends', () => {
  test('is told once, with the least price, and over when there is credit for it', async () => {
    await webhooks.add('acc_a', 'https://a.example/');
    await Promise.all([1_500, 1_200, 1_300].map((price) => webhooks.suspended('acc_a', price)));
    expect(told()).toHaveLength(1);
    expect(await webhooks.notices('acc_a')).toMatchObject({ isSuspended: true });
    await grant(199);
    expect(types()).toEqual(['account_suspended']);
    await grant(1);
    expect(told()[1]).toEqual(['account_resumed', { balance: 1_200 }]);
    expect(await webhooks.notices('acc_a')).toMatchObject({ isSuspended: false });
  });

  test('credit that came in between suspends nothing', async () => {
    await webhooks.add('acc_a', 'https://a.example/');
    await grant(1_000);
    await webhooks.suspended('acc_a', 2_000);
    expect(told()).toEqual([]);
  });
});

test('a receiver that is away fills the database up to a limit, and what is newest stays', async () => {
  const { id } = await webhooks.add('acc_a', 'https://a.example/');
  await webhooks.add('acc_a', 'https://other.example/');
  for (let n = 0; n < KEPT_EVENTS + 5; n++) {
    now += 1;
    await webhooks.test('acc_a', id);
  }
  const kept = db.sql<{ at: number }>('SELECT at FROM webhook_events WHERE webhook = ? ORDER BY place', id);
  expect(kept).toHaveLength(KEPT_EVENTS);
  expect([kept[0]?.at, kept.at(-1)?.at]).toEqual([now - KEPT_EVENTS + 1, now]);
});

test.each([
  'ftp://a.example/',
  'https://user:word@a.example/',
  'a.example',
  `https://a.example/${'x'.repeat(2_000)}`,
  'http://mailer.internal/',
  'http://mailer.internal.:80/x',
  'https://origin.example:8443/internal',
  7,
])('%s is no webhook', async (url) => {
  db.sql("UPDATE services SET origin = 'https://origin.example:8443/api' WHERE slug = 'deals'");
  await expect(webhooks.add('acc_a', url)).rejects.toMatchObject({ code: 'invalid_field' });
});

test('an account has five webhooks, also when it adds ten at once, and those of others are out of its reach', async () => {
  const added = await Promise.allSettled(
    Array.from({ length: 10 }, (_, n) => webhooks.add('acc_a', `https://a${n}.example/`)),
  );
  expect(added.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
  const [mine] = await webhooks.list('acc_a');
  expect(await webhooks.remove('acc_b', mine?.id ?? '')).toBe(false);
  expect(await webhooks.test('acc_b', mine?.id ?? '')).toBeUndefined();
  expect(await webhooks.list('acc_b')).toEqual([]);
});

test('an event has one id in every attempt, in order, and a 410 ends the webhook', async () => {
  const { id, secret } = await webhooks.add('acc_a', 'https://a.example/');
  const sent: { id: string; body: unknown }[] = [];
  let status = 500;
  vi.stubGlobal('fetch', async (_url: string, init: { headers: Record<string, string>; body: string }) => {
    sent.push({ id: init.headers['webhook-id'] ?? '', body: new Webhook(secret).verify(init.body, init.headers) });
    return new Response(null, { status });
  });
  await webhooks.setLowBalance('acc_a', 500);
  await charge(600);
  await webhooks.test('acc_a', id);
  await webhooks.deliver();
  // The second waits for the first.
  expect(sent).toHaveLength(1);
  expect(sent[0]?.body).toMatchObject({ type: 'balance_low', accountId: 'acc_a', balanceUsd: '0.0004' });
  db.sql('UPDATE webhook_events SET next_at = 0');
  status = 204;
  await webhooks.deliver();
  expect(sent.map(({ body }) => (body as { type: string }).type)).toEqual(['balance_low', 'balance_low', 'test']);
  expect(sent[1]).toEqual(sent[0]);
  expect((await webhooks.list('acc_a'))[0]?.lastEvent).toMatchObject({ type: 'test', delivery: 'delivered' });
  await webhooks.test('acc_a', id);
  status = 410;
  await webhooks.deliver();
  expect(await webhooks.list('acc_a')).toEqual([]);
  expect(db.sql('SELECT * FROM webhook_events')).toEqual([]);
});

test('no webhook, no event: the ledger is as it was', async () => {
  await charge(1_000);
  await webhooks.suspended('acc_a', 1);
  expect(told()).toEqual([]);
  expect(db.sql('SELECT * FROM account_notices')).toEqual([]);
});
