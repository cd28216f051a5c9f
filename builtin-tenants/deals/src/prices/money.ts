/** Prices as merchants state them: integer minor units of an ISO 4217 currency. No conversion between currencies. */
import { code } from 'currency-codes';

export interface Price {
  minor: number;
  /** ISO 4217, upper case. */
  currency: string;
  /** Decimals of the currency: 2 for EUR, 0 for JPY, 3 for KWD. */
  exponent: number;
}

/** @returns undefined for a currency that is not in ISO 4217 */
export function exponentOf(currency: string): number | undefined {
  return code(currency)?.digits;
}

const AMOUNT = /^(\d{1,12})(?:\.(\d{1,6}))?$/;

/**
 * `12.50`, `EUR` -> 1250 minor units.
 * @returns undefined where it is no amount, or has more decimals than the currency (but zeros)
 */
export function parsePrice(amount: string, currency: string): Price | undefined {
  const upper = currency.trim().toUpperCase();
  const exponent = /^[A-Z]{3}$/.test(upper) ? exponentOf(upper) : undefined;
  const match = AMOUNT.exec(amount.trim());
  if (exponent === undefined || !match) return undefined;
  const fraction = match[2] ?? '';
  if (/[1-9]/.test(fraction.slice(exponent))) return undefined;
  const minor = Number(`${match[1]}${fraction.slice(0, exponent).padEnd(exponent, '0')}`);
  return Number.isSafeInteger(minor) ? { minor, currency: upper, exponent } : undefined;
}

/** `12.50 EUR` or `EUR 12.50`, as in Google Merchant feeds. */
export function parseAmountWithCurrency(text: string): Price | undefined {
  const match = /^([A-Za-z]{3})\s*([\d.]+)$|^([\d.]+)\s*([A-Za-z]{3})$/.exec(text.trim());
  if (!match) return undefined;
  return parsePrice(match[2] ?? match[3] ?? '', match[1] ?? match[4] ?? '');
}

/** `1250`, exponent 2 -> `12.50`. */
export function formatMinor(minor: number, exponent: number): string {
  const digits = String(minor).padStart(exponent + 1, '0');
  return exponent === 0 ? digits : `${digits.slice(0, -exponent)}.${digits.slice(-exponent)}`;
}
