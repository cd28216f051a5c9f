/** A machine that is crowded must not make an endless loop of good code, and an endless loop must end on it all the same. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { limitStart } from '../../host/sandbox/start-limit.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** @param share of its time that the process waits for a core @returns when it was late, ms; undefined where never */
function lateAfter(share: number | undefined, during = 60_000): number | undefined {
  const from = performance.now();
  let late: number | undefined;
  const onLate = (passedMs: number): void => {
    late = passedMs;
  };
  const schedule = () =>
    share === undefined ? undefined : { ranMs: 0, waitedMs: 70_000 + (performance.now() - from) * share };
  limitStart(() => 7, 10_000, onLate, schedule);
  vi.advanceTimersByTime(during);
  return late;
}

test('a process that need not wait has the time that is set', () => {
  expect(lateAfter(0)).toBe(10_000);
  expect(lateAfter(undefined)).toBe(10_000);
});

test('time for which it waits for a core is added', () => {
  expect(lateAfter(0.5)).toBeGreaterThan(19_990);
  expect(lateAfter(0.5)).toBeLessThan(20_010);
});

test('it ends after three times as long, however long it waits', () => {
  expect(lateAfter(0.9)).toBe(30_000);
  expect(lateAfter(1)).toBe(30_000);
});

test('one that has started is not late', () => {
  const onLate = vi.fn();
  const started = limitStart(() => undefined, 10_000, onLate);
  vi.advanceTimersByTime(9_999);
  started();
  vi.advanceTimersByTime(60_000);
  expect(onLate).not.toHaveBeenCalled();
});
