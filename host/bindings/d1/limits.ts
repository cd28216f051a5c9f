/**
 * Every limit of a DB binding in one place. Those D1 publishes are the same here:
 * https://developers.cloudflare.com/d1/platform/limits/
 */

/** Length of a statement's text, bytes. D1: 100 KB. */
export const MAX_SQL_BYTES = 100_000;
/** Bound parameters of a query. D1: 100. */
export const MAX_PARAMETERS = 100;
/** A string or blob that is bound, bytes. D1: 2 MB. */
export const MAX_VALUE_BYTES = 2_000_000;
/** Head of one request. */
export const MAX_HEAD_BYTES = 16 * 1024;
/** Body of one request (a batch of statements with their parameters), bytes. */
export const MAX_REQUEST_BYTES = 32 * 1024 * 1024;
/** Statements of one batch or exec. */
export const MAX_STATEMENTS = 10_000;

/** Settings of one database; the defaults of what the host leaves out. */
export interface SqlLimits {
  /** Size of the database file, bytes. */
  quotaBytes: number;
  /** Longest run of one query, ms. D1: 30 s. */
  timeoutMs: number;
  /** Rows of one statement's result. */
  maxRows: number;
  /** Bytes of one request's results, as text. */
  maxResultBytes: number;
  /** Memory SQLite may take, bytes: sorts, caches, one statement's values. */
  heapBytes: number;
  /** The engine process ends after this long without a query, ms. */
  idleMs: number;
}

export const DEFAULT_LIMITS: SqlLimits = {
  quotaBytes: 1_073_741_824,
  timeoutMs: 30_000,
  maxRows: 1_000_000,
  maxResultBytes: 32 * 1024 * 1024,
  heapBytes: 96 * 1024 * 1024,
  idleMs: 10_000,
};
