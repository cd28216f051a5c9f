/** Prepared statements by their text: checked by the guard once, compiled once, the least recently used forgotten. */
import { carefulText, needsCare } from './careful.ts';
import { type Cost, costOf, NO_COST } from './cost.ts';
import { SqlFailure, sqliteMessage } from './failure.ts';
import { logarithms, substitutes } from './math.ts';
import { isNativeError, type Libsql, type NativeDatabase, type NativeStatement } from './native.ts';
import { mendStrings, offsetOf } from './quotes.ts';
import { readStatements, textOf } from './reading.ts';
import type { Statement, StatementKind } from './statements.ts';
import { TOKEN, tokenize } from './tokenizer.ts';

/** One text; usually one statement. */
export interface Prepared {
  sql: string;
  statements: Statement[];
  /** Compiled as they are first run: a later one may need what an earlier one creates. */
  compiled: (Compiled | undefined)[];
  parameters: number;
  /** Took long in a shared transaction: runs alone until then, ms of performance.now(). */
  aloneUntil: number;
}

export interface Compiled {
  native: NativeStatement;
  /** As SQLite knows it: the text between its semicolons. */
  text: string;
  kind: StatementKind;
  /** Answers rows. */
  reader: boolean;
  explain: boolean;
  /** Its rows have to be decoded: careful.ts. */
  careful: boolean;
  columns: string[];
  cost: Cost;
  /** What libSQL counted for it so far: see COUNTERS in store.ts. */
  counted: number[];
}

interface Mended {
  sql: string;
  native: NativeStatement;
  /** What the tenant calls a column of it. */
  original(name: string): string;
}

const MAX_CACHED = 128;
const MAX_CACHED_CHARACTERS = 512 * 1024;

export class PreparedStatements {
  readonly #libsql: Libsql;
  readonly #database: NativeDatabase;
  readonly #bySql = new Map<string, Prepared>();
  #characters = 0;
  #careful = false;
  #serial = 0;

  constructor(libsql: Libsql, database: NativeDatabase) {
    this.#libsql = libsql;
    this.#database = database;
  }

  /**
   * Checks and splits a text.
   * @throws SqlFailure when it is refused or cannot be read
   */
  get(sql: string): Prepared {
    const known = this.#bySql.get(sql);
    if (known !== undefined) {
      // Move to the end: the first in the map is the least recently used.
      this.#bySql.delete(sql);
      this.#bySql.set(sql, known);
      return known;
    }
    const prepared = read(sql);
    this.#bySql.set(sql, prepared);
    this.#characters += sql.length;
    for (const oldest of this.#bySql.keys()) {
      if (this.#bySql.size <= MAX_CACHED && this.#characters <= MAX_CACHED_CHARACTERS) break;
      this.#bySql.delete(oldest);
      this.#characters -= oldest.length;
    }
    return prepared;
  }

  /** @throws SqlFailure with SQLite's message */
  compile(prepared: Prepared, index: number): Compiled {
    const known = prepared.compiled[index];
    if (known !== undefined) return known;
    const statement = prepared.statements[index] as Statement;
    const compiled = this.#compile(prepared.sql, statement);
    prepared.compiled[index] = compiled;
    return compiled;
  }

  /** From now on every read is careful. */
  set careful(on: boolean) {
    this.#careful = on;
    this.clear();
  }

  get careful(): boolean {
    return this.#careful;
  }

  /** After a change of the schema columns and costs may be others. */
  clear(): void {
    this.#bySql.clear();
    this.#characters = 0;
  }

  #compile(whole: string, statement: Statement): Compiled {
    const libsql = this.#libsql;
    const text = textOf(whole, statement);
    let sql = text;
    let original = (name: string): string => name;
    let native: NativeStatement;
    try {
      native = libsql.prepare(this.#database, sql);
    } catch (error) {
      if (!isNativeError(error)) throw error;
      const mended = this.#mend(text, statement, error.message) ?? this.#substitute(text);
      if (mended === undefined) {
        const offset = offsetOf(whole, statement, error.message);
        throw new SqlFailure(sqliteMessage(error.message, error.code, offset));
      }
      native = mended.native;
      sql = mended.sql;
      original = mended.original;
    }
    // What it defines is not looked into before it is used.
    const defined = statement.kind === 'schema' ? this.#substitute(sql) : undefined;
    if (defined !== undefined) ({ native, sql } = defined);
    const reader = libsql.isReader(native);
    const columns = reader ? libsql.columns(native).map(original) : [];
    const logarithm = this.#logarithm(sql);
    if (logarithm !== undefined) ({ native, sql } = logarithm);
    let careful = false;
    if (reader && statement.kind === 'read' && !statement.explain && (this.#careful || needsCare(statement))) {
      const wrapped = carefulText(sql, columns.length);
      if (wrapped !== undefined) {
        native = libsql.prepare(this.#database, wrapped);
        sql = wrapped;
        careful = true;
      }
    }
    const cost = statement.kind === 'pragma' || statement.explain ? NO_COST : this.#cost(sql);
    if (cost.counters) {
      // Its counters are found by its text: one that was compiled earlier from the same text may still be there.
      sql = `/*${++this.#serial}*/${sql}`;
      native = libsql.prepare(this.#database, sql);
    }
    return {
      native,
      text: sql,
      kind: statement.kind,
      reader,
      explain: statement.explain,
      careful,
      columns,
      cost,
      counted: [0, 0, 0, 0],
    };
  }

  #mend(text: string, statement: Statement, message: string): Mended | undefined {
    const mending = mendStrings(text, statement, message);
    let native: NativeStatement | undefined;
    let step = mending.next();
    while (!step.done) {
      let complaint: string | undefined;
      try {
        native = this.#libsql.prepare(this.#database, step.value);
      } catch (error) {
        if (!isNativeError(error)) throw error;
        complaint = error.message;
      }
      step = mending.next(complaint);
    }
    if (step.value === undefined || native === undefined) return undefined;
    const { sql, names } = step.value;
    return { sql, native, original: (name) => names.get(name) ?? name };
  }

  #substitute(text: string): Mended | undefined {
    const candidate = substitutes(text);
    const native = candidate && this.#attempt(candidate.sql);
    return candidate && native && { sql: candidate.sql, native, original: candidate.named };
  }

  #logarithm(text: string): { sql: string; native: NativeStatement } | undefined {
    const sql = logarithms(text);
    // Where it cannot be prepared, something else has the function's name, such as a table.
    const native = sql === undefined ? undefined : this.#attempt(sql);
    return sql !== undefined && native !== undefined ? { sql, native } : undefined;
  }

  #attempt(sql: string): NativeStatement | undefined {
    try {
      return this.#libsql.prepare(this.#database, sql);
    } catch {
      return undefined;
    }
  }

  #cost(text: string): Cost {
    try {
      const explained = this.#libsql.prepare(this.#database, `EXPLAIN ${withoutBlobs(text)}`);
      const cost = costOf(this.#libsql.rows(explained, []));
      this.#libsql.reset(explained, []);
      return cost;
    } catch {
      return NO_COST;
    }
  }
}

/** EXPLAIN answers literals as text, and text that is not UTF-8 would abort libSQL. */
function withoutBlobs(text: string): string {
  let result = '';
  let from = 0;
  for (const { kind, text: literal, start, end } of tokenize(text)) {
    if (kind !== TOKEN.literal || literal !== 'blob') continue;
    result += `${text.slice(from, start)}x''`;
    from = end;
  }
  return result + text.slice(from);
}

function read(sql: string): Prepared {
  return { ...readStatements(sql), sql, compiled: [], aloneUntil: 0 };
}
