/** Payments that browsers bring as a cookie, as the rest of the host reads payments; no handler sees the cookie. */
import {
  PAYMENT_COOKIE,
  PAYMENT_HEADER,
  paymentInCookies,
  withoutPaymentCookies,
} from '../../builtin-tenants/kit/payment-cookie.ts';

export function hasPaymentCookie(cookies: string | undefined): boolean {
  return cookies?.includes(PAYMENT_COOKIE) ?? false;
}

/**
 * @param resource URL as the caller sees it
 * @param credentials names of headers that carry a payment: one of them comes before the cookie
 */
export function paidByCookie(request: Request, resource: string, credentials: readonly string[]): Request {
  const cookies = request.headers.get('cookie') ?? '';
  if (!hasPaymentCookie(cookies)) return request;
  const headers = new Headers(request.headers);
  const others = withoutPaymentCookies(cookies);
  if (others === '') headers.delete('cookie');
  else headers.set('cookie', others);
  const reads = request.method === 'GET' || request.method === 'HEAD';
  const payment = paymentInCookies(cookies, resource);
  if (reads && payment !== undefined && !credentials.some((name) => headers.has(name)))
    headers.set(PAYMENT_HEADER, payment);
  if (reads) return new Request(request.url, { method: request.method, headers, signal: request.signal });
  return new Request(request, { headers });
}
