/** Questions to the database that do not need each other's answers are asked together: a round trip costs most. */
import type { Database, Statement } from '../environment.ts';

export interface Question<Answer> {
  statements: Statement[];
  /** @param results the rows of each statement */
  read(results: readonly (readonly unknown[])[]): Answer;
}

/** One statement of which the first row is the answer, if there is one. */
export function firstRow<Row>(statement: Statement): Question<Row | undefined> {
  return { statements: [statement], read: ([rows]) => rows?.[0] as Row | undefined };
}

/** What needs no asking. */
export function known<Answer>(answer: Answer): Question<Answer> {
  return { statements: [], read: () => answer };
}

export async function ask<Answer>(db: Database, question: Question<Answer>): Promise<Answer> {
  return (await askBoth(db, question, known(undefined)))[0];
}

/** Both answers are of the same moment. */
export async function askBoth<A, B>(db: Database, a: Question<A>, b: Question<B>): Promise<[A, B]> {
  const statements = [...a.statements, ...b.statements];
  const answered = statements.length === 0 ? [] : await db.batch(statements);
  const rows = answered.map(({ results }) => results);
  const middle = a.statements.length;
  return [a.read(rows.slice(0, middle)), b.read(rows.slice(middle))];
}
