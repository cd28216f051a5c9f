/**
 * Amounts are whole micro-USD (1 USD = 1,000,000), far below where JavaScript numbers stop being exact.
 * What is charged is rounded up to the next micro-USD, never by floating point.
 */
import { parseUsd as parseAmount } from '../../kit/usd.ts';

export { formatUsd } from '../../kit/usd.ts';

/** Whole micro-USD. */
export type MicroUsd = number;

/**
 * @param text a decimal such as `0.05`, at most six decimals
 * @throws RangeError for anything else
 */
export function parseUsd(text: string): MicroUsd {
  const amount = parseAmount(text.trim());
  if (amount === undefined) throw new RangeError(`not an amount in USD: ${text.slice(0, 40)}`);
  return amount;
}

/** @param billableMs whole milliseconds of audio over all channels; a started micro-USD is charged */
export function priceOfAudio(billableMs: number, perSecond: MicroUsd): MicroUsd {
  return Math.max(1, Math.ceil((billableMs * perSecond) / 1000));
}

/** The longest audio that `amount` pays for, in whole milliseconds. */
export function audioFor(amount: MicroUsd, perSecond: MicroUsd): number {
  return perSecond === 0 ? Number.MAX_SAFE_INTEGER : Math.floor((amount * 1000) / perSecond);
}

/** @param perMillion micro-USD for a million characters, so that a character may cost less than one micro-USD */
export function priceOfText(characters: number, perMillion: number): MicroUsd {
  return Math.max(1, Math.ceil((characters * perMillion) / 1_000_000));
}
