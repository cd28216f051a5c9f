/**
 * Limits of KV as Cloudflare publishes them (https://developers.cloudflare.com/kv/platform/limits/), and two of ours.
 */
export const MAX_KEY_BYTES = 512;
export const MAX_VALUE_BYTES = 25 * 1024 * 1024;
export const MAX_METADATA_BYTES = 1024;
export const MIN_TTL_SECONDS = 60;
export const MIN_CACHE_TTL_SECONDS = 30;
export const MAX_LIST_KEYS = 1000;
export const MAX_BULK_KEYS = 100;
export const MAX_BULK_BYTES = 25 * 1024 * 1024;

/** Ours: values up to here are kept in the database, larger ones as files beside it. */
export const INLINE_BYTES = 64 * 1024;
/** Ours: largest body of a bulk get (100 keys in JSON escapes, with room). */
export const MAX_BULK_REQUEST_BYTES = 1024 * 1024;
