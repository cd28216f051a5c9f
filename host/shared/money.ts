/** Money is an integer number of micro-USD (1 USD = 1,000,000) in a bigint. No floats anywhere. */

declare const unit: unique symbol;
export type Money = bigint & { readonly [unit]: 'micro-USD' };

export const ZERO = 0n as Money;

/** @param microUsd integer micro-USD */
export function micro(microUsd: bigint | number): Money {
  return BigInt(microUsd) as Money;
}

const DECIMAL = /^(\d{1,12})(?:\.(\d{1,6}))?$/;

/**
 * Parses a non-negative decimal USD string such as `0.20`.
 * @throws RangeError for signs, exponents, white space, other digits or more than six decimals
 */
export function parseUsd(text: string): Money {
  const match = DECIMAL.exec(text);
  if (!match) throw new RangeError(`not an amount in USD: ${JSON.stringify(text.slice(0, 40))}`);
  return (BigInt(match[1] ?? '0') * 1_000_000n + BigInt((match[2] ?? '').padEnd(6, '0'))) as Money;
}

/** `200000n` -> `0.20`; at least two decimals, at most six, exact. */
export function formatUsd(amount: Money): string {
  const sign = amount < 0n ? '-' : '';
  const absolute = amount < 0n ? -amount : amount;
  const fraction = (absolute % 1_000_000n)
    .toString()
    .padStart(6, '0')
    .replace(/0{1,4}$/, '');
  return `${sign}${absolute / 1_000_000n}.${fraction}`;
}

export function add(...amounts: Money[]): Money {
  return amounts.reduce((sum, amount) => sum + amount, 0n) as Money;
}

export function subtract(a: Money, b: Money): Money {
  return (a - b) as Money;
}

/** The share of `amount` at `basisPoints` (1/100 %), rounded down: the remainder stays with the payee. */
export function share(amount: Money, basisPoints: number): Money {
  return ((amount * BigInt(basisPoints)) / 10_000n) as Money;
}

/** The smallest of amounts. */
export function least<T extends bigint>(first: T, ...others: T[]): T {
  let found = first;
  for (const other of others) if (other < found) found = other;
  return found;
}
