/**
 * One tenant's database on libSQL: runs queries, one request in one transaction, and tells what they cost.
 * Synchronous, in a process of its own: whatever a query does to this process, it does to nobody else.
 */
import { statSync } from 'node:fs';
import { CAREFUL_APPLICATION_ID, decodeRow } from './careful.ts';
import { rowsRead, rowsWritten } from './cost.ts';
import { MESSAGES, resultTooBig, SqlFailure, sqliteMessage, tooManyRows } from './failure.ts';
import type { SqlLimits } from './limits.ts';
import { isNativeError, type Libsql, type NativeDatabase, type NativeStatement } from './native.ts';
import type { Parameter } from './parameters.ts';
import { type Compiled, type Prepared, PreparedStatements } from './prepared.ts';
import type { Query, StatementResult } from './protocol.ts';
import { finishRow } from './rows.ts';

/** A statement that took longer than this shares no transaction for a while, ms: others would wait for it. */
const SLOW_MS = 20;
const ALONE_MS = 1_000;

/** What the log keeps on the disk once it begins anew. */
const LOG_BYTES = 4 * 1_048_576;

export class EmbeddedStore {
  readonly #libsql: Libsql;
  readonly #limits: SqlLimits;
  readonly #path: string;
  #database: NativeDatabase;
  #prepared: PreparedStatements;
  #counters: NativeStatement;
  #pages: NativeStatement;
  #statements: NativeStatement | undefined;
  #pageSize = 4096;
  #lastRowId = 0;
  #size = 0;
  #resultBytes = 0;

  /**
   * Opens the database, creating it when it is not there.
   * @param careful an earlier process died reading it: read text as bytes from now on
   * @throws when the file cannot be opened as one
   */
  constructor(libsql: Libsql, path: string, limits: SqlLimits, careful: boolean) {
    this.#libsql = libsql;
    this.#limits = limits;
    this.#path = path;
    const database = libsql.open(path);
    const ask = (sql: string): unknown => libsql.rows(libsql.prepare(database, sql), [])[0]?.[0];
    // Whoever else has the file open, to look at it, may just be closing it.
    ask('PRAGMA busy_timeout=5000');
    ask('PRAGMA journal_mode=WAL');
    // FULL: an answered write survives power loss. Foreign keys are enforced, as in D1.
    libsql.execute(database, 'PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON');
    // Views and triggers may use libSQL's math, which is not marked as harmless. They are of the tenant itself, the guard
    // reads them as it reads all else, and SQLite keeps functions that reach files out of them all the same.
    libsql.execute(database, 'PRAGMA trusted_schema=ON; PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY');
    ask(`PRAGMA hard_heap_limit=${limits.heapBytes}`);
    // A log that one large transaction, or a backup, made long does not keep its place on the disk.
    ask(`PRAGMA journal_size_limit=${LOG_BYTES}`);
    this.#pageSize = Number(ask('PRAGMA page_size'));
    ask(`PRAGMA max_page_count=${Math.max(1, Math.floor(limits.quotaBytes / this.#pageSize))}`);
    this.#database = database;
    this.#prepared = new PreparedStatements(libsql, database);
    if (Number(ask('PRAGMA application_id')) === CAREFUL_APPLICATION_ID) this.#prepared.careful = true;
    else if (careful) this.#takeCare();
    this.#counters = libsql.prepare(database, 'SELECT total_changes(), last_insert_rowid()');
    this.#pages = libsql.prepare(database, 'PRAGMA page_count');
    this.#size = this.#readSize();
  }

