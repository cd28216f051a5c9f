/**
 * Reading text as D1 does where libSQL's binding cannot: it cuts text at a NUL character, and aborts the process on
 * text that is not UTF-8 (seen in libsql 0.5.29). A careful statement asks for text as bytes and decodes it here.
 */
import type { Statement } from './statements.ts';
import { TOKEN } from './tokenizer.ts';

/** SQLite's application_id of a database known to hold such text: its reads are careful from then on. */
export const CAREFUL_APPLICATION_ID = 0x54505443;

/** Words that can make text out of any bytes. */
const MAKERS = new Set(['cast', 'char', 'unhex', 'printf', 'format', 'group_concat', 'string_agg']);
/** Functions with another answer at each call. */
const UNSTEADY = /random|uuid/i;
const MAX_COLUMNS = 900;

/** Whether the statement by itself can make text that needs care. */
export function needsCare(statement: Statement): boolean {
  return statement.tokens.some(
    ({ kind, text, start, end }) =>
      (kind === TOKEN.word && MAKERS.has(text)) ||
      // A blob literal: x'00' || 'a' is text.
      (kind === TOKEN.literal && end - start > 3 && text === 'blob'),
  );
}

/** The same query with two columns for each of its own: the value, text as bytes; and whether it is text. */
export function carefulText(sql: string, columns: number): string | undefined {
  if (columns === 0 || columns > MAX_COLUMNS) return undefined;
  const names = Array.from({ length: columns }, (_, index) => `c${index}`);
  const values = names.map((name) => `CASE typeof(${name}) WHEN 'text' THEN CAST(${name} AS BLOB) ELSE ${name} END`);
  const pairs = names.map((name, index) => `${values[index]}, typeof(${name}) = 'text'`);
  // A line break ends a trailing comment of the query.
  // Each value is asked for three times: one that is another each time must be made only once.
  const once = UNSTEADY.test(sql) ? 'AS MATERIALIZED' : 'AS';
  return `WITH careful(${names.join(',')}) ${once} (${sql}\n) SELECT ${pairs.join(',')} FROM careful`;
}

/** Turns a careful row back into the query's own, bytes that are not UTF-8 becoming U+FFFD as in D1. */
export function decodeRow(row: unknown[]): void {
  const columns = row.length / 2;
  for (let index = 0; index < columns; index++) {
    const value = row[index * 2];
    row[index] = row[index * 2 + 1] === 1 && value instanceof Uint8Array ? Buffer.from(value).toString('utf8') : value;
  }
  row.length = columns;
}
