/** Limits of the Cache API; what all entries of a tenant take is a setting of the host. */

/** Status line and fields of an answer. Each match sends them. */
export const MAX_HEAD_BYTES = 32 * 1024;
export const MAX_FIELDS = 256;
/** An answer, as on Cloudflare. */
export const MAX_BODY_BYTES = 512 * 1024 * 1024;
/** Bodies up to here lie in the index; larger ones are files. */
export const INLINE_BYTES = 64 * 1024;
