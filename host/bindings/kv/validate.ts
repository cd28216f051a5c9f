/**
 * What a KV call may ask for: pure checks of keys and options, which answer the checked value or throw a KvError.
 * The order of the checks is Cloudflare's, so that a call with several faults gets the same error.
 */
import { kvErrors } from './errors.ts';
import { MAX_KEY_BYTES, MAX_LIST_KEYS, MAX_METADATA_BYTES, MIN_CACHE_TTL_SECONDS, MIN_TTL_SECONDS } from './limits.ts';

/** The key as bytes, in which form it is stored and ordered. */
export function checkedKey(key: string): Buffer {
  if (key === '') throw kvErrors.emptyKey();
  if (key === '.' || key === '..') throw kvErrors.illegalKey(key);
  const bytes = Buffer.from(key);
  if (bytes.length > MAX_KEY_BYTES) throw kvErrors.keyTooLong(bytes.length);
  return bytes;
}

/** The key of a raw request path: `+`, `&` and `=` are literal in it, so it is no form data. */
export function keyOfPath(path: string, urlencoded: boolean): string {
  const raw = path.slice(1);
  if (!urlencoded || !raw.includes('%')) return raw;
  try {
    return decodeURIComponent(raw);
  } catch {
    throw kvErrors.badKeyEncoding();
  }
}

/** Seconds for which a value may be as old as what a node has read before: no more than the handler asked for. */
export function checkedCacheTtl(given: string | null | undefined): number {
  if (given === null || given === undefined || given === '') return 0;
  const seconds = Number.parseInt(given, 10);
  if (Number.isNaN(seconds) || seconds < MIN_CACHE_TTL_SECONDS) throw kvErrors.cacheTtl(given);
  return seconds;
}

/** Seconds since the epoch at which the key ends, or null. `now` in seconds. A TTL wins over a time. */
export function checkedExpiration(expiration: string | null, ttl: string | null, now: number): number | null {
  if (ttl !== null) {
    const seconds = Number.parseInt(ttl, 10);
    if (Number.isNaN(seconds) || seconds <= 0) throw kvErrors.ttlNotPositive(ttl);
    if (seconds < MIN_TTL_SECONDS) throw kvErrors.ttlTooShort(ttl);
    return Math.min(now + seconds, Number.MAX_SAFE_INTEGER);
  }
  if (expiration === null) return null;
  const at = Number.parseInt(expiration, 10);
  if (Number.isNaN(at) || at <= now) throw kvErrors.expirationPast(expiration);
  if (at < now + MIN_TTL_SECONDS) throw kvErrors.expirationTooSoon(expiration);
  return Math.min(at, Number.MAX_SAFE_INTEGER);
}

/** The metadata's JSON as UTF-8. `header` has one character per byte, as Node gives header values. */
export function checkedMetadata(header: string | undefined): Buffer | null {
  if (header === undefined) return null;
  const bytes = Buffer.from(header, 'latin1');
  if (bytes.length > MAX_METADATA_BYTES) throw kvErrors.metadataTooLong(bytes.length);
  try {
    JSON.parse(bytes.toString());
  } catch {
    throw kvErrors.metadataNotJson();
  }
  return bytes;
}

export interface ListOptions {
  limit: number;
  prefix: Buffer;
  /** Only keys after this one; undefined at the beginning. */
  after: Buffer | undefined;
}

export function checkedListOptions(query: URLSearchParams): ListOptions {
  const givenLimit = query.get('key_count_limit');
  let limit = MAX_LIST_KEYS;
  if (givenLimit !== null) {
    limit = Number.parseInt(givenLimit, 10);
    if (Number.isNaN(limit) || limit < 1) throw kvErrors.limitTooSmall(givenLimit);
    if (limit > MAX_LIST_KEYS) throw kvErrors.limitTooLarge(givenLimit);
  }
  const prefix = Buffer.from(query.get('prefix') ?? '');
  if (prefix.length > MAX_KEY_BYTES) throw kvErrors.keyTooLong(prefix.length);
  const cursor = query.get('cursor');
  return { limit, prefix, after: cursor ? decodeCursor(cursor) : undefined };
}

export function encodeCursor(lastKey: Buffer): string {
  return lastKey.toString('base64url');
}

function decodeCursor(cursor: string): Buffer {
  const key = Buffer.from(cursor, 'base64url');
  if (key.length === 0 || key.length > MAX_KEY_BYTES || key.toString('base64url') !== cursor)
    throw kvErrors.badCursor();
  return key;
}
