/** When the work of a paid call is given up. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ChannelCalls } from '../../host/payments/methods/channels/calls.ts';
import type { SettlementMachine } from '../../host/payments/settlement/machine.ts';
import { Deadline } from '../../host/payments/toll/deadline.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';
import { Problem } from '../../host/shared/problem.ts';

const machine = { release: async () => {} } as unknown as SettlementMachine;
const bySession = { channel: '0xc', custody: 'channel', settleBefore: null } as unknown as PaymentRow;
const never = new Promise<never>(() => {});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

async function outcome(deadline: Deadline): Promise<unknown> {
  let seen: unknown = 'at work';
  deadline.race(never).catch((error) => {
    seen = error;
  });
  await vi.advanceTimersByTimeAsync(0);
  return seen;
}

test('a caller who left is waited for a while, and no longer', async () => {
  const caller = new AbortController();
  const deadline = new Deadline(bySession, machine, caller.signal, undefined);
  await vi.advanceTimersByTimeAsync(100_000);
  caller.abort();
  await vi.advanceTimersByTimeAsync(29_000);
  expect(await outcome(deadline)).toBe('at work');
  await vi.advanceTimersByTimeAsync(1_001);
  expect(await outcome(deadline)).toMatchObject({ code: 'bad_request' });
  expect(deadline.signal.aborted).toBe(true);
});

test('a call of a session ends long before its payer can take the deposit back', async () => {
  const deadline = new Deadline(bySession, machine, new AbortController().signal, undefined);
  await vi.advanceTimersByTimeAsync(300_000);
  expect(await outcome(deadline)).toMatchObject({ code: 'upstream_timeout' });
});

test('closing a channel ends its calls, waits for their payments, and no longer than it may', async () => {
  const calls = new ChannelCalls();
  const other = new Deadline({ ...bySession, channel: '0xd' }, machine, new AbortController().signal, calls);
  const deadline = new Deadline(bySession, machine, new AbortController().signal, calls);
  let closed = false;
  const closing = calls.end('0xc', new Problem('conflict', 'closed'), 10_000).then(() => {
    closed = true;
  });
  expect(await outcome(deadline)).toMatchObject({ code: 'conflict' });
  expect(await outcome(other)).toBe('at work');
  expect(closed).toBe(false);
  deadline.final();
  await closing;
  const late = calls.end('0xd', new Problem('conflict', 'closed'), 10_000);
  await vi.advanceTimersByTimeAsync(10_000);
  await late;
});

test('work that is done leaves no timer behind', () => {
  const caller = new AbortController();
  const deadline = new Deadline(bySession, machine, caller.signal, undefined);
  deadline.end();
  caller.abort();
  expect(vi.getTimerCount()).toBe(0);
});
