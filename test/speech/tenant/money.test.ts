import { describe, expect, it } from 'vitest';
import { audioFor, formatUsd, parseUsd, priceOfAudio, priceOfText } from '../../../builtin-tenants/speech/src/money.ts';

describe('money', () => {
  it.each([
    ['0.05', 50_000],
    ['0.000001', 1],
    ['12', 12_000_000],
    ['0.1', 100_000],
  ])('%s is %i micro-USD, and back', (text, amount) => {
    expect(parseUsd(text)).toBe(amount);
    expect(parseUsd(formatUsd(amount))).toBe(amount);
  });

  it.each(['', '-1', '1e3', '0.0000001', '.5', '1,5', 'NaN', '0x10'])('%j is no amount', (text) => {
    expect(() => parseUsd(text)).toThrow(RangeError);
  });

  it('writes at least two decimals', () => {
    expect([formatUsd(50_000), formatUsd(1), formatUsd(2_000_000)]).toEqual(['0.05', '0.000001', '2.00']);
  });

  it('rounds up to the next micro-USD and never charges nothing', () => {
    expect(priceOfAudio(1000, 100)).toBe(100);
    expect(priceOfAudio(1001, 100)).toBe(101);
    expect(priceOfAudio(0, 100)).toBe(1);
    expect(priceOfText(1, 25_000_000)).toBe(25);
    expect(priceOfText(1, 1)).toBe(1);
    expect(priceOfText(2000, 25_000_000)).toBe(50_000);
  });

  it('lets through exactly what the held amount pays for', () => {
    for (const amount of [1, 99, 100, 50_000]) {
      for (const rate of [1, 7, 100, 333]) {
        const most = audioFor(amount, rate);
        expect(priceOfAudio(most, rate)).toBeLessThanOrEqual(amount);
        expect(priceOfAudio(most + 1, rate)).toBeGreaterThan(most === 0 ? 0 : amount);
      }
    }
  });
});
