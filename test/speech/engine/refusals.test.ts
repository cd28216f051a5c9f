import { expect, it } from 'vitest';
import { Refusals } from '../../../builtin-tenants/speech/engine/refusals.ts';

it('whose audio is refused again and again waits ever longer, under every name', () => {
  let now = 0;
  const refusals = new Refusals(() => now);
  const wait = (...names: string[]): number => {
    try {
      refusals.check(names);
      return 0;
    } catch (error) {
      return (error as { facts: { retryAfter: number } }).facts.retryAfter;
    }
  };
  const waits = Array.from({ length: 10 }, () => {
    refusals.refused(['payer', 'address']);
    return wait('payer');
  });
  expect(waits).toEqual([0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
  // Another wallet at the same address.
  expect(wait('other', 'address')).toBe(60);
  expect(wait('other', 'elsewhere')).toBe(0);
  expect(wait()).toBe(0);
  now += 60_000;
  expect(wait('payer', 'address')).toBe(0);
  refusals.refused(['payer', 'address']);
  refusals.done(['payer', 'address']);
  expect(wait('payer')).toBe(0);
  expect(wait('payer', 'address')).toBe(60);
  now += 600_000;
  refusals.refused(['payer', 'address']);
  expect(wait('payer', 'address')).toBe(0);
});
