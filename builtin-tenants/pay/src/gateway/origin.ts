/**
 * Calls of an origin: what is passed on and what never is, how long it may take, and how its price is read from its
 * answer.
 */
import { parseUsage, SLUG, type UsageLine } from '../catalog.ts';
import type { Env, Fetcher } from '../environment.ts';
import { Problem } from '../problem.ts';
import { type Forward, signedHeaders } from './sign.ts';
import type { SigningKeys } from './signing-keys.ts';

/** What calls of origins need. */
export interface Ways {
  keys: SigningKeys;
  origins: Fetcher;
}

/** Those on this host are reached by its edge, all others by the way out. */
export function origins({ APP_URL, EDGE }: Pick<Env, 'APP_URL' | 'EDGE'>): Fetcher {
  const own = `${APP_URL}/`;
  return { fetch: (url, init) => (url.startsWith(own) ? EDGE.fetch(url, init) : fetch(url, init)) };
}

/** Longest wait for the head of an answer. */
export const ORIGIN_TIMEOUT_MS = 60_000;
/** A 402 with a price is small; a larger one is no price. */
const MAX_PRICE_BYTES = 65_536;

/** Of callers: identity, payment, connection, and whatever could look like the gateway's own. */
const NOT_FORWARDED =
  /^(?:x-pay-.*|signature|signature-input|content-digest|authorization|payment-signature|x-payment|cookie|host|content-length|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|proxy-.*|accept-encoding|idempotency-key|x-request-id|x-forwarded-.*|x-real-ip|forwarded|cf-.*|x-turnpike-.*|x-payer)$/;
/** Of origins: cookies would be set for the platform's own address. */
const NOT_ANSWERED =
  /^(?:set-cookie|connection|content-length|keep-alive|transfer-encoding|content-encoding|x-request-id)$/;

export function forwardedHeaders(headers: Headers): Headers {
  const kept = new Headers();
  for (const [name, value] of headers) if (!NOT_FORWARDED.test(name)) kept.append(name, value);
  // The answer is passed on byte by byte, and may be stored.
  kept.set('accept-encoding', 'identity');
  return kept;
}

/** Origins answer on the host's own origin, where each page of theirs gets one that nobody else has. */
const SANDBOX = 'sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts';

export function answeredHeaders(headers: Headers): Headers {
  const kept = new Headers({ 'content-security-policy': SANDBOX });
  for (const [name, value] of headers) if (!NOT_ANSWERED.test(name)) kept.append(name, value);
  return kept;
}

/** @throws Problem upstream_failed, upstream_timeout */
export async function callOrigin(forward: Forward, { keys, origins }: Ways): Promise<Response> {
  const headers = await signedHeaders(forward, keys);
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), ORIGIN_TIMEOUT_MS);
  try {
    const answer = await origins.fetch(forward.url, {
      method: forward.method,
      headers,
      redirect: 'manual',
      signal: stop.signal,
      ...(forward.body.length > 0 ? { body: forward.body } : {}),
    });
    // The host's own way out says so when it could not reach the origin (RFC 9209).
    if (answer.headers.get('proxy-status')?.startsWith('turnpike;')) {
      await answer.body?.cancel();
      throw new Problem('upstream_failed', 'The origin could not be reached. Nothing was charged.');
    }
    return answer;
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (stop.signal.aborted) {
      throw new Problem('upstream_timeout', 'The origin did not answer in time. Nothing was charged.');
    }
    throw new Problem('upstream_failed', 'The origin closed the connection. Nothing was charged.');
  } finally {
    clearTimeout(timer);
  }
}

export interface AskedPrice {
  serviceSlug: string;
  usage: UsageLine[];
  /** How the service says it is called. */
  shape: object | undefined;
}

/**
 * The usage in an origin's 402, and the answer to pass on where there is none.
 * @throws Problem upstream_failed for a 402 that speaks of usage but is malformed
 */
export async function readPrice(answer: Response): Promise<{ asked: AskedPrice } | { answer: Response }> {
  const type = answer.headers.get('content-type') ?? '';
  const length = Number(answer.headers.get('content-length') ?? 0);
  if (answer.status !== 402 || !/^application\/(?:.*\+)?json\b/.test(type) || length > MAX_PRICE_BYTES)
    return { answer };
  const text = await answer.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (typeof body !== 'object' || body === null || !('usage' in body)) {
    return { answer: new Response(text, { status: 402, headers: answer.headers }) };
  }
  const { serviceSlug, usage, call: shape } = body as Partial<AskedPrice> & { call?: unknown };
  const lines = parseUsage(usage);
  if (typeof serviceSlug !== 'string' || !SLUG.test(serviceSlug) || !lines) {
    throw new Problem('upstream_failed', 'The origin requested a price in an unknown format. Nothing was charged.');
  }
  return {
    asked: { serviceSlug, usage: lines, shape: typeof shape === 'object' && shape !== null ? shape : undefined },
  };
}
