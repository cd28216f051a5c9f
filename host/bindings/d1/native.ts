/**
 * libSQL's native binding, loaded without its JavaScript wrapper: the wrapper's own dependencies would double
 * the modules this process loads. The calls are those of libsql 0.5.29's index.js.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

declare const handle: unique symbol;
/** Opaque objects of the binding. */
export type NativeDatabase = { readonly [handle]: 'database' };
export type NativeStatement = { readonly [handle]: 'statement' };
type NativeRows = { readonly [handle]: 'rows' };

interface Binding {
  databaseOpen(
    path: string,
    authToken: string,
    cipher: string,
    key: string,
    busyTimeoutSeconds: number,
    remoteKey: string,
  ): NativeDatabase;
  databaseClose(this: NativeDatabase): void;
  databaseInTransaction(database: NativeDatabase): boolean;
  databaseExecSync(this: NativeDatabase, sql: string): void;
  databasePrepareSync(this: NativeDatabase, sql: string): NativeStatement;
  statementIsReader(this: NativeStatement): boolean;
  statementRaw(this: NativeStatement, on: boolean): void;
  statementColumns(this: NativeStatement): { name: string }[];
  statementGet(this: NativeStatement, parameters: unknown[]): unknown;
  statementRun(this: NativeStatement, parameters: unknown[]): { changes: number; lastInsertRowid: number };
  statementRowsSync(this: NativeStatement, parameters: unknown[]): NativeRows;
  rowsNext(this: NativeRows, into: unknown[]): void;
}

/** An error of the binding: its SQLite code is in `code`. */
export interface NativeError extends Error {
  code: string;
}

export function isNativeError(error: unknown): error is NativeError {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}

const FIRST_ROWS = 4;
const MORE_ROWS = 100;

/** The few calls the store needs, as plain functions. A closed database must not be used: libSQL would abort. */
export class Libsql {
  readonly #binding: Binding;

  /** @param path the binding's `index.node` */
  constructor(path: string) {
    const module = { exports: {} };
    process.dlopen(module, path);
    this.#binding = module.exports as Binding;
  }

  open(path: string): NativeDatabase {
    return this.#binding.databaseOpen(path, '', 'aes256cbc', '', 5, '');
  }

  close(database: NativeDatabase): void {
    this.#binding.databaseClose.call(database);
  }

  inTransaction(database: NativeDatabase): boolean {
    return this.#binding.databaseInTransaction(database);
  }

  /** Runs every statement of the text and drops what they answer. */
  execute(database: NativeDatabase, sql: string): void {
    this.#binding.databaseExecSync.call(database, sql);
  }

  /** Prepares the first statement of the text. */
  prepare(database: NativeDatabase, sql: string): NativeStatement {
    return this.#binding.databasePrepareSync.call(database, sql);
  }

  /** Whether it answers rows; reading rows of one that does not is an error. */
  isReader(statement: NativeStatement): boolean {
    return this.#binding.statementIsReader.call(statement);
  }

  columns(statement: NativeStatement): string[] {
    return this.#binding.statementColumns.call(statement).map((column) => column.name);
  }

  run(statement: NativeStatement, parameters: unknown[]): void {
    this.#binding.statementRun.call(statement, parameters);
  }

  /**
   * Ends a statement that only reads and was not read to its end, by reading its first row again: no other call
   * of the binding resets one. An EXPLAIN counts as unfinished always, and would keep every write from committing.
   */
  reset(statement: NativeStatement, parameters: unknown[]): void {
    this.#binding.statementGet.call(statement, parameters);
  }

  /** Runs to the end and answers all rows as arrays; `onRows` sees them grow and says whether to go on. */
  rows(statement: NativeStatement, parameters: unknown[], onRows?: (rows: unknown[][]) => boolean): unknown[][] {
    const binding = this.#binding;
    binding.statementRaw.call(statement, true);
    const source = binding.statementRowsSync.call(statement, parameters);
    const all: unknown[][] = [];
    for (let wanted = FIRST_ROWS; ; wanted = MORE_ROWS) {
      const portion = new Array<unknown[] | undefined>(wanted);
      binding.rowsNext.call(source, portion);
      let count = 0;
      for (const row of portion) {
        if (row === undefined) break;
        all.push(row);
        count++;
      }
      const goOn = count === 0 || onRows === undefined || onRows(all);
      if (count < wanted || !goOn) return all;
    }
  }
}

/** Where the binding is: beside the program, else in node_modules (glibc first, then musl). */
export function findBinding(from: string): string {
  const require = createRequire(from);
  for (const libc of ['gnu', 'musl']) {
    try {
      const path = require.resolve(`@libsql/${process.platform}-${process.arch}-${libc}`);
      if (libc === 'musl' || !existsSync(`/lib/ld-musl-${process.arch === 'x64' ? 'x86_64' : 'aarch64'}.so.1`))
        return path;
    } catch {
      // Not installed: npm installs the one for this C library only.
    }
  }
  return require.resolve(`@libsql/${process.platform}-${process.arch}`);
}
