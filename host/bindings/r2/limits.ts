/**
 * Limits of R2 as Cloudflare publishes them (https://developers.cloudflare.com/r2/platform/limits/), and some of ours.
 */
export const MAX_KEY_BYTES = 1024;
/** Largest value of one put or one part: 5 GiB less 5 MiB. */
export const MAX_VALUE_BYTES = 5 * 1024 ** 3 - 5 * 1024 ** 2;
export const MAX_METADATA_BYTES = 8192;
/** Ours: of `httpMetadata`, as JSON. A page of a list has room for it, which it must. */
export const MAX_HTTP_METADATA_BYTES = 64 * 1024;
export const MIN_PART_BYTES = 5 * 1024 ** 2;
export const MAX_PARTS = 10_000;
/** Largest object that parts make up: 5 TiB less 5 GiB. */
export const MAX_OBJECT_BYTES = 5 * 1024 ** 4 - 5 * 1024 ** 3;
export const MAX_LIST_KEYS = 1000;
export const MAX_DELETE_KEYS = 1000;
/** An upload that was not completed by then is aborted. */
export const UPLOAD_LIFE_MS = 7 * 24 * 3600 * 1000;

/** Ours: ended uploads that are remembered, so that to abort them again is no error. */
export const MAX_ENDED_UPLOADS = 1000;

/** workerd refuses more than 1 MiB of metadata (r2-rpc.c++), so a page of a list ends before that. */
export const MAX_LIST_REPLY_BYTES = 900 * 1024;
/** Ours: largest JSON in front of a body. 10,000 parts with their etags are about 800 KiB. */
export const MAX_REQUEST_METADATA_BYTES = 2 * 1024 * 1024;
/** Ours: bodies up to here are gathered in memory and written in one piece. */
export const GATHER_BYTES = 256 * 1024;
/** Metadata that goes in a field of an answer. workerd reads heads of 128 KiB at most (capnproto's kj/compat/http.c++). */
export const MAX_FIELD_BYTES = 16 * 1024;
