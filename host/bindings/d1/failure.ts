/** Failures of a query that the tenant gets to read, with their texts as D1 words them. */

/** The message reaches the handler as `D1_ERROR: <message>`. */
export class SqlFailure extends Error {}

export const MESSAGES = {
  noStatements: 'No SQL statements detected.',
  bindings: 'Wrong number of parameter bindings for SQL query.',
  manyWithParameters:
    'When executing multiple SQL statements in a single call, only the last statement can have parameters.',
  tooManyVariables: 'too many SQL variables: SQLITE_ERROR',
  tooLong: 'statement too long: SQLITE_TOOBIG',
  tooBig: 'string or blob too big: SQLITE_TOOBIG',
  full: 'Exceeded maximum DB size: SQLITE_FULL',
  memory: 'D1 DB exceeded its memory limit: SQLITE_NOMEM',
  crashed: 'query crashed the database process; nothing of it was kept, and the database is available again',
  reset: 'D1 DB was reset by another query before this one was finished; it was not applied. Try again.',
  overloaded: 'D1 DB is overloaded. Too many requests queued.',
  unreachable: 'D1 DB is unreachable. Try again.',
  lost: 'Network connection lost. A write may have been applied.',
  unavailable: 'D1 DB could not be started. Try again; if it persists, ask the operator to read the log.',
} as const;

export function timedOut(timeoutMs: number): string {
  return `query exceeded the time limit of ${timeoutMs} ms and was ended; nothing of it was kept`;
}

export function tooManyRows(maxRows: number): string {
  return `query result exceeds ${maxRows} rows; ask for less with LIMIT`;
}

export function resultTooBig(maxBytes: number): string {
  return `query result exceeds ${maxBytes} bytes; ask for fewer rows or columns`;
}

/** Codes that libSQL's binding knows by their number alone. */
const UNNAMED: Record<string, string> = {
  UNKNOWN_SQLITE_ERROR_257: 'SQLITE_ERROR_MISSING_COLLSEQ',
  UNKNOWN_SQLITE_ERROR_3091: 'SQLITE_CONSTRAINT_DATATYPE',
};

/**
 * SQLite's message and code as workerd words them, such as
 * `UNIQUE constraint failed: t.a: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_UNIQUE)`.
 * @param offset where in the text the error is, if known
 */
export function sqliteMessage(message: string, given: string, offset?: number): string {
  const code = UNNAMED[given] ?? given;
  if (code.startsWith('SQLITE_FULL')) return MESSAGES.full;
  if (code.startsWith('SQLITE_NOMEM')) return MESSAGES.memory;
  const primary = /^SQLITE_[A-Z]+/.exec(code)?.[0] ?? 'SQLITE_ERROR';
  const extended = primary === code ? '' : ` (extended: ${code})`;
  return `${message}${offset === undefined ? '' : ` at offset ${offset}`}: ${primary}${extended}`;
}
