/**
 * The interface of D1 over libSQL in memory: every statement and every batch is one step, as on the real one, and other
 * callers come in between.
 */
import Sqlite from 'libsql';
import type { Database, Statement } from '../../../builtin-tenants/deals/src/environment.ts';

type Value = string | number | null;

export interface MemoryDatabase extends Database {
  /** Reads and changes beside the program. */
  sql<Row = Record<string, unknown>>(text: string, ...values: Value[]): Row[];
  close(): void;
}

export function memoryDatabase(): MemoryDatabase {
  const db = new Sqlite(':memory:');
  db.exec('PRAGMA foreign_keys = ON');
  const prepared = new Map<string, Sqlite.Statement>();
  const run = (text: string, values: Value[]) => {
    let statement = prepared.get(text);
    if (!statement) {
      statement = db.prepare(text);
      prepared.set(text, statement);
    }
    if (statement.reader) {
      const results = statement.all(...values) as never[];
      return { results, meta: { changes: results.length } };
    }
    const { changes } = statement.run(...values);
    return { results: [] as never[], meta: { changes } };
  };
  const others = () => new Promise<void>((resolve) => setImmediate(resolve));
  const bound = (text: string, values: Value[]) => ({
    now: () => run(text, values),
    bind: (...more: Value[]) => bound(text, more),
    async first<Row>() {
      await others();
      return (run(text, values).results[0] ?? null) as Row | null;
    },
    async all<Row>() {
      await others();
      return run(text, values) as { results: Row[]; meta: { changes: number } };
    },
    async run() {
      await others();
      return run(text, values);
    },
  });
  return {
    prepare: (text) => bound(text, []) as Statement,
    async batch(statements) {
      await others();
      db.exec('BEGIN IMMEDIATE');
      try {
        const results = statements.map((statement) => (statement as unknown as { now(): never }).now());
        db.exec('COMMIT');
        return results;
      } catch (error) {
        db.exec('ROLLBACK');
        throw error;
      }
    },
    sql: (text, ...values) => run(text, values).results,
    close: () => db.close(),
  };
}
