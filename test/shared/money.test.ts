import { describe, expect, it } from 'vitest';
import { formatUsd, micro, parseUsd, share } from '../../host/shared/money.ts';

describe('money', () => {
  it.each([
    ['0.20', 200_000n],
    ['5', 5_000_000n],
    ['0.000001', 1n],
    ['999999999999.999999', 999_999_999_999_999_999n],
  ])('reads %s exactly', (text, expected) => {
    expect(parseUsd(text)).toBe(expected);
  });

  it.each(['', '-1', '+1', '1e3', ' 1', '1 ', '.5', '1.', '0.0000001', '٥', 'NaN', '1,5', '0x10'])(
    'refuses %j',
    (text) => {
      expect(() => parseUsd(text)).toThrow(RangeError);
    },
  );

  it.each([
    [200_000n, '0.20'],
    [1n, '0.000001'],
    [5_000_000n, '5.00'],
    [1_234_500n, '1.2345'],
    [-50_000n, '-0.05'],
  ])('prints %d', (amount, expected) => {
    expect(formatUsd(micro(amount))).toBe(expected);
  });

  it('shares round down, so that the parts never exceed the whole', () => {
    expect(share(micro(999n), 250)).toBe(24n);
    expect(share(micro(1n), 9_999)).toBe(0n);
  });
});
