import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { eq, sql } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Registry } from '../../host/registry/index.ts';
import { ledger, type PaymentRow, payments } from '../../host/registry/payments/schema.ts';
import { built, compiled, finds, inserts, updates } from '../../host/registry/statements.ts';
import { micro } from '../../host/shared/money.ts';
import { openTestRegistry } from './support/open.ts';

let folder: string;
let registry: Registry;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'turnpike-statements-'));
  registry = await openTestRegistry(path.join(folder, 'a.db'));
});

afterEach(async () => {
  registry.close();
  await rm(folder, { recursive: true });
});

const entry = (account: string, amount: bigint) => ({
  txn: 't',
  account,
  asset: 'usd',
  amount: micro(amount),
  kind: 'k',
  payment: null,
  reference: null,
  at: 1,
});

test('inserts are what drizzle would have sent', () => {
  const insert = inserts(registry.db, ledger);
  for (const rows of [[entry('a', 1n), entry('b', -1n)], [entry('c', 0n)], [entry('d', 5n), entry('e', 6n)]])
    expect(insert(rows)).toEqual(built(registry.db.insert(ledger).values(rows)));
});

test('updates are what drizzle would have sent, whatever columns change', () => {
  const update = updates(registry.db, payments, payments.id);
  const changes: Partial<PaymentRow>[] = [
    { charged: micro(5n), answerHeaders: [['a', 'b']], answerComplete: true },
    { charged: null, answerHeaders: null },
    { charged: micro(7n), answerHeaders: [], answerComplete: false },
    { answerBody: Buffer.from('x') },
  ];
  for (const change of changes) {
    const expected = built(registry.db.update(payments).set(change).where(eq(payments.id, 'p')));
    const { sql: text, args } = update('p', change);
    expect([text, args]).toEqual([expected.sql, expected.args]);
  }
});

test('a missing value is refused, not written as NULL', async () => {
  const statement = compiled(registry.db.delete(payments).where(eq(payments.id, sql.placeholder('id'))));
  await expect(registry.client.execute(statement({}))).rejects.toThrow(TypeError);
});

test('a row that is found is what drizzle would have read', async () => {
  const { db } = registry;
  const find = finds(registry, payments, eq(payments.id, sql.placeholder('id')));
  const texts = ['credentialId', 'credentialHash', 'name', 'scope', 'asset', 'payer', 'payerDid', 'recipient', 'payTo'];
  const row = {
    ...Object.fromEntries(texts.map((name) => [name, name])),
    id: 'pay_1',
    rail: 'tempo/charge',
    kind: 'operation',
    custody: 'direct',
    authorized: micro(7n),
    charged: null,
    fee: micro(0n),
    refunded: micro(0n),
    feeBps: 0,
    state: 'working',
    terms: '{}',
    answerHeaders: [['a', 'b']],
    answerBody: Buffer.from([0, 255]),
    answerComplete: true,
    clientGone: false,
    attempts: 1,
    createdAt: 5,
    updatedAt: 5,
  } as unknown as PaymentRow;
  await db.insert(payments).values(row);
  const [read] = await db.select().from(payments).where(eq(payments.id, 'pay_1'));
  expect(read?.answerBody).toEqual(Buffer.from([0, 255]));
  expect(await find({ id: 'pay_1' })).toStrictEqual(read);
  expect(await find({ id: 'pay_2' })).toBe(undefined);
});
