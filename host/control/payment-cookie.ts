/**
 * A payment that the page of a 402 has kept as a cookie (host/pages/wallet.js): a browser cannot set headers when it goes
 * to a page. It counts as the header would, for the very URL that it names; no handler sees it.
 */

/** Of one path, for as long as the signature is good. */
const PAYMENT_COOKIE = 'turnpike-payment';
const HEADER = 'payment-signature';
const PAIR = new RegExp(`(?:^|;)\\s*${PAYMENT_COOKIE}=([A-Za-z0-9+/=]{0,4096})\\s*(?=;|$)`, 'g');

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
  const values = [...cookies.matchAll(PAIR)].map(([, value = '']) => value);
  const others = cookies.replace(PAIR, '').replace(/^;\s*/, '');
  if (others === '') headers.delete('cookie');
  else headers.set('cookie', others);
  const reads = request.method === 'GET' || request.method === 'HEAD';
  const payment = values.find((value) => isFor(value, resource));
  if (reads && payment !== undefined && !credentials.some((name) => headers.has(name))) headers.set(HEADER, payment);
  if (reads) return new Request(request.url, { method: request.method, headers, signal: request.signal });
  return new Request(request, { headers });
}

function isFor(value: string, resource: string): boolean {
  try {
    const { resource: named } = JSON.parse(Buffer.from(value, 'base64').toString('utf8')) as {
      resource?: { url?: unknown };
    };
    return named?.url === resource;
  } catch {
    return false;
  }
}
