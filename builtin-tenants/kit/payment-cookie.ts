/**
 * A payment that the page of a 402 has kept as a cookie (host/pages/wallet.js): a browser cannot set headers when it goes
 * to a page. It counts as the header would, for the very URL that it names.
 */

/** Of one path, for as long as the signature is good. */
export const PAYMENT_COOKIE = 'turnpike-payment';
/** The header that it stands for. */
export const PAYMENT_HEADER = 'payment-signature';
const PAIR = new RegExp(`(?:^|;)\\s*${PAYMENT_COOKIE}=([A-Za-z0-9+/=]{0,4096})\\s*(?=;|$)`, 'g');

/** @param resource URL as the caller sees it @returns what the header would hold; undefined where none is for that URL */
export function paymentInCookies(cookies: string, resource: string): string | undefined {
  return [...cookies.matchAll(PAIR)].map(([, value = '']) => value).find((value) => isFor(value, resource));
}

export function withoutPaymentCookies(cookies: string): string {
  return cookies.replace(PAIR, '').replace(/^;\s*/, '');
}

function isFor(value: string, resource: string): boolean {
  try {
    const { resource: named } = JSON.parse(atob(value)) as { resource?: { url?: unknown } };
    return named?.url === resource;
  } catch {
    return false;
  }
}
