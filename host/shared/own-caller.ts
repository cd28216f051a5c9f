/**
 * Calls of this host by its own tenants arrive from the machine itself. The egress says in a header which tenant calls,
 * authenticated with a key that it shares with the edges, and each tenant counts as a caller of its own.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

/** Both ends drop whatever else begins with `x-turnpike-`. */
export const OWN_CALLER_HEADER = 'x-turnpike-caller';

const FORM = /^([A-Za-z0-9._-]{1,128})\.([A-Za-z0-9_-]{43})$/;

/** @returns value of the header */
export function ownCaller(tenant: string, key: string): string {
  return `${tenant}.${createHmac('sha256', key).update(tenant).digest('base64url')}`;
}

/**
 * @returns the address under which the tenant counts; undefined where the header is not ours. Each has an IPv6 /64 of its
 *   own in the range that is never routed (RFC 4193), for limits count by address and by /64.
 */
export function ownCallerAddress(header: string, key: string): string | undefined {
  const [, tenant, mac] = FORM.exec(header) ?? [];
  if (tenant === undefined || mac === undefined) return undefined;
  const expected = createHmac('sha256', key).update(tenant).digest();
  const given = Buffer.from(mac, 'base64url');
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
  const id = createHash('sha256').update(tenant).digest('hex');
  return `fd${id.slice(0, 2)}:1${id.slice(2, 5)}:1${id.slice(5, 8)}:1${id.slice(8, 11)}::1`;
}
