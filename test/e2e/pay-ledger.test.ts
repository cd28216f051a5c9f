/** The credit ledger on the real database, through the platform's own API: nobody can spend what is not there. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import {
  anonymous,
  balanceOf,
  give,
  internal,
  ledgerIsSound,
  operator,
  type TestAccount,
} from './support/pay-callers.ts';
import { type PayRig, startPayRig } from './support/pay-rig.ts';
import { startNetwork } from './support/payments-rig.ts';

const DAY_MS = 86_400_000;

let rig: PayRig;
let stopNetwork: () => Promise<void>;
let network: Network;

beforeAll(async () => {
  ({ network, stop: stopNetwork } = await startNetwork());
  rig = await startPayRig(network);
});
afterAll(async () => {
  await rig.stop();
  await stopNetwork();
});

let next = 0;
const key = () => `test:${++next}`;
const charge = (account: Pick<TestAccount, 'id'>, more: object = {}, base?: string) =>
  internal(
    rig,
    '/charges',
    {
      key: key(),
      accountId: account.id,
      serviceSlug: 'deals-watches',
      usage: [{ meterSlug: 'watch_day', quantity: 1 }],
      ...more,
    },
    base,
  );
const funded = async (amountUsd: string, more: object = {}) => {
  const account = await anonymous(rig);
  await give(rig, account, amountUsd, more);
  return account;
};

describe('charges', () => {
  test('take the price of the meter, and a lost answer is repeated with the same key', async () => {
    const account = await funded('1.00');
    const again = { key: key() };
    const first = await charge(account, again);
    expect(first.status).toBe(201);
    expect(await first.json()).toMatchObject({
      status: 'charged',
      amountMicroUsd: '100000',
      balanceMicroUsd: '900000',
    });
    const second = await charge(account, again);
    expect(second.status).toBe(200);
    expect(await second.json()).toMatchObject({ status: 'duplicate', balanceMicroUsd: '900000' });
    expect(await balanceOf(rig, account)).toBe(900_000);
  });

  test('the same key for another account or another usage is refused', async () => {
    const account = await funded('1.00');
    const other = await funded('1.00');
    const again = { key: key() };
    await charge(account, again);
    expect((await charge(other, again)).status).toBe(409);
    expect((await charge(account, { ...again, usage: [{ meterSlug: 'watch_day', quantity: 2 }] })).status).toBe(409);
    expect(await balanceOf(rig, account)).toBe(900_000);
    expect(await balanceOf(rig, other)).toBe(1_000_000);
  });

  test('99,999 micro-USD do not buy what costs 100,000, and the refusal leaves the key unused', async () => {
    const account = await funded('0.099999');
    const again = { key: key() };
    const refused = await charge(account, again);
    expect(refused.status).toBe(402);
    expect(await refused.json()).toMatchObject({
      code: 'insufficient_credit',
      priceMicroUsd: '100000',
      balanceMicroUsd: '99999',
    });
    expect(await balanceOf(rig, account)).toBe(99_999);
    await give(rig, account, '0.000001');
    expect((await charge(account, again)).status).toBe(201);
    expect(await balanceOf(rig, account)).toBe(0);
  });

  test('200 at once at the edge of a balance: exactly as many as it covers', async () => {
    const account = await funded('5.05');
    const answers = await Promise.all(Array.from({ length: 200 }, () => charge(account)));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 201)).toHaveLength(50);
    expect(statuses.filter((status) => status === 402)).toHaveLength(150);
    expect(await balanceOf(rig, account)).toBe(50_000);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('one key 50 times at once, through two processes, is one charge', async () => {
    const account = await funded('5.00');
    const second = await rig.second();
    const again = { key: key() };
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) => charge(account, again, index % 2 === 0 ? rig.pay : second)),
    );
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array(49).fill(200), 201]);
    expect(await balanceOf(rig, account)).toBe(4_900_000);
  });

  test('across two grants: promotional first, then the one that expires sooner, then the older one', async () => {
    const account = await anonymous(rig);
    const soon = new Date(Date.now() + DAY_MS).toISOString();
    await give(rig, account, '0.07', { promotional: false, memo: 'older' });
    await give(rig, account, '0.05', { promotional: true });
    await give(rig, account, '0.04', { promotional: false, expiresAt: soon });
    await give(rig, account, '0.03', { promotional: false, priority: 1 });
    expect((await charge(account)).status).toBe(201);
    const rows = await rig.sql<{ amount: number; balance: number }>(
      `SELECT g.amount, a.balance FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
       WHERE g.account = ? ORDER BY g.amount`,
      account.id,
    );
    expect(rows.map(({ amount, balance }) => [Number(amount), Number(balance)])).toEqual([
      [30_000, 0],
      [40_000, 0],
      [50_000, 20_000],
      [70_000, 70_000],
    ]);
  });

  test('a batch is done in order, each for itself', async () => {
    const account = await funded('0.20');
    const one = (more: object) => ({
      key: key(),
      accountId: account.id,
      serviceSlug: 'deals-watches',
      usage: [{ meterSlug: 'watch_day', quantity: 1 }],
      ...more,
    });
    const same = key();
    const charges = [
      one({ key: same }),
      one({ accountId: 'acc_nobody' }),
      one({ usage: [{ meterSlug: 'nothing', quantity: 1 }] }),
      one({ key: 'with space' }),
      one({}),
      one({}),
      one({ key: same }),
      null,
    ];
    const answer = await internal(rig, '/charges/batch', { charges });
    const { results } = (await answer.json()) as { results: { status: string }[] };
    expect(results.map(({ status }) => status)).toEqual([
      'charged',
      'not_found',
      'not_found',
      'invalid',
      'charged',
      'insufficient_credit',
      'duplicate',
      'invalid',
    ]);
  });

  test.each([
    [{ quantity: 0 }],
    [{ quantity: -1 }],
    [{ quantity: 1.5 }],
    [{ quantity: '1' }],
    [{ quantity: 1e15 }],
    [{ meterSlug: 'WATCH' }],
    [{ meterSlug: "x' OR 1=1" }],
  ])('usage %j is refused', async (more) => {
    const account = await funded('1.00');
    const usage = [{ meterSlug: 'watch_day', quantity: 1, ...more }];
    expect((await charge(account, { usage })).status).toBe(400);
    expect(await balanceOf(rig, account)).toBe(1_000_000);
  });

  test('need the service key', async () => {
    for (const authorization of ['', 'Bearer ', 'Bearer wrong', 'Basic x']) {
      const answer = await fetch(`${rig.pay}/internal/charges`, {
        method: 'POST',
        headers: { authorization },
        body: '{}',
      });
      expect(answer.status).toBe(401);
    }
  });

  test('a key made for one service cannot charge for another', async () => {
    await operator(rig, 'PUT', '/services/other', { origin: 'https://other.example' });
    await operator(rig, 'PUT', '/services/other/meters/call', { priceUsd: '0.01' });
    const { key: own } = (await (await operator(rig, 'POST', '/services/other/keys', {})).json()) as { key: string };
    const account = await funded('1.00');
    const send = (serviceSlug: string, meterSlug: string) =>
      fetch(`${rig.pay}/internal/charges`, {
        method: 'POST',
        headers: { authorization: `Bearer ${own}` },
        body: JSON.stringify({ key: key(), accountId: account.id, serviceSlug, usage: [{ meterSlug, quantity: 1 }] }),
      });
    expect((await send('other', 'call')).status).toBe(201);
    expect((await send('deals-watches', 'watch_day')).status).toBe(400);
    expect(await balanceOf(rig, account)).toBe(990_000);
  });
});

describe('time', () => {
  test('a grant that expires in the second of the charge is not spent; the sweep takes it off the books', async () => {
    const offset = 400 * DAY_MS;
    const expiresAt = new Date(Math.floor((Date.now() + offset) / 1000) * 1000 + 60_000);
    const account = await funded('1.00', { expiresAt: expiresAt.toISOString() });
    await rig.restart(expiresAt.getTime() - Date.now() - 20_000);
    expect((await charge(account)).status).toBe(201);
    await rig.restart(expiresAt.getTime() - Date.now());
    expect((await charge(account)).status).toBe(402);
    await rig.sweep();
    const [left] = await rig.sql<{ balance: number }>(
      `SELECT a.balance FROM ledger_accounts a JOIN grants g ON a.id = 'grant:' || g.id WHERE g.account = ?`,
      account.id,
    );
    expect(Number(left?.balance)).toBe(0);
    expect(await ledgerIsSound(rig)).toBe(true);
    await rig.restart();
  });
});

describe('the database itself refuses', () => {
  const refused = (statement: string, ...values: (string | number)[]) => rig.sql(statement, ...values);

  test('a balance below zero', async () => {
    const account = await funded('0.01');
    const [grant] = await rig.sql<{ id: string }>('SELECT id FROM grants WHERE account = ?', account.id);
    await expect(
      refused('UPDATE ledger_accounts SET balance = balance - 10001 WHERE id = ?', `grant:${grant?.id}`),
    ).rejects.toThrow(/CHECK/);
  });

  test('changing or removing what was booked', async () => {
    await expect(refused('UPDATE ledger_entries SET amount = amount + 1')).rejects.toThrow('what was booked stays');
    await expect(refused('DELETE FROM ledger_entries')).rejects.toThrow('what was booked stays');
    await expect(refused("UPDATE ledger_transactions SET memo = 'x'")).rejects.toThrow('what was booked stays');
    await expect(refused('DELETE FROM ledger_transactions')).rejects.toThrow('what was booked stays');
    await expect(refused('DELETE FROM ledger_seals')).rejects.toThrow('what was booked stays');
  });

  test('an entry in a transaction that is sealed, and a transaction without a seal', async () => {
    const [sealed] = await rig.sql<{ id: string }>('SELECT transaction_id AS id FROM ledger_seals LIMIT 1');
    await expect(
      refused(
        "INSERT INTO ledger_entries (transaction_id, account_id, amount) VALUES (?, 'expired', 1)",
        sealed?.id ?? '',
      ),
    ).rejects.toThrow('sealed');
    const account = await anonymous(rig);
    await expect(
      refused(
        "INSERT INTO ledger_transactions (id, key, kind, account, amount, at) VALUES ('x', 'x', 'grant', ?, 1, 1)",
        account.id,
      ),
    ).rejects.toThrow(/FOREIGN KEY/);
  });
});

test('the database process is killed under 60 charges: each is booked once or not at all, and can be repeated', async () => {
  const account = await funded('6.00');
  const keys = Array.from({ length: 60 }, () => key());
  const running = keys.map((one) =>
    charge(account, { key: one }).then(
      ({ status }) => status,
      () => 0,
    ),
  );
  await Promise.race(running);
  await rig.killSql();
  await Promise.all(running);
  const statuses = await Promise.all(
    keys.map(async (one) => {
      for (;;) {
        const { status } = await charge(account, { key: one });
        if (status < 500) return status;
      }
    }),
  );
  expect(statuses.every((status) => status === 200 || status === 201)).toBe(true);
  expect(await balanceOf(rig, account)).toBe(0);
  expect(await ledgerIsSound(rig)).toBe(true);
});
