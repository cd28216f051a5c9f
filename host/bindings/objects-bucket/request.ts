/**
 * What workerd asks of the bucket of objects, and nothing else that S3 has: the one place where a request's target and
 * headers are checked. Seen of workerd 1.20261117.1: GET, PUT with If-Match or If-None-Match, DELETE, and ListObjectsV2.
 */
import { MOST_BODY_BYTES } from './limits.ts';

/** A name inside of a tenant's prefix. */
export type BucketCall =
  | { kind: 'get'; key: string }
  | { kind: 'put'; key: string; condition: Condition; bytes: number }
  | { kind: 'delete'; key: string }
  | { kind: 'list'; prefix: string; after: string; most: number; delimited: boolean };

/** When a write takes place: always, where nothing is, or where this is. */
export type Condition = { kind: 'any' } | { kind: 'absent' } | { kind: 'etag'; etag: string };

export interface Refusal {
  status: number;
  /** Of S3. */
  code: string;
}

/** Bucket in the addresses that workerd is told; below it each tenant has a folder of its name. */
export const BUCKET = 'objects';
const MOST_KEY = 512;
const MOST_LISTED = 1_000;
/** Segments without any that means another folder. workerd needs no other characters, so nothing is ever decoded. */
const KEY = /^(?!\.{1,2}(?:\/|$))[\w.-]+(?:\/(?!\.{1,2}(?:\/|$))[\w.-]+)*$/;
const PREFIX = /^(?:(?!\.{1,2}\/)[\w.-]+\/)*[\w.-]*$/;
const ETAG = /^"?([0-9a-f]{24})"?$/;
const LIST_PARAMETERS = new Set([
  'list-type',
  'prefix',
  'delimiter',
  'continuation-token',
  'start-after',
  'max-keys',
  'encoding-type',
]);

const DENIED: Refusal = { status: 403, code: 'AccessDenied' };
const INVALID: Refusal = { status: 400, code: 'InvalidArgument' };
const UNKNOWN: Refusal = { status: 501, code: 'NotImplemented' };

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** @param tenant whose prefix it must be in */
export function readCall(tenant: string, method: string, target: string, headers: Headers): BucketCall | Refusal {
  const url = /^\/objects(?:\/([^?]*))?(?:\?(.*))?$/.exec(target);
  if (!url) return DENIED;
  const [, path = '', query = ''] = url;
  if (path === '') return method === 'GET' ? readList(tenant, query) : UNKNOWN;
  const own = `${tenant}/`;
  if (!path.startsWith(own)) return DENIED;
  const key = path.slice(own.length);
  if (key.length > MOST_KEY || !KEY.test(key)) return INVALID;
  if (query !== '' || headers['x-amz-copy-source'] !== undefined) return UNKNOWN;
  if (method === 'PUT') return readPut(key, headers);
  if (headers['if-match'] !== undefined || headers['if-none-match'] !== undefined || headers.range !== undefined)
    return UNKNOWN;
  if (method === 'GET') return { kind: 'get', key };
  return method === 'DELETE' ? { kind: 'delete', key } : UNKNOWN;
}

function readPut(key: string, headers: Headers): BucketCall | Refusal {
  const length = headers['content-length'];
  if (typeof length !== 'string') return { status: 411, code: 'MissingContentLength' };
  const bytes = Number(length);
  if (!Number.isSafeInteger(bytes)) return INVALID;
  if (bytes > MOST_BODY_BYTES) return { status: 413, code: 'EntityTooLarge' };
  if (headers['content-encoding'] !== undefined) return UNKNOWN;
  const { 'if-match': match, 'if-none-match': none } = headers;
  if (match === undefined && none === undefined) return { kind: 'put', key, bytes, condition: { kind: 'any' } };
  if (match === undefined) return none === '*' ? { kind: 'put', key, bytes, condition: { kind: 'absent' } } : INVALID;
  const etag = none === undefined && typeof match === 'string' ? ETAG.exec(match)?.[1] : undefined;
  return etag === undefined ? INVALID : { kind: 'put', key, bytes, condition: { kind: 'etag', etag } };
}

function readList(tenant: string, query: string): BucketCall | Refusal {
  const parameters = new URLSearchParams(query);
  const names = [...parameters.keys()];
  if (names.some((name) => !LIST_PARAMETERS.has(name)) || new Set(names).size < names.length) return UNKNOWN;
  const value = (name: string) => parameters.get(name) ?? '';
  const own = `${tenant}/`;
  const prefix = value('prefix');
  if (value('list-type') !== '2' || !['', '/'].includes(value('delimiter'))) return UNKNOWN;
  if (!prefix.startsWith(own)) return DENIED;
  const after = value('continuation-token') || value('start-after');
  if (![prefix, after].every((text) => text.length <= MOST_KEY + own.length && PREFIX.test(text))) return INVALID;
  if (after !== '' && !after.startsWith(own)) return DENIED;
  const most = Number(value('max-keys') || MOST_LISTED);
  if (!Number.isInteger(most) || most < 1) return INVALID;
  return {
    kind: 'list',
    prefix: prefix.slice(own.length),
    after: after.slice(own.length),
    most: Math.min(most, MOST_LISTED),
    delimited: value('delimiter') === '/',
  };
}
