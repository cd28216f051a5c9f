/** Reading the parts of a paid request that payments look at. */
import { createHash } from 'node:crypto';
import { Problem } from '../shared/problem.ts';
import { withCopyOfBody } from '../shared/request-body.ts';

/** Bodies up to this declared length are bound to the challenge, and read before anything is paid. */
export const DIGEST_BYTES = 64 * 1024;

/** @throws Problem `bad_request` for a key that is not 1 to 255 visible characters */
export function readIdempotencyKey(headers: Headers): string | undefined {
  const key = headers.get('idempotency-key');
  if (key === null) return undefined;
  if (!/^[\x21-\x7e]{1,255}$/.test(key))
    throw new Problem('bad_request', 'Idempotency-Key takes 1 to 255 visible ASCII characters.');
  return key;
}

/**
 * `sha-256=<base64>` of a small body, which a proof is then bound to.
 * @returns undefined for a body that is not small, or is none
 * @throws Problem `request_timeout`, `overloaded`
 */
export async function bodyDigest(request: Request, { clientIp }: { clientIp: string }): Promise<string | undefined> {
  const length = declaredLength(request.headers);
  if (length === undefined || length === 0 || length > DIGEST_BYTES) return undefined;
  return await withCopyOfBody(
    request,
    DIGEST_BYTES,
    clientIp,
    (body) => `sha-256=${createHash('sha256').update(body).digest('base64')}`,
  );
}

/** What tells one query from others, short whatever its length; empty for none. @param search with its `?` */
export function queryDigest(search: string): string {
  return search === '' ? '' : `?${createHash('sha256').update(search).digest('base64url')}`;
}

/**
 * The body, where there may be one: a request of the server makes another, whole one of itself when it is asked for its
 * body, which takes as long as to read the credential.
 */
export function bodyOf(request: Request): Request['body'] {
  return mayHaveBody(request.method) ? request.body : null;
}

/** As `Request` has it. */
export function mayHaveBody(method: string): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** The body's declared length; undefined when it is not declared. */
export function declaredLength(headers: Headers): number | undefined {
  const text = headers.get('content-length');
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
