/** From a query's text to statements that may be run: the guard and the limits, with D1's messages. */
import { MESSAGES, SqlFailure } from './failure.ts';
import { guard, RefusedSql } from './guard.ts';
import { MAX_SQL_BYTES } from './limits.ts';
import type { Statement } from './statements.ts';
import { UnreadableSql } from './tokenizer.ts';

export interface ReadStatements {
  /** Empty for blank text and comments. */
  statements: Statement[];
  /** How many parameters the last statement takes; the others take none. */
  parameters: number;
}

/** @throws SqlFailure when the text is refused or cannot be read */
export function readStatements(sql: string): ReadStatements {
  if (sql.length > MAX_SQL_BYTES / 3 && Buffer.byteLength(sql) > MAX_SQL_BYTES) throw new SqlFailure(MESSAGES.tooLong);
  const statements = checked(sql);
  if (statements.slice(0, -1).some((statement) => statement.parameters > 0)) {
    throw new SqlFailure(MESSAGES.manyWithParameters);
  }
  return { statements, parameters: statements.at(-1)?.parameters ?? 0 };
}

/** The text of one statement, without the semicolons and comments around it. */
export function textOf(sql: string, statement: Statement): string {
  return sql.slice(statement.tokens[0]?.start, statement.tokens.at(-1)?.end);
}

function checked(sql: string): Statement[] {
  try {
    return guard(sql);
  } catch (error) {
    if (error instanceof RefusedSql) throw new SqlFailure(error.message);
    if (error instanceof UnreadableSql) throw new SqlFailure(`${error.message}: SQLITE_ERROR`);
    throw error;
  }
}
