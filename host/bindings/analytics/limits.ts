/** What bounds data points and their queries, on one box and on several nodes. */

/** From a data point to its write, ms; with a start of the SQL process this is what a crash may take. */
export const DELAY_MS = 250;
/** What may wait of one deployment. */
export const MOST_POINTS = 2_000;
export const MOST_WAITING_BYTES = 2 * 1_048_576;
/** In one life of the database. */
export const MOST_DATASETS = 64;
/** How often points are removed that are too old, ms. */
export const SWEEP_MS = 3_600_000;
/** Rows and bytes of an answer. */
export const ANSWER = { maxRows: 10_000, maxResultBytes: 8 * 1_048_576 };
/** Of a query. */
export const QUERY_TIMEOUT_MS = 10_000;
/** How often it is told that points were lost, ms. */
export const TELL_MS = 10_000;
export const DAY_SECONDS = 86_400;
