/** Reading the parts of a paid request that payments look at. */
import { Problem } from '../shared/problem.ts';

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

/** The body's declared length; undefined when it is not declared. */
export function declaredLength(headers: Headers): number | undefined {
  const text = headers.get('content-length');
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
