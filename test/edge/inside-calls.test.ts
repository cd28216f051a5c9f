import { expect, test } from 'vitest';
import { INSIDE, InsideCalls } from '../../host/edge/inside-calls.ts';
import type { Exchange } from '../../host/http/message/exchange.ts';

const call = (address = INSIDE) => ({ peer: { address } }) as Exchange;

test('of one tenant 512 calls are under way at a time; others, and callers from outside, are not in its way', () => {
  const calls = new InsideCalls();
  const first = Array.from({ length: 512 }, () => call());
  expect(first.every((one) => calls.enter(one, 'fd00::1'))).toBe(true);
  const late = call();
  expect(calls.enter(late, 'fd00::1')).toBe(false);
  expect(calls.enter(call(), 'fd00::2')).toBe(true);
  expect(calls.enter(call('203.0.113.9'), 'fd00::1')).toBe(true);
  // One that was refused gives nothing back, nor does one that left before.
  calls.left(late);
  expect(calls.enter(call(), 'fd00::1')).toBe(false);
  calls.left(first[0] as Exchange);
  calls.left(first[0] as Exchange);
  expect(calls.enter(call(), 'fd00::1')).toBe(true);
  expect(calls.enter(call(), 'fd00::1')).toBe(false);
});
