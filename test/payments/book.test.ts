/** The books: every step balances, and the operator's share loses nothing to rounding. */
import { expect, test } from 'vitest';
import * as book from '../../host/registry/payments/book.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';
import { micro } from '../../host/shared/money.ts';

const payment = (change: Partial<PaymentRow> = {}) =>
  ({
    id: 'pay_1',
    kind: 'route',
    asset: 'eip155:1/0xa',
    payer: '0xpayer',
    recipient: '0xhost',
    payTo: '0xtenant',
    custody: 'collected',
    channel: null,
    feeBps: 333,
    ...change,
  }) as PaymentRow;

const sum = (entries: book.Entry[]) => entries.reduce((total, entry) => total + entry.amount, 0n);
const of = (entries: book.Entry[], account: string) => entries.find((entry) => entry.account === account)?.amount ?? 0n;

test('a share and the rest are the whole, for every amount and every share', () => {
  for (const bps of [0, 1, 333, 2500, 9999, 10_000]) {
    for (let amount = 0n; amount < 2000n; amount += 1n) {
      const { payee, fee } = book.divide(micro(amount), bps);
      expect(payee + fee).toBe(amount);
      expect(fee).toBe((amount * BigInt(bps)) / 10_000n);
    }
  }
});

test('money that is collected is all somebody’s: tenant, operator, payer', () => {
  const settled = book.settledOnChain(payment(), micro(50_000), '0xhash');
  const captured = book.captured(payment(), micro(50_000), micro(12_345));
  expect(sum(settled)).toBe(0n);
  expect(sum(captured)).toBe(0n);
  expect(of(settled, 'claim:hold:pay_1')).toBe(50_000n);
  expect(of(captured, 'claim:hold:pay_1')).toBe(-50_000n);
  expect(of(captured, 'claim:refund:0xpayer')).toBe(37_655n);
  expect(of(captured, 'claim:payout:0xtenant') + of(captured, 'claim:fee')).toBe(12_345n);
});

test('money that goes straight to the tenant is nobody’s claim', () => {
  const entries = book.settledOnChain(payment({ custody: 'direct', recipient: '0xtenant' }), micro(10), '0xhash');
  expect(entries.map(({ account, amount }) => [account, amount])).toEqual([
    ['wallet:0xpayer', -10n],
    ['wallet:0xtenant', 10n],
  ]);
});

test('capture and its reversal leave nothing behind', () => {
  const session = payment({ custody: 'channel', channel: '0xc' });
  const both = [...book.captured(session, micro(50), micro(33)), ...book.returned(session, micro(33), micro(33))];
  for (const account of new Set(both.map((entry) => entry.account)))
    expect(both.filter((entry) => entry.account === account).reduce((total, { amount }) => total + amount, 0n)).toBe(
      0n,
    );
});

test('lines that do not balance are refused', () => {
  expect(() =>
    book.entries({ id: 't', kind: 'k', asset: 'a', payment: null, reference: null, moves: [['x', micro(1)]] }),
  ).toThrow('does not balance');
});