  /** ms since the epoch of the last change on disk. */
  get modifiedAt(): number {
    return statSync(this.#path).mtimeMs;
  }

  /** Whether all of it is one write that is quick by its nature: such may share a transaction, and so a sync to disk. */
  isBriefWrite(queries: readonly Query[]): boolean {
    const query = queries[0];
    if (query === undefined || queries.length !== 1) return false;
    try {
      const prepared = this.#prepared.get(query.sql);
      if (
        prepared.aloneUntil > performance.now() ||
        prepared.statements.length !== 1 ||
        prepared.statements[0]?.kind !== 'write'
      )
        return false;
      // The first such text changes how the database is read, which cannot be in the middle of a transaction.
      if (!this.#prepared.careful && query.parameters.some(hasNul)) return false;
      return this.#prepared.compile(prepared, 0).cost.brief;
    } catch {
      return false;
    }
  }

  /**
   * Runs the queries of one request, all or nothing.
   * @throws SqlFailure with the message for the tenant
   */
  run(queries: readonly Query[]): StatementResult[] {
    this.#resultBytes = 0;
    const work = this.#prepare(queries);
    if (work.length === 1 && work[0] !== undefined && isOneStatement(work[0].prepared)) {
      return [this.#runQuery(work[0])];
    }
    this.begin();
    try {
      const results = work.map((item) => this.#runQuery(item));
      this.commit();
      return results;
    } catch (error) {
      this.rollback();
      throw error;
    }
  }

  /** Runs one brief write inside the transaction that the caller began; its failure undoes nothing but itself. */
  runWithin(queries: readonly Query[]): StatementResult[] {
    this.#resultBytes = 0;
    return this.#prepare(queries).map((item) => {
      const result = this.#runQuery(item);
      if (result.meta.duration > SLOW_MS) item.prepared.aloneUntil = performance.now() + ALONE_MS;
      return result;
    });
  }

  begin(): void {
    this.#libsql.execute(this.#database, 'BEGIN');
  }

  /** @throws SqlFailure when it could not be kept, such as for a deferred foreign key; call rollback() then */
  commit(): void {
    try {
      this.#libsql.execute(this.#database, 'COMMIT');
    } catch (error) {
      throw asFailure(error);
    }
  }

  /** Does nothing when SQLite rolled back by itself. */
  rollback(): void {
    if (this.#libsql.inTransaction(this.#database)) this.#libsql.execute(this.#database, 'ROLLBACK');
    // What was rolled back may have been a change of the schema.
    this.#prepared.clear();
    this.#size = this.#readSize();
  }

  get inTransaction(): boolean {
    return this.#libsql.inTransaction(this.#database);
  }

  /** Moves everything from the log into the file, and leaves the file alone until `resumeCheckpoints`. */
  holdCheckpoints(): void {
    this.#ask('PRAGMA wal_checkpoint(TRUNCATE)');
    this.#ask('PRAGMA wal_autocheckpoint=0');
  }

  resumeCheckpoints(): void {
    this.#ask('PRAGMA wal_autocheckpoint=1000');
  }

  /** Nothing may be called after this. */
  close(): void {
    // Statements that were not collected yet keep libSQL from tidying up by itself.
    this.#ask('PRAGMA wal_checkpoint(TRUNCATE)');
    this.#libsql.close(this.#database);
  }

  #ask(sql: string): void {
    this.#libsql.rows(this.#libsql.prepare(this.#database, sql), []);
  }

  /** Outside of a transaction only: what a rollback would undo must not be relied on. */
  #takeCare(): void {
    this.#libsql.execute(this.#database, `PRAGMA application_id=${CAREFUL_APPLICATION_ID}`);
    this.#prepared.careful = true;
  }

  #prepare(queries: readonly Query[]): Work[] {
    const work: Work[] = [];
    for (const { sql, parameters } of queries) {
      const prepared = this.#prepared.get(sql);
      // Text without a statement (blank, comments) is skipped, as in D1, unless there is nothing else.
      if (prepared.statements.length === 0) continue;
      if (prepared.parameters !== parameters.length) throw new SqlFailure(MESSAGES.bindings);
      if (!this.#prepared.careful && parameters.some(hasNul) && !this.inTransaction) this.#takeCare();
      work.push({ prepared: this.#prepared.get(sql), parameters });
    }
    if (work.length === 0) throw new SqlFailure(MESSAGES.noStatements);
    return work;
  }

  #runQuery({ prepared, parameters }: Work): StatementResult {
    const started = performance.now();
    const lastRowIdBefore = this.#lastRowId;
    const sizeBefore = this.#size;
    const count = prepared.statements.length;
    let changes = 0;
    let read = 0;
    let written = 0;
    let columns: readonly string[] = [];
    let rows: unknown[][] = [];
    let writes = false;
    let redefines = false;
    try {
      for (let index = 0; index < count; index++) {
        const compiled = this.#prepared.compile(prepared, index);
        rows = this.#runStatement(compiled, index === count - 1 ? parameters : []);
        columns = compiled.columns;
        let changed = 0;
        if (compiled.kind !== 'read') {
          writes = true;
          changed = this.#readChanges();
        }
        changes += changed;
        const known = this.#known(compiled, rows.length, changed);
        read += rowsRead(compiled.cost, known) + countedRows(compiled, rows);
        written += rowsWritten(compiled.cost, known);
        if (compiled.kind === 'schema') redefines = true;
        if (compiled.kind === 'schema' || compiled.kind === 'pragma') this.#prepared.clear();
      }
    } catch (error) {
      // What a trigger changed before it failed is counted, and no change of the next statement.
      this.#readChanges();
      throw asFailure(error);
    }
    if (writes) this.#size = this.#readSize();
    const duration = performance.now() - started;
    const changed = redefines || changes > 0 || this.#lastRowId !== lastRowIdBefore || this.#size !== sizeBefore;
    const meta = {
      duration,
      changes,
      lastRowId: this.#lastRowId,
      changed,
      sizeAfter: this.#size,
      rowsRead: read,
      rowsWritten: written,
    };
    return { columns, rows, meta };
  }

  #runStatement(compiled: Compiled, parameters: Parameter[]): unknown[][] {
    if (!compiled.reader) {
      this.#libsql.run(compiled.native, parameters);
      return [];
    }
    let measured = 0;
    let failure: SqlFailure | undefined;
    const rows = this.#libsql.rows(compiled.native, parameters, (all) => {
      for (; measured < all.length; measured++) {
        const row = all[measured] as unknown[];
        if (compiled.careful) decodeRow(row);
        this.#resultBytes += finishRow(row);
      }
      if (all.length > this.#limits.maxRows) failure = new SqlFailure(tooManyRows(this.#limits.maxRows));
      else if (this.#resultBytes > this.#limits.maxResultBytes) {
        failure = new SqlFailure(resultTooBig(this.#limits.maxResultBytes));
      }
      if (failure === undefined) return true;
      // A write has done its work before its first row; it is over only when all of them were read.
      all.length = 0;
      measured = 0;
      return compiled.kind === 'write';
    });
    if (compiled.explain || (failure !== undefined && compiled.kind !== 'write')) {
      this.#libsql.reset(compiled.native, parameters);
    }
    if (failure !== undefined) throw failure;
    return rows;
  }

  #total = 0;
  /** Rows changed since the last call, those of triggers and cascades included, as D1 counts. */
  #readChanges(): number {
    const row = this.#libsql.rows(this.#counters, [])[0];
    const total = Number(row?.[0]);
    const changed = total - this.#total;
    this.#total = total;
    this.#lastRowId = Number(row?.[1]);
    return changed;
  }

  #readSize(): number {
    return Number(this.#libsql.rows(this.#pages, [])[0]?.[0]) * this.#pageSize;
  }

  /** Figures of a run, in the order of KNOWN. */
  #known({ cost, counted, text }: Compiled, rows: number, changes: number): number[] {
    const known = [1, rows > 0 || changes > 0 ? 1 : 0, rows, changes];
    if (!cost.counters) return known;
    // sqlite_stmt lists the statements of this connection; tenants cannot reach it.
    this.#statements ??= this.#libsql.prepare(
      this.#database,
      'SELECT nscan, nsort, naidx, nstep FROM sqlite_stmt WHERE sql = ?',
    );
    const counters = this.#libsql.rows(this.#statements, [text])[0] ?? counted;
    for (const [index, value] of counters.entries()) {
      // 32 bits that begin anew.
      known.push((Number(value) - (counted[index] ?? 0)) >>> 0);
      counted[index] = Number(value);
    }
    return known;
  }
}

/** The answer of `count(*)` of a whole table is what was read. */
function countedRows({ cost }: Compiled, rows: unknown[][]): number {
  const [value] = rows.length === 1 ? (rows[0] ?? []) : [];
  return cost.counts && typeof value === 'number' ? value : 0;
}

interface Work {
  prepared: Prepared;
  parameters: Parameter[];
}

/** As it is, or as JSON that may be taken apart later. */
function hasNul(parameter: Parameter): boolean {
  return typeof parameter === 'string' && (parameter.includes('\0') || parameter.includes('\\u0000'));
}

/** One statement is a transaction by itself; a PRAGMA must not outlive its request, so it gets a real one. */
function isOneStatement(prepared: Prepared): boolean {
  return prepared.statements.length === 1 && prepared.statements[0]?.kind !== 'pragma';
}

function asFailure(error: unknown): unknown {
  return isNativeError(error) ? new SqlFailure(sqliteMessage(error.message, error.code)) : error;
}
