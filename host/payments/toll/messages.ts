/** Requests as handlers may see them, and answers as payers get them. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { formatUsd } from '../../shared/money.ts';
import { CREDENTIAL_HEADERS, EXPOSED_HEADERS, removeCredentials } from '../methods/index.ts';
import { bodyOf, mayHaveBody } from '../request.ts';
import { receiptHeaders } from '../settlement/receipts.ts';
import type { ForwardedRequest } from '../types.ts';
import { answerHeaders } from './answer.ts';
import type { Visit } from './visit.ts';

/** Fields that only the toll may set; callers' own are dropped. */
const OURS = ['x-payer', 'x-payment-id', 'x-payment-attempt', 'x-payment-check', 'x-charge'];

/**
 * The request as the handler may see it: without what only the toll may say.
 * @param paid credentials that the toll takes are no business of the handler; others may be for its env.PAYMENTS
 */
export function forwarded(request: Request, body: Uint8Array | undefined, paid = true): ForwardedRequest {
  const headers = new Headers(request.headers);
  for (const name of OURS) headers.delete(name);
  if (paid) removeCredentials(headers);
  const { method, url } = request;
  // What was read is held until the caller has its answer; the handler may have more time.
  const content = body && mayHaveBody(method) ? new Uint8Array(body) : bodyOf(request);
  return { method, url, headers, body: content };
}

/** As `forwarded`, for another reader of requests. */
export function withoutCredentials(request: Request): Request {
  const { url, method, headers, body } = forwarded(request, undefined);
  return new Request(url, { method, headers, body, redirect: 'manual', ...(body ? { duplex: 'half' as const } : {}) });
}

export function isPreflight(request: Request): boolean {
  return request.method === 'OPTIONS' && request.headers.has('access-control-request-method');
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
const PAYERS_HEADERS = [...CREDENTIAL_HEADERS, 'content-type', 'idempotency-key', 'x-max-price'];

/**
 * The host's own answer to OPTIONS of a priced path: the handler's could be what is sold.
 * @param priced methods under which the path has a price, `*` for any
 */
export function optionsAnswer(request: Request, priced: readonly string[], requestId: string): Response {
  const named = priced.includes('*') ? METHODS : [...priced, ...(priced.includes('GET') ? ['HEAD'] : []), 'OPTIONS'];
  const methods = [...new Set(named)].join(', ');
  const headers = new Headers({ allow: methods, 'x-request-id': requestId });
  if (isPreflight(request)) {
    const asked = (request.headers.get('access-control-request-headers') ?? '').toLowerCase().split(',');
    const tokens = asked.map((name) => name.trim()).filter((name) => /^[a-z0-9!#$%&'*+.^_`|~-]{1,64}$/.test(name));
    headers.set('access-control-allow-origin', '*');
    headers.set('access-control-allow-methods', methods);
    headers.set('access-control-allow-headers', [...new Set([...PAYERS_HEADERS, ...tokens.slice(0, 64)])].join(', '));
    headers.set('access-control-max-age', '600');
    expose(headers);
  }
  return new Response(null, { status: 204, headers });
}

export function paidHeaders(response: { headers: Headers }, row: PaymentRow, context: EdgeContext): Headers {
  const headers = new Headers(answerHeaders(response.headers));
  for (const [name, value] of Object.entries(receiptHeaders(row))) headers.set(name, value);
  headers.set('x-request-id', context.requestId);
  // A paid answer is its payer's: caches in between must not hand it to others.
  if (!/no-store|private/i.test(headers.get('cache-control') ?? '')) headers.set('cache-control', 'private');
  return expose(headers);
}

/** Of a socket that is charged while it is open: what it will have cost nobody knows yet. */
export function liveHeaders(opened: { headers: Headers }, row: PaymentRow, { context, limit }: Visit): Headers {
  const headers = paidHeaders(opened, row, context);
  headers.set('x-payment-held', formatUsd(limit));
  return headers;
}

function expose(headers: Headers): Headers {
  const present = headers.get('access-control-expose-headers');
  headers.set('access-control-expose-headers', present ? `${present}, ${EXPOSED_HEADERS}` : EXPOSED_HEADERS);
  return headers;
}

export function exposed(response: Response): Response {
  expose(response.headers);
  return response;
}

export function withRequestId(response: Response, context: EdgeContext): Response {
  const headers = new Headers(answerHeaders(response.headers));
  headers.set('x-request-id', context.requestId);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
