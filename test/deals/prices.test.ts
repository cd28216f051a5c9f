/** Money in minor units, and what a price is measured against. */
import { describe, expect, test } from 'vitest';
import { formatMinor, parseAmountWithCurrency, parsePrice } from '../../builtin-tenants/deals/src/prices/money.ts';
import { claimedDiscount, readHistory, referencePoint } from '../../builtin-tenants/deals/src/prices/reference.ts';
import { DAY_MS, HOUR_MS, NOON } from './support/parts.ts';

describe('money', () => {
  test.each([
    ['12.50', 'EUR', 1_250, 2],
    ['12.5', 'eur', 1_250, 2],
    ['12', 'EUR', 1_200, 2],
    ['1980', 'JPY', 1_980, 0],
    ['1980.00', 'JPY', 1_980, 0],
    ['1.234', 'KWD', 1_234, 3],
    ['0.5', 'KWD', 500, 3],
    ['0.00', 'EUR', 0, 2],
  ])('%s %s', (amount, currency, minor, exponent) => {
    expect(parsePrice(amount, currency)).toEqual({ minor, currency: currency.toUpperCase(), exponent });
  });

  test.each([
    ['12.345', 'EUR'],
    ['19.80', 'JPY'],
    ['1.2345', 'KWD'],
    ['-1', 'EUR'],
    ['1e3', 'EUR'],
    ['1,50', 'EUR'],
    ['٥', 'EUR'],
    ['', 'EUR'],
    ['1', 'XYZ'],
    ['1', ''],
    ['9999999999999', 'EUR'],
    ['Infinity', 'EUR'],
  ])('%s %s is no price', (amount, currency) => {
    expect(parsePrice(amount, currency)).toBeUndefined();
  });

  test('an amount and its currency come in either order', () => {
    const price = { minor: 1_250, currency: 'EUR', exponent: 2 };
    for (const text of ['12.50 EUR', 'EUR 12.50', '12.50EUR', ' eur12.50 '])
      expect(parseAmountWithCurrency(text)).toEqual(price);
    for (const text of ['12.50', 'EUR', '12.50 EUR 3', '1.2.3 EUR'])
      expect(parseAmountWithCurrency(text)).toBeUndefined();
  });

  test.each([
    [1_250, 2, '12.50'],
    [5, 2, '0.05'],
    [1_980, 0, '1980'],
    [1, 3, '0.001'],
  ])('%i with %i decimals is shown as %s', (minor, exponent, shown) => {
    expect(formatMinor(minor, exponent)).toBe(shown);
  });
});

/** One observation a day, oldest first, the last one at noon of the first of November. */
function daily(...prices: number[]) {
  return prices.map((minor, index) => ({ at: NOON - (prices.length - 1 - index) * DAY_MS, minor }));
}
const repeated = (count: number, minor: number) => Array<number>(count).fill(minor);

describe('the reference price', () => {
  test('is the lowest of the 30 days before the drop', () => {
    const history = readHistory(daily(...repeated(20, 10_000), 9_000, ...repeated(10, 10_000), 8_000, 8_000));
    expect(history).toMatchObject({
      minor: 8_000,
      since: NOON - DAY_MS,
      reference: { minor: 9_000, from: NOON - 31 * DAY_MS, to: NOON - DAY_MS, days_observed: 30 },
      discount_bps: 1_111,
      at_low: true,
    });
  });

  test('is not what was cheaper longer ago, but for the price in force when the window began', () => {
    const old = readHistory(daily(5_000, 5_000, ...repeated(35, 10_000), 8_000));
    expect(old?.reference?.minor).toBe(10_000);
    expect(old?.at_low).toBe(false);
    const gap = { at: NOON - 60 * DAY_MS, minor: 7_000 };
    expect(readHistory([gap, ...daily(...repeated(20, 10_000), 8_000)])?.reference?.minor).toBe(7_000);
  });

  test('needs 14 observed days, and many looks on one day are one day', () => {
    expect(readHistory(daily(...repeated(13, 10_000), 8_000))).toMatchObject({ days_observed: 13, discount_bps: 0 });
    expect(readHistory(daily(...repeated(13, 10_000), 8_000))?.reference).toBeUndefined();
    expect(readHistory(daily(...repeated(14, 10_000), 8_000))?.reference?.days_observed).toBe(14);
    const oneDay = Array.from({ length: 20 }, (_, hour) => ({ at: NOON - 3 * DAY_MS + hour * 60_000, minor: 10_000 }));
    expect(readHistory([...oneDay, { at: NOON, minor: 8_000 }])?.days_observed).toBe(1);
  });

  test('of a price that flaps A→B→A→B is B: nothing is sold twice as a drop', () => {
    const history = readHistory(daily(...repeated(20, 10_000), 8_000, 8_000, 10_000, 10_000, 8_000));
    expect(history).toMatchObject({ since: NOON, discount_bps: 0, at_low: true });
    expect(history?.reference?.minor).toBe(8_000);
    const back = readHistory(daily(...repeated(20, 10_000), 8_000, 10_000));
    expect(back).toMatchObject({ minor: 10_000, discount_bps: 0, at_low: false });
  });

  test('of a price that rose is the lower one before: no discount', () => {
    expect(readHistory(daily(...repeated(20, 8_000), 9_000))).toMatchObject({ discount_bps: 0, at_low: false });
  });

  test('counts days in UTC, also over a leap day and the last second of one', () => {
    const leap = Date.UTC(2028, 2, 1, 0, 0, 0);
    const points = Array.from({ length: 20 }, (_, day) => ({ at: leap - 1_000 - (19 - day) * DAY_MS, minor: 10_000 }));
    expect(new Date(points.at(-1)?.at ?? 0).toISOString()).toBe('2028-02-29T23:59:59.000Z');
    const history = readHistory([...points, { at: leap, minor: 7_500 }]);
    expect(history).toMatchObject({ since: leap, days_observed: 20, discount_bps: 2_500 });
    expect(new Date(history?.reference?.from ?? 0).toISOString()).toBe('2028-01-31T00:00:00.000Z');
  });

  test('the window’s first moment is inside it, the one before is not', () => {
    const points = daily(...repeated(20, 10_000), 8_000);
    const edge = { at: NOON - 30 * DAY_MS, minor: 9_500 };
    const between = { at: edge.at + HOUR_MS, minor: 10_000 };
    expect(readHistory([edge, between, ...points])?.reference?.minor).toBe(9_500);
    const earlier = { ...edge, at: edge.at - 2 };
    const carried = { at: edge.at - 1, minor: 10_000 };
    expect(readHistory([earlier, carried, between, ...points])?.reference?.minor).toBe(10_000);
  });

  test('stands on an observation of before the drop', () => {
    const points = daily(...repeated(20, 10_000), 9_000, ...repeated(5, 10_000), 8_000);
    const reference = readHistory(points)?.reference;
    expect(reference && referencePoint(points, reference)).toEqual({ at: NOON - 6 * DAY_MS, minor: 9_000 });
  });

  test('of nothing is nothing', () => {
    expect(readHistory([])).toBeUndefined();
  });
});

test.each([
  [8_000, 10_000, 2_000],
  [8_000, null, 0],
  [8_000, 8_000, 0],
  [8_000, 7_000, 0],
])('a price of %i with a list price of %s claims %i', (minor, list, bps) => {
  expect(claimedDiscount(minor, list)).toBe(bps);
});
