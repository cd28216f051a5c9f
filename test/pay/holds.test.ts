/** A call is noted in the transaction that holds its credit: both are there or neither, whatever becomes of the answer. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { Ledger } from '../../builtin-tenants/pay/src/credit/ledger.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import type { Env } from '../../builtin-tenants/pay/src/environment.ts';
import { type CallClaim, Calls } from '../../builtin-tenants/pay/src/gateway/calls.ts';
import { createPlatform, sweep } from '../../builtin-tenants/pay/src/platform.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const MOVEMENT = { account: 'acc_a', service: 'deals', amount: 300, usage: '[]' };
const claim: CallClaim = { keys: ['credit:a', 'idempotency:a'], requestId: 'req_a', abandonedHold: null };
let db: MemoryDatabase;
let ledger: Ledger;
let calls: Calls;
let loseAnswer: boolean;
let now: number;

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  db.sql("INSERT INTO accounts (id, kind, created_at) VALUES ('acc_a', 'anonymous', 0)");
  loseAnswer = false;
  now = 1;
  ledger = new Ledger(
    {
      ...db,
      async batch<Row>(statements: Parameters<MemoryDatabase['batch']>[0]) {
        const results = await db.batch<Row>(statements);
        if (!loseAnswer) return results;
        loseAnswer = false;
        throw new Error('the connection was lost');
      },
    },
    () => now,
  );
  calls = new Calls(db);
  for (const amount of [200, 800]) {
    const key = `grant:${amount}`;
    await ledger.grant({ key, account: 'acc_a', amount, source: 'purchase', promotional: false });
  }
});
afterEach(() => db.close());

const hold = (id: string) => ledger.hold(id, MOVEMENT, calls.beginHeld(claim, 'hash', id, MOVEMENT.amount));
const noted = () => db.sql('SELECT key, state, hold, amount FROM calls ORDER BY key');
const balances = () =>
  Object.fromEntries(
    db
      .sql<{ id: string; balance: number }>(
        "SELECT id, balance FROM ledger_accounts WHERE source = 0 AND id NOT LIKE 'grant:%'",
      )
      .map(({ id, balance }) => [id, balance]),
  );

test('a call and its hold are made together, and the capture takes all of it', async () => {
  expect(await hold('hld_a')).toEqual({ status: 'held' });
  const row = { state: 'working', hold: 'hld_a', amount: 300 };
  expect(noted()).toEqual(claim.keys.map((key) => ({ key, ...row })));
  expect(await ledger.available('acc_a')).toBe(700);
  expect(await ledger.capture('hld_a', [], MOVEMENT)).toBe(true);
  expect(balances()).toEqual({ 'hold:hld_a': 0, 'revenue:deals': 300 });
  expect(await ledger.capture('hld_a', [], MOVEMENT)).toBe(false);
  expect(balances()).toEqual({ 'hold:hld_a': 0, 'revenue:deals': 300 });
});

test('where the answer alone was lost, the hold is known to be made', async () => {
  loseAnswer = true;
  expect(await hold('hld_a')).toEqual({ status: 'held' });
  expect(noted()).toHaveLength(2);
  expect(await ledger.held('acc_a')).toBe(300);
});

test('a call that is known under one of its keys holds nothing, and stays as it was', async () => {
  await calls.begin('idempotency:a', 'hash', 'req_b');
  const before = noted();
  await expect(hold('hld_a')).rejects.toThrow('UNIQUE');
  expect(noted()).toEqual(before);
  expect(await ledger.available('acc_a')).toBe(1000);
  expect(balances()).toEqual({});
});

test('a hold that credit does not cover leaves no call', async () => {
  await ledger.charge({ ...MOVEMENT, key: 'most', amount: 900 });
  expect(await hold('hld_a')).toEqual({ status: 'insufficient_credit', balance: 100 });
  expect(noted()).toEqual([]);
});

test('what cannot be finished now keeps nothing else from being finished', async () => {
  const silent = vi.spyOn(console, 'error').mockImplementation(() => undefined);
  const asked: string[] = [];
  const PAYMENTS = {
    async fetch(url: string, { body }: { body: string }) {
      const { hold } = JSON.parse(body) as { hold: string };
      asked.push(`${new URL(url).pathname} ${hold}`);
      return hold.startsWith('ill') ? new Response('later', { status: 503 }) : Response.json({ headers: {} });
    },
  };
  const call = (key: string, state: string, hold: string) =>
    db.sql(
      `INSERT INTO calls (key, request_hash, request_id, state, hold, amount, started_at, keep_until)
       VALUES ('${key}', 'hash', 'req', '${state}', '${hold}', 1, 0, 9e15)`,
    );
  call('wallet:1', 'capturing', 'ill-1');
  call('wallet:2', 'capturing', 'well-2');
  call('wallet:3', 'working', 'ill-3');
  call('wallet:4', 'working', 'well-4');
  const env = {
    DB: db,
    PAYMENTS,
    PAY_SECRET: 'x'.repeat(40),
    APP_URL: 'http://host.test',
    PAGES_URL: 'http://pay.test',
  };
  const platform = createPlatform(env as unknown as Env, () => undefined);
  await expect(sweep(platform)).rejects.toThrow(/finish captures, give abandoned payments back$/);
  silent.mockRestore();
  expect(asked).toEqual(['/capture ill-1', '/capture well-2', '/release ill-3', '/release well-4']);
});

describe('a credential that may spend 500 a day', () => {
  const capped = { ...MOVEMENT, credential: 'crd_a' };
  const spent = () => db.sql<{ amount: number }>('SELECT amount FROM credential_spend').map(({ amount }) => amount);

  beforeEach(() => {
    db.sql(
      "INSERT INTO credentials (id, account_id, hash, hint, label, created_at, daily_cap) VALUES ('crd_a', 'acc_a', 'h', 'tpk_', 'a', 0, 500)",
    );
  });

  test('holds no more, whatever else there is, until the next day', async () => {
    expect(await ledger.hold('hld_a', capped)).toEqual({ status: 'held' });
    expect(await ledger.hold('hld_b', capped)).toEqual({ status: 'capped' });
    expect(await ledger.available('acc_a')).toBe(700);
    expect(await ledger.hold('hld_b', { ...capped, amount: 200 })).toEqual({ status: 'held' });
    expect(spent()).toEqual([500]);
    expect(await ledger.hold('hld_c', { ...capped, amount: 1 })).toEqual({ status: 'capped' });
    // Others of the account are not concerned.
    expect(await ledger.hold('hld_d', MOVEMENT)).toEqual({ status: 'held' });
    now += 86_400_000;
    expect(await ledger.hold('hld_e', { ...capped, amount: 200 })).toEqual({ status: 'held' });
    expect(spent()).toEqual([500, 200]);
  });

  test('gets nothing back of what was held before it had a cap', async () => {
    db.sql('UPDATE credentials SET daily_cap = NULL');
    await ledger.hold('hld_a', capped);
    db.sql('UPDATE credentials SET daily_cap = 500');
    await ledger.hold('hld_b', { ...capped, amount: 500 });
    await ledger.release('hld_a');
    expect(spent()).toEqual([500]);
    expect(await ledger.hold('hld_c', { ...capped, amount: 1 })).toEqual({ status: 'capped' });
  });

  test('gets back what is given back, once, and not what is taken', async () => {
    await ledger.hold('hld_a', capped);
    expect(await ledger.release('hld_a')).toBe(true);
    expect(await ledger.release('hld_a')).toBe(false);
    expect(spent()).toEqual([0]);
    await ledger.hold('hld_b', capped);
    await ledger.capture('hld_b');
    expect(spent()).toEqual([300]);
    expect(await ledger.hold('hld_c', capped)).toEqual({ status: 'capped' });
  });

  test('spends no more by many calls at once', async () => {
    const held = await Promise.all(
      Array.from({ length: 20 }, (_, index) => ledger.hold(`hld_${index}`, { ...capped, amount: 100 })),
    );
    expect(held.filter(({ status }) => status === 'held')).toHaveLength(5);
    expect(spent()).toEqual([500]);
  });
});
