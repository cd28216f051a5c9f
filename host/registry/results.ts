/** What clients of both engines take and give: statements, values, rows. */
import type { InArgs, InStatement, InValue, ResultSet, Row, Value } from '@libsql/client/sqlite3';

export interface Columns {
  names: string[];
  types: string[];
  RowOfThese: new (values: Value[]) => Row;
}

export function inStatement(statement: InStatement | string, args?: InArgs): { sql: string; args?: InArgs } {
  if (typeof statement !== 'string') return statement;
  return args === undefined ? { sql: statement } : { sql: statement, args };
}

/** @throws TypeError, RangeError for what SQLite cannot hold: it would be another value, or none */
export function driverValue(value: InValue | undefined): InValue {
  if (value === undefined) throw new TypeError('undefined cannot be passed as argument to the database');
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError('only finite numbers can be stored');
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  if (value instanceof Date) return value.valueOf();
  return value;
}

/** What a row holds, without a property that anybody would see. */
class Values {
  readonly #values: Value[];

  constructor(values: Value[]) {
    this.#values = values;
  }

  static of(row: Values): Value[] {
    return row.#values;
  }
}

/** In the order of the columns. @param row of a client of ours */
export function valuesOf(row: Row): readonly Value[] {
  return Values.of(row as unknown as Values);
}

/**
 * Rows by index and by name, of which only the names are enumerable, as the libSQL client has them. It defines each
 * property of each row, which takes longer than the query: ten times as long as this.
 */
export function rowClass(names: string[]): Columns['RowOfThese'] {
  const firsts = [...new Set(names)].map((name) => [name, names.indexOf(name)] as const);
  class RowOfThese extends Values {
    static {
      Object.defineProperty(RowOfThese.prototype, 'length', { value: names.length });
      for (const index of names.keys())
        Object.defineProperty(RowOfThese.prototype, index, {
          get(this: RowOfThese) {
            return Values.of(this)[index];
          },
        });
    }

    constructor(values: Value[]) {
      super(values);
      const row = this as unknown as Record<string, Value | undefined>;
      for (const [name, index] of firsts) row[name] = values[index];
    }
  }
  return RowOfThese as unknown as Columns['RowOfThese'];
}

export function resultOf(rows: Row[], columns?: Columns, rowsAffected = 0, lastInsertRowid?: bigint): ResultSet {
  const result = {
    columns: columns?.names ?? [],
    columnTypes: columns?.types ?? [],
    rows,
    rowsAffected,
    lastInsertRowid,
  };
  return { ...result, toJSON: () => result };
}
