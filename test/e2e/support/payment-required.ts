/** What x402 v2 says in a 402. */
import { decodePaymentRequiredHeader } from '@x402/core/http';

/** All of it but the nonces, which no two have alike. */
export function requiredBesideNonces({ headers }: Pick<Response, 'headers'>): object {
  const { accepts, ...said } = decodePaymentRequiredHeader(headers.get('payment-required') ?? '');
  return { ...said, accepts: accepts.map(({ extra, ...offer }) => ({ ...offer, extra: { ...extra, challenge: '' } })) };
}

/** As often as it has offers. */
export function noncesOf({ headers }: Pick<Response, 'headers'>): string[] {
  const { accepts } = decodePaymentRequiredHeader(headers.get('payment-required') ?? '');
  return accepts.map(({ extra }) => String(extra.challenge));
}
