/** Calls that are charged while they go on: what is noted, what is refused, and how they have to end. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LiveCall, LiveCalls } from '../../host/payments/settlement/live-calls.ts';
import type { Meters } from '../../host/registry/payments/meters.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';
import { type Money, micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';

const row = { id: 'pay_1', tenant: 't1', attempts: 1 } as PaymentRow;
const HELD = micro(50n);

let noted: Money[];
let fails: boolean;
const meters = {
  note: async (_row: PaymentRow, total: Money) => {
    if (fails) throw new Error('the disk is full');
    noted.push(total);
  },
} as unknown as Meters;

beforeEach(() => {
  noted = [];
  fails = false;
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

const code = (work: Promise<unknown>) =>
  work.then(
    () => 'taken',
    (error) => (error instanceof Problem ? error.code : String(error.message)),
  );

test('totals only grow, never beyond what is held, and a report that was not written was not taken', async () => {
  const call = new LiveCall(row, HELD, meters, () => {});
  await Promise.all([call.report(micro(20n)), call.report(micro(10n)), call.report(micro(30n))]);
  expect(noted).toEqual([20n, 30n]);
  expect(await code(call.report(micro(51n)))).toBe('payment_required');
  fails = true;
  expect(await code(call.report(micro(40n)))).toBe('the disk is full');
  fails = false;
  expect(await call.report(micro(40n))).toEqual({ total: 40n, held: 50n });
  expect(noted).toEqual([20n, 30n, 40n]);
  await call.close();
  expect(await code(call.report(micro(45n)))).toBe('not_found');
});

test('a call that has to end hears why at its next report, and is cut off when it does not end', async () => {
  let cuts = 0;
  const call = new LiveCall(row, HELD, meters, () => cuts++);
  await call.report(micro(5n));
  call.end(new Problem('conflict', 'The payer closes the session.'));
  expect(await code(call.report(micro(6n)))).toBe('conflict');
  vi.advanceTimersByTime(4_999);
  expect(cuts).toBe(0);
  vi.advanceTimersByTime(1);
  expect([cuts, noted]).toEqual([1, [5n]]);
  await call.close();
});

test('a call whose caller left, or that lasts four hours, is cut off', async () => {
  let cuts = 0;
  const left = new LiveCall(row, HELD, meters, () => cuts++);
  left.left();
  expect(await left.report(micro(7n))).toMatchObject({ total: 7n });
  vi.advanceTimersByTime(5_000);
  expect(cuts).toBe(1);
  await left.close();
  const long = new LiveCall(row, HELD, meters, () => cuts++);
  vi.advanceTimersByTime(4 * 3_600_000);
  expect(await code(long.report(micro(8n)))).toBe('conflict');
  await long.close();
});

test('only the tenant and the attempt that a call is of report for it, and only while it is open', async () => {
  const calls = new LiveCalls(meters);
  const gate = Promise.withResolvers<void>();
  const order: string[] = [];
  const run = calls.run(
    row,
    HELD,
    () => gate.resolve(),
    () => gate.promise,
    async () => void order.push('settled'),
  );
  const report = (tenant: string, change: object = {}) =>
    code(calls.report(tenant, { payment: 'pay_1', attempt: 1, total: micro(1n), ...change }));
  expect(await report('t2')).toBe('not_found');
  expect(await report('t1', { attempt: 2 })).toBe('not_found');
  expect(await report('t1', { payment: 'pay_2' })).toBe('not_found');
  expect(await report('t1')).toBe('taken');
  expect(calls.isOpen(row)).toBe(true);
  await calls.stop();
  await run;
  expect([calls.isOpen(row), order]).toEqual([false, ['settled']]);
  expect(await report('t1')).toBe('not_found');
});
