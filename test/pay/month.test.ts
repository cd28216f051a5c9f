/** The statement of a month: its balances are those of the ledger, to the last micro-USD, from month to month. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { Ledger } from '../../builtin-tenants/pay/src/credit/ledger.ts';
import { monthAt, monthStatement, readMonth } from '../../builtin-tenants/pay/src/credit/month.ts';
import { statement } from '../../builtin-tenants/pay/src/credit/statement.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

let db: MemoryDatabase;
let ledger: Ledger;
let now: number;

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  now = Date.UTC(2026, 10, 26);
  ledger = new Ledger(db, () => now);
  for (const id of ['acc_1', 'acc_2'])
    db.sql("INSERT INTO accounts (id, kind, created_at) VALUES (?, 'anonymous', ?)", id, now);
});
afterEach(() => db.close());

const month = async (name: string) => {
  const read = readMonth(name);
  if (!read) throw new Error(name);
  return monthStatement(db, 'acc_1', read);
};
const inLedger = () =>
  db.sql<{ sum: number }>(
    "SELECT coalesce(sum(balance), 0) AS sum FROM ledger_accounts WHERE owner = 'acc_1' AND id LIKE 'grant:%'",
  )[0]?.sum;

test('opens with what the month before closed with, and closes with what the ledger has', async () => {
  const gift = { account: 'acc_1', source: 'welcome', promotional: true } as const;
  await ledger.grant({ ...gift, key: 'a', amount: 1_000_001, expiresAt: Date.UTC(2026, 11, 2) });
  await ledger.grant({ ...gift, key: 'other', account: 'acc_2', amount: 7 });
  const used = { account: 'acc_1', service: 'deals', usage: '[]' };
  await ledger.hold('h1', { ...used, amount: 150_000 });
  await ledger.hold('h2', { ...used, amount: 3 });
  // Up to the last millisecond of the month, and from the first of the next.
  now = Date.UTC(2026, 11, 1) - 1;
  await ledger.capture('h1');
  const november = inLedger();
  now += 1;
  await ledger.release('h2');
  await ledger.grant({ account: 'acc_1', source: 'purchase', promotional: false, key: 'b', amount: 5_000_000 });
  await ledger.charge({ ...used, key: 'c', amount: 100_000 });
  now = Date.UTC(2026, 11, 3);
  await ledger.expireGrants();
  const [first, second, third] = [await month('2026-11'), await month('2026-12'), await month('2027-01')];
  expect([first.opening, first.closing]).toEqual([0, november]);
  expect([second.opening, second.closing]).toEqual([november, inLedger()]);
  expect([third.opening, third.closing, third.sums]).toEqual([inLedger(), inLedger(), []]);
  expect(second.sums.map(({ kind, source, times, amount }) => [kind, source, times, amount])).toEqual([
    ['charge', null, 1, -100_000],
    ['expire', null, 1, -750_001],
    ['grant', 'purchase', 1, 5_000_000],
    ['release', null, 1, 3],
  ]);
  const { lines } = await statement(db, 'acc_1', { ...second.lines, limit: 100 });
  expect(lines.map(({ kind }) => kind)).toEqual(['expire', 'charge', 'grant', 'release']);
  // What is booked afterwards is not among the lines that were summed.
  await ledger.charge({ ...used, key: 'd', amount: 1 });
  expect((await statement(db, 'acc_1', { ...second.lines, limit: 100 })).lines).toHaveLength(4);
});

test('sums to the ledger with purchases, top-ups, gifts, refunds and what was held', async () => {
  const bought = { account: 'acc_1', source: 'purchase', promotional: false } as const;
  await ledger.grant({ ...bought, key: 'a', amount: 5_000_000, memo: 'Purchase of 5.00 USD' });
  await ledger.grant({
    ...bought,
    key: 'b',
    amount: 5_000_000,
    requestId: 'drw_1',
    memo: 'Automatic top-up of 5.00 USD',
  });
  await ledger.grant({ ...bought, key: 'c', amount: 250_000, source: 'operator', promotional: true });
  const used = { account: 'acc_1', service: 'deals', usage: '[]' };
  await ledger.charge({ ...used, key: 'd', amount: 150_000 });
  for (const hold of ['h1', 'h2', 'h3']) await ledger.hold(hold, { ...used, amount: 70_001 });
  await ledger.capture('h1');
  await ledger.release('h2');
  await ledger.grant({ ...bought, key: 'refund:d', amount: 150_000, source: 'operator', revenue: 'deals' });
  const { opening, closing, sums, lines } = await month('2026-11');
  expect([opening, closing]).toEqual([0, inLedger()]);
  expect(closing).toBe(10_250_000 - 2 * 70_001);
  expect(sums.reduce((sum, { amount }) => sum + amount, 0)).toBe(closing);
  const listed = (await statement(db, 'acc_1', { ...lines, limit: 100 })).lines;
  const total = listed.reduce((sum, { amountUsd }) => sum + Math.round(Number(amountUsd) * 1_000_000), 0);
  expect(total).toBe(closing);
  expect(listed.map(({ memo }) => memo)).toContain('Automatic top-up of 5.00 USD');
});

test.each(['2026-13', '2026-00', '1999-01', '2026-1', ' 2026-11', '2026-11\n', undefined])('%s is no month', (name) => {
  expect(readMonth(name)).toBeUndefined();
});

test('months follow one another over a year', () => {
  const december = monthAt(Date.UTC(2026, 11, 31, 23, 59, 59, 999));
  expect(december).toEqual(readMonth('2026-12'));
  expect(monthAt(december.from, 1)).toEqual(readMonth('2027-01'));
  expect(monthAt(december.from, -12).name).toBe('2025-12');
});
