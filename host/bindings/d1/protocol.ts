/**
 * D1's wire protocol: the requests workerd's `cloudflare-internal:d1-api` makes, and the answers it reads.
 * Source: src/cloudflare/internal/d1-api.ts in workerd, and Miniflare's src/workers/d1/database.worker.ts.
 * The body of a request is a tenant's: this is the boundary where it is checked.
 */
import { MESSAGES, SqlFailure } from './failure.ts';
import { MAX_STATEMENTS } from './limits.ts';
import { checkParameters, type Parameter } from './parameters.ts';

export interface Query {
  sql: string;
  parameters: Parameter[];
}

/** `ROWS_AND_COLUMNS` for all(), first(), raw() and batch(); objects for run() and exec(). */
export type ResultsFormat = 'rows' | 'objects';

/** `<kind>/<name of a binding>/<operation>` below it, at the host's worker in the live instance: a call of its protocol. */
export const DATABASE_PATH = '/database/';
/** A session sends and receives its bookmark in this header. */
export const BOOKMARK_HEADER = 'x-cf-d1-session-commit-token';

export interface Meta {
  /** ms inside the database. */
  duration: number;
  changes: number;
  lastRowId: number;
  changed: boolean;
  /** Size of the database, bytes. */
  sizeAfter: number;
  rowsRead: number;
  rowsWritten: number;
}

/** Rows whose blobs are arrays of numbers already. */
export interface StatementResult {
  columns: readonly string[];
  rows: readonly (readonly unknown[])[];
  meta: Meta;
}

/** @throws SqlFailure */
export function parseQueries(body: string): Query[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    throw new SqlFailure('the request body is not JSON');
  }
  const list: unknown[] = Array.isArray(parsed) ? parsed : [parsed];
  if (list.length > MAX_STATEMENTS) throw new SqlFailure(`more than ${MAX_STATEMENTS} statements in one request`);
  return list.map(parseQuery);
}

function parseQuery(value: unknown): Query {
  if (typeof value !== 'object' || value === null || !('sql' in value) || typeof value.sql !== 'string') {
    throw new SqlFailure('the request body is not a query: expected {"sql": string, "params"?: array}');
  }
  const parameters = 'params' in value ? value.params : undefined;
  return { sql: value.sql, parameters: checkParameters(parameters) };
}

export function resultsFormat(search: string): ResultsFormat {
  return search.includes('resultsFormat=ROWS_AND_COLUMNS') ? 'rows' : 'objects';
}

/** The JSON text of a successful answer: one entry a statement. */
export function successText(results: readonly StatementResult[], format: ResultsFormat): string {
  if (results.length === 0) throw new SqlFailure(MESSAGES.noStatements);
  let text = '[';
  for (const [index, { columns, rows, meta }] of results.entries()) {
    const body =
      format === 'rows'
        ? `{"columns":${JSON.stringify(columns)},"rows":${JSON.stringify(rows)}}`
        : rows.length === 0
          ? '[]'
          : JSON.stringify(toObjects(columns, rows));
    text += `${index === 0 ? '' : ','}{"success":true,"results":${body},"meta":${metaText(meta)}}`;
  }
  return `${text}]`;
}

export function failureText(message: string): string {
  return JSON.stringify({ success: false, error: message });
}

function metaText(meta: Meta): string {
  const duration = Math.round(meta.duration * 10_000) / 10_000;
  return (
    `{"served_by":"turnpike","served_by_primary":true,"total_attempts":1,"timings":{"sql_duration_ms":${duration}},` +
    `"duration":${duration},"changes":${meta.changes},"last_row_id":${meta.lastRowId},"changed_db":${meta.changed},` +
    `"size_after":${meta.sizeAfter},"rows_read":${meta.rowsRead},"rows_written":${meta.rowsWritten}}`
  );
}

/** Of two columns with one name the later wins, as in D1. */
function toObjects(columns: readonly string[], rows: readonly (readonly unknown[])[]): Record<string, unknown>[] {
  return rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
}
