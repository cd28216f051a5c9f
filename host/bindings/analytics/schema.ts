/** How data points are kept: one table of all datasets, the oldest first, and a view of each by its name. */

/** As Cloudflare has them: https://developers.cloudflare.com/analytics/analytics-engine/limits/ */
export const BLOBS = 20;
export const DOUBLES = 20;

export interface DataPoint {
  /** Seconds since the epoch. */
  timestamp: number;
  dataset: string;
  index: string | null;
  /** At most {@link BLOBS}. */
  blobs: readonly (string | null)[];
  /** At most {@link DOUBLES}. */
  doubles: readonly (number | null)[];
}

export interface Statement {
  sql: string;
  params: (string | number | null)[];
}

const TABLE = 'turnpike_points';
const blobs = Array.from({ length: BLOBS }, (_, index) => `blob${index + 1}`);
const doubles = Array.from({ length: DOUBLES }, (_, index) => `double${index + 1}`);

/** What a database has to have before anything is written. */
export const MAKE_TABLE: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS ${TABLE} (timestamp INTEGER NOT NULL, dataset TEXT NOT NULL COLLATE NOCASE, index1 TEXT, ${blobs.map((name) => `${name} TEXT`).join(', ')}, ${doubles.map((name) => `${name} REAL`).join(', ')})`,
  `CREATE INDEX IF NOT EXISTS ${TABLE}_by_time ON ${TABLE} (dataset, timestamp)`,
  'CREATE TABLE IF NOT EXISTS turnpike_written (id INTEGER PRIMARY KEY, batch TEXT)',
];

/** Says in the transaction of a write that it was done: whoever got no answer asks for it, and does not do it twice. */
export function markBatch(batch: string): Statement {
  return { sql: 'INSERT OR REPLACE INTO turnpike_written VALUES (1, ?)', params: [batch] };
}
export const LAST_BATCH = 'SELECT batch FROM turnpike_written';

/** What SQL finds under the name of a dataset. What was not given is an empty text or 0, as at Cloudflare. */
export function makeView(dataset: string): string {
  const texts = ['index1', ...blobs].map((name) => `ifnull(${name}, '') AS ${name}`);
  const numbers = doubles.map((name) => `ifnull(${name}, 0.0) AS ${name}`);
  const columns = ['timestamp', 'dataset', '1 AS _sample_interval', ...texts, ...numbers].join(', ');
  const name = dataset.replaceAll('"', '""');
  const text = dataset.replaceAll("'", "''");
  return `CREATE VIEW IF NOT EXISTS "${name}" AS SELECT ${columns} FROM ${TABLE} WHERE dataset = '${text}'`;
}

const INSERT = `INSERT INTO ${TABLE} VALUES (${Array.from({ length: 3 + BLOBS + DOUBLES }, () => '?').join(', ')})`;

export function insert({ timestamp, dataset, index, blobs, doubles }: DataPoint): Statement {
  const padded = <T>(values: readonly T[], count: number) =>
    Array.from({ length: count }, (_, at) => values[at] ?? null);
  return { sql: INSERT, params: [timestamp, dataset, index, ...padded(blobs, BLOBS), ...padded(doubles, DOUBLES)] };
}

/** @param before seconds since the epoch */
export function removeOlder(before: number): Statement {
  return { sql: `DELETE FROM ${TABLE} WHERE timestamp < ?`, params: [before] };
}

/** Rows are numbered as they come. @param parts one of so many is removed; 1: all */
export function removeOldest(parts: number): Statement {
  const last = `SELECT min(rowid) + (max(rowid) - min(rowid)) / CAST(? AS INTEGER) FROM ${TABLE}`;
  return { sql: `DELETE FROM ${TABLE} WHERE rowid <= (${last})`, params: [parts] };
}
