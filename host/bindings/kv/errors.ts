/**
 * Every way in which KV refuses a call. workerd shows the tenant `KV GET failed: <status> <message>`, taking the
 * message from the reason phrase; texts as in Cloudflare's KV (see miniflare's src/workers/kv/validator.worker.ts).
 */
import { Refusal } from '../store-process/refusal.ts';
import {
  MAX_BULK_BYTES,
  MAX_BULK_KEYS,
  MAX_KEY_BYTES,
  MAX_LIST_KEYS,
  MAX_METADATA_BYTES,
  MAX_VALUE_BYTES,
  MIN_CACHE_TTL_SECONDS,
  MIN_TTL_SECONDS,
} from './limits.ts';

export class KvError extends Refusal {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = 'KvError';
    this.status = status;
  }
}

export const kvErrors = {
  notFound: () => new KvError(404, 'Not Found'),
  methodNotAllowed: () => new KvError(405, 'Method Not Allowed'),
  badKeyEncoding: () => new KvError(400, 'Could not URL-decode key name'),
  emptyKey: () => new KvError(400, 'Key names must not be empty'),
  illegalKey: (key: string) => new KvError(400, `Illegal key name "${key}". Please use a different name.`),
  keyTooLong: (bytes: number) =>
    new KvError(414, `UTF-8 encoded length of ${bytes} exceeds key length limit of ${MAX_KEY_BYTES}.`),
  cacheTtl: (given: string) =>
    new KvError(400, `Invalid cache_ttl of ${given}. Cache TTL must be at least ${MIN_CACHE_TTL_SECONDS}.`),
  ttlNotPositive: (given: string) =>
    new KvError(400, `Invalid expiration_ttl of ${given}. Please specify integer greater than 0.`),
  ttlTooShort: (given: string) =>
    new KvError(400, `Invalid expiration_ttl of ${given}. Expiration TTL must be at least ${MIN_TTL_SECONDS}.`),
  expirationPast: (given: string) =>
    new KvError(
      400,
      `Invalid expiration of ${given}. Please specify integer greater than the current number of seconds since the UNIX epoch.`,
    ),
  expirationTooSoon: (given: string) =>
    new KvError(
      400,
      `Invalid expiration of ${given}. Expiration times must be at least ${MIN_TTL_SECONDS} seconds in the future.`,
    ),
  metadataTooLong: (bytes: number) =>
    new KvError(413, `Metadata length of ${bytes} exceeds limit of ${MAX_METADATA_BYTES}.`),
  metadataNotJson: () => new KvError(400, 'Metadata must be valid JSON.'),
  valueTooLong: (bytes: number) => new KvError(413, `Value length of ${bytes} exceeds limit of ${MAX_VALUE_BYTES}.`),
  limitTooSmall: (given: string) =>
    new KvError(400, `Invalid key_count_limit of ${given}. Please specify an integer greater than 0.`),
  limitTooLarge: (given: string) =>
    new KvError(400, `Invalid key_count_limit of ${given}. Please specify an integer less than ${MAX_LIST_KEYS}.`),
  badCursor: () => new KvError(400, 'Invalid cursor. Please use the cursor of an earlier list.'),
  badBulkBody: () => new KvError(400, 'The body of a bulk get must be JSON with a list of keys.'),
  bulkType: (type: string) => new KvError(400, `"${type}" is not a valid type. Use "json" or "text"`),
  bulkTooMany: () => new KvError(400, `You can request a maximum of ${MAX_BULK_KEYS} keys`),
  bulkTooFew: () => new KvError(400, 'You must request a minimum of 1 key'),
  bulkTooLarge: () => new KvError(413, `Total size of request exceeds the limit of ${MAX_BULK_BYTES / 1024 / 1024}MB`),
  bulkNotType: (type: string) =>
    new KvError(400, `At least one of the requested keys corresponds to a non-${type} value`),
  quota: (bytes: number) => new KvError(507, `Insufficient Storage: the quota of ${bytes} bytes is used up.`),
  diskFull: () => new KvError(507, 'Insufficient Storage: the disk of this host is full.'),
  tooManyRequests: () => new KvError(429, 'Too Many Requests'),
  internal: () => new KvError(500, 'Internal Server Error'),
};
