/** A call is noted in the transaction that holds its credit: both are there or neither, whatever becomes of the answer. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrate } from '../../builtin-tenants/common/migrate.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import { type CallClaim, Calls } from '../../builtin-tenants/pay/src/gateway/calls.ts';
import { Ledger } from '../../builtin-tenants/pay/src/ledger.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const MOVEMENT = { account: 'acc_a', service: 'deals', amount: 300, usage: '[]' };
const claim: CallClaim = { keys: ['credit:a', 'idempotency:a'], requestId: 'req_a', abandonedHold: null };
let db: MemoryDatabase;
let ledger: Ledger;
let calls: Calls;
let loseAnswer: boolean;

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  db.sql("INSERT INTO accounts (id, kind, created_at) VALUES ('acc_a', 'anonymous', 0)");
  loseAnswer = false;
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
    () => 1,
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
