/**
 * Statements whose text is built once. Drizzle puts a statement together from hundreds of objects each time it runs, a
 * fifth of what a paid call took; its own `prepare` keeps the text, but such a statement cannot be in a batch.
 * Source of the shapes: drizzle-orm's sql/sql.ts, where placeholders are among the `params`.
 */
import type { InStatement, InValue } from '@libsql/client/sqlite3';
import type { SQL } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import { eq, getTableColumns, is, Param, Placeholder, sql } from './drizzle.ts';
import type { Database, Registry } from './index.ts';
import { valuesOf } from './results.ts';

/** A text and its values, as the database takes them. */
export type BuiltStatement = Exclude<InStatement, string>;

/** What drizzle's builders of statements have in common. */
export interface Builder {
  toSQL(): { sql: string; params: unknown[] };
}

export type Statement = Builder | BuiltStatement;

export function built(statement: Statement): BuiltStatement {
  if (!('toSQL' in statement)) return statement;
  const { sql: text, params } = statement.toSQL();
  return { sql: text, args: params as InValue[] };
}

type Values = Record<string, unknown>;

/**
 * @param builder with `sql.placeholder(name)` for what changes from one time to the next
 * @returns the statement with its values; null is NULL, and the database's driver refuses undefined
 */
export function compiled(builder: Builder): (values: Values) => BuiltStatement {
  return compiledFor(builder, (name) => (values: Values) => values[name]);
}

/** @param reader where the value of a placeholder is found in what is given */
function compiledFor<Given>(
  builder: Builder,
  reader: (placeholder: string) => (given: Given) => unknown,
): (given: Given) => BuiltStatement {
  const { sql: text, params } = builder.toSQL();
  const readers = params.map((param): ((given: Given) => unknown) => {
    if (is(param, Placeholder)) return reader(param.name);
    if (!is(param, Param)) return () => param;
    const { value: placeholder, encoder } = param;
    if (!is(placeholder, Placeholder)) throw new Error('drizzle has encoded every other parameter by now');
    const read = reader(placeholder.name);
    return (given) => {
      const value = read(given);
      return value === null || value === undefined ? value : encoder.mapToDriverValue(value);
    };
  });
  return (given) => ({ sql: text, args: readers.map((read) => read(given) as InValue) });
}

/**
 * The first row of a table that a condition is true of. Drizzle's own prepared statement asks each column of each row what
 * it is, and copies the row twice.
 * @param where with `sql.placeholder(name)`
 */
export function finds<T extends SQLiteTable>(
  { db, client }: Pick<Registry, 'db' | 'client'>,
  table: T,
  where: SQL,
): (values: Values) => Promise<T['$inferSelect'] | undefined> {
  const statement = compiled(db.select().from(table).where(where));
  const columns = Object.entries(getTableColumns(table)).map(([name, column]) => ({ name, column }));
  return async (values) => {
    const [found] = (await client.execute(statement(values))).rows;
    if (found === undefined) return undefined;
    const given = valuesOf(found);
    const row: Values = {};
    let index = 0;
    for (const { name, column } of columns) {
      const value = given[index++] ?? null;
      row[name] =
        value === null ? null : column.mapFromDriverValue(value instanceof ArrayBuffer ? Buffer.from(value) : value);
    }
    return row as T['$inferSelect'];
  };
}

/** Inserts rows, all with the columns that the first one has. Built anew for each set of columns and number of rows. */
export function inserts<T extends SQLiteTable>(
  db: Database,
  table: T,
): (rows: readonly T['$inferInsert'][]) => BuiltStatement {
  const texts = new Map<string, (rows: readonly Values[]) => BuiltStatement>();
  return (rows) => {
    const names = Object.keys(rows[0] ?? {});
    const statement = remembered(texts, `${rows.length} ${names}`, () => {
      const placeholders = rows.map((_, at) =>
        Object.fromEntries(names.map((name) => [name, sql.placeholder(`${at} ${name}`)])),
      );
      return compiledFor(db.insert(table).values(placeholders as T['$inferInsert'][]), (placeholder) => {
        const [at = '', name = ''] = placeholder.split(' ');
        return (given: readonly Values[]) => given[Number(at)]?.[name];
      });
    });
    return statement(rows);
  };
}

/**
 * Changes the row with a key. Built anew for each set of columns.
 * @param always set in each change, of values that are given with it
 */
export function updates<T extends SQLiteTable>(
  db: Database,
  table: T,
  key: SQLiteColumn,
  always: Record<string, SQL> = {},
): (id: string, change: Partial<T['$inferSelect']>, values?: Values) => BuiltStatement {
  const texts = new Map<string, (values: Values) => BuiltStatement>();
  return (id, change, values = {}) => {
    const names = Object.keys(change).filter((name) => !(name in always));
    const statement = remembered(texts, String(names), () => {
      const set = Object.fromEntries(names.map((name) => [name, sql.placeholder(name)]));
      const where = eq(key, sql.placeholder(' key'));
      return compiled(
        db
          .update(table)
          .set({ ...set, ...always } as never)
          .where(where),
      );
    });
    return statement({ ...change, ...values, ' key': id });
  };
}

function remembered<T>(known: Map<string, T>, key: string, make: () => T): T {
  const found = known.get(key);
  if (found !== undefined) return found;
  const made = make();
  known.set(key, made);
  return made;
}
