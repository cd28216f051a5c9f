/**
 * The registry's libSQL connection: one connection, one user of it at a time, behind the interface of the libSQL client
 * that drizzle speaks. The client's own one for files prepares every statement anew, asks it for its columns twice and
 * learns by an exception that it gives no rows: a sixth of what a paid call took. Here statements stay prepared, what is
 * written in one turn of the event loop shares a commit, and commits share syncs of the disk, which run beside the event
 * loop. Nothing is answered before all that was committed before it is on the disk.
 * A transaction holds the connection, and calls queue meanwhile; it must therefore never wait for anything but the
 * database.
 */
import { fdatasync } from 'node:fs';
import type {
  Client,
  InArgs,
  InStatement,
  InValue,
  ResultSet,
  Transaction,
  TransactionMode,
  Value,
} from '@libsql/client/sqlite3';
import Libsql from 'libsql';
import { CommitLog, type Sync } from './commit-log.ts';
import { LibsqlError } from './drizzle.ts';
import { type Columns, driverValue, inStatement, resultOf, rowClass } from './results.ts';

/** Statements that stay prepared; drizzle's are some two hundred, fewer are in use. */
const PREPARED = 300;

const BEGIN: Record<TransactionMode, string> = {
  write: 'BEGIN IMMEDIATE',
  deferred: 'BEGIN DEFERRED',
  read: 'BEGIN DEFERRED',
};

/** @throws LibsqlError when the file cannot be opened or is no database */
export async function openClient(file: string, sync: Sync = fdatasync): Promise<FileClient> {
  const connection = new Connection(file);
  try {
    // The wait first: whoever else has the file open, to look at it, may just be closing it.
    for (const pragma of ['busy_timeout=5000', 'journal_mode=WAL', 'synchronous=NORMAL', 'foreign_keys=ON'])
      connection.run({ sql: `PRAGMA ${pragma}` });
    // SQLite makes its log when it first looks into the database, and keeps it while the connection is open.
    connection.run({ sql: 'SELECT count(*) FROM sqlite_schema' });
    return new RegistryClient(connection, new CommitLog(`${file}-wal`, sync));
  } catch (error) {
    connection.close();
    throw error;
  }
}

export interface FileClient extends Client {
  /** Set once the disk failed: nothing is written or read any more until the file is opened anew. */
  readonly failure: Error | undefined;
}

class RegistryClient implements FileClient {
  readonly protocol = 'file';
  readonly #connection: Connection;
  readonly #log: CommitLog;
  readonly #waiting: Task[] = [];
  /** A transaction is open. */
  #held = false;
  #scheduled = false;

  constructor(connection: Connection, log: CommitLog) {
    this.#connection = connection;
    this.#log = log;
  }

  get closed(): boolean {
    return this.#connection.closed;
  }

  get failure(): Error | undefined {
    return this.#log.failure;
  }

  execute(statement: InStatement | string, args?: InArgs): Promise<ResultSet> {
    const one = inStatement(statement, args);
    return this.#add(kindOf(one), (connection) => connection.run(one));
  }

  batch(statements: (InStatement | [string, InArgs?])[], mode: TransactionMode = 'deferred'): Promise<ResultSet[]> {
    const list = statements.map((each) => (Array.isArray(each) ? inStatement(...each) : inStatement(each)));
    const kind = list.every((each) => kindOf(each) === 'read') ? 'read' : 'write';
    return this.#add(kind, (connection) => list.map((each) => connection.run(each)), mode);
  }

  migrate(): never {
    throw new Error('migrations go through a transaction');
  }

  executeMultiple(sql: string): Promise<void> {
    return this.#add('alone', (connection) => connection.runAll(sql));
  }

  /** Holds up all that follows until the transaction is committed, rolled back or closed. */
  transaction(mode: TransactionMode = 'write'): Promise<Transaction> {
    return this.#add('alone', (connection) => {
      connection.begin(mode);
      this.#held = true;
      return new OpenTransaction(connection, this.#log, () => {
        this.#held = false;
        if (this.#waiting.length > 0) this.#schedule();
      });
    });
  }

  async sync(): Promise<undefined> {
    throw new Error('a file has nothing to synchronize with');
  }

  reconnect(): never {
    throw new Error('a closed registry stays closed');
  }

  close(): void {
    this.#connection.close();
    this.#log.end();
  }

  #add<T>(kind: TaskKind, body: (connection: Connection) => T, mode?: TransactionMode): Promise<T> {
    if (this.#log.failure) return Promise.reject(this.#log.failure);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#waiting.push({ kind, mode, body, resolve: resolve as (result: unknown) => void, reject });
    if (this.#held || this.#scheduled) return promise;
    if (kind === 'write') this.#schedule();
    else this.#work();
    return promise;
  }

  /** At the end of this turn of the event loop: whatever else is written in it shares a commit. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#work();
    });
  }

  /** Runs what waits, in order, until a transaction holds the connection. */
  #work(): void {
    while (!this.#held && this.#waiting.length > 0) {
      const end = this.#waiting.findIndex(({ kind }) => kind === 'alone');
      const group = this.#waiting.splice(0, end === 0 ? 1 : end === -1 ? this.#waiting.length : end);
      if (group.filter(({ kind }) => kind === 'write').length < 2 || !this.#together(group))
        for (const task of group) this.#alone(task);
    }
  }

  #alone({ kind, mode, body, resolve, reject }: Task): void {
    const connection = this.#connection;
    try {
      const result = mode === undefined ? body(connection) : connection.within(mode, body);
      // A transaction that has begun holds up all others, so it begins at once. Its commit waits for the disk.
      if (this.#held) resolve(result);
      else {
        if (kind !== 'read') this.#log.committed();
        this.#log.answer(() => resolve(result), reject);
      }
    } catch (error) {
      this.#log.answer(() => reject(error), reject);
    }
  }

  /**
   * Runs tasks in one transaction, so that they share one sync of the disk. One that fails undoes nothing but itself, and
   * none is answered before all are on the disk.
   * @param apart each can be undone by itself, which takes two statements more: only where one of them failed
   * @returns false where that could not be: nothing of it was done
   */
  #together(group: Task[], apart = false): boolean {
    const connection = this.#connection;
    try {
      connection.begin('write');
    } catch (error) {
      // Another process writes: one by one, each would wait for it as long again, and the event loop with it.
      for (const task of group) {
        if (task.kind === 'read') this.#alone(task);
        else this.#log.answer(() => task.reject(error), task.reject);
      }
      return true;
    }
    let answers: { give(): void; reject: Task['reject'] }[];
    try {
      answers = connection.committed(() =>
        group.map((task) => ({ give: (apart ? undoable : done)(task, connection), reject: task.reject })),
      );
    } catch {
      return !apart && this.#together(group, true);
    }
    this.#log.committed();
    for (const { give, reject } of answers) this.#log.answer(give, reject);
    return true;
  }
}

/** @returns answers it; called when it is on the disk */
function done({ body, resolve }: Task, connection: Connection): () => void {
  const result = body(connection);
  return () => resolve(result);
}

/** As `done`, for one that may fail. */
function undoable(task: Task, connection: Connection): () => void {
  connection.run({ sql: 'SAVEPOINT task' });
  try {
    const answer = done(task, connection);
    connection.run({ sql: 'RELEASE task' });
    return answer;
  } catch (error) {
    // Fails where the whole transaction is gone, as on a full disk.
    connection.run({ sql: 'ROLLBACK TO task' });
    connection.run({ sql: 'RELEASE task' });
    return () => task.reject(error);
  }
}

/** `alone`: never within a transaction that others share. */
type TaskKind = 'read' | 'write' | 'alone';

interface Task {
  kind: TaskKind;
  /** Of the transaction that it is by itself; undefined: it is one statement. */
  mode: TransactionMode | undefined;
  body(connection: Connection): unknown;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

function kindOf({ sql }: { sql: string }): TaskKind {
  const [, word = ''] = /^\s*(\w+)/.exec(sql) ?? [];
  if (/^(select|values)$/i.test(word)) return 'read';
  return /^(insert|update|delete|replace)$/i.test(word) ? 'write' : 'alone';
}

class OpenTransaction implements Transaction {
  readonly #connection: Connection;
  readonly #log: CommitLog;
  readonly #done: () => void;
  #closed = false;

  /** @param done called once, when the transaction has ended */
  constructor(connection: Connection, log: CommitLog, done: () => void) {
    this.#connection = connection;
    this.#log = log;
    this.#done = done;
  }

  get closed(): boolean {
    return this.#closed;
  }

  async execute(statement: InStatement | string, args?: InArgs): Promise<ResultSet> {
    return this.#open().run(inStatement(statement, args));
  }

  async batch(statements: InStatement[]): Promise<ResultSet[]> {
    return statements.map((statement) => this.#open().run(inStatement(statement)));
  }

  async executeMultiple(sql: string): Promise<void> {
    this.#open().runAll(sql);
  }

  async commit(): Promise<void> {
    const connection = this.#open();
    try {
      connection.end('COMMIT');
      this.#log.committed();
    } finally {
      this.close();
    }
    await this.#log.kept();
  }

  async rollback(): Promise<void> {
    this.close();
    await this.#log.kept();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      this.#connection.end('ROLLBACK');
    } finally {
      this.#done();
    }
  }

  #open(): Connection {
    if (this.#closed) throw new LibsqlError('The transaction is closed', 'TRANSACTION_CLOSED');
    return this.#connection;
  }
}

interface Prepared {
  run(parameters: InValue[] | Record<string, InValue>): { changes: number; lastInsertRowid: number | bigint };
  all(parameters: InValue[] | Record<string, InValue>): unknown[][];
  /** Undefined for a statement that gives no rows. */
  columns: Columns | undefined;
}

/** What is synchronous: the connection, and its prepared statements. */
class Connection {
  readonly #database: Libsql.Database;
  /** By their text, the one that was used last at the end. */
  readonly #prepared = new Map<string, Prepared>();

  constructor(file: string) {
    this.#database = attempt(() => new Libsql(file));
  }

  get closed(): boolean {
    return !this.#database.open;
  }

  begin(mode: TransactionMode): void {
    this.run({ sql: BEGIN[mode] });
  }

  /** Runs the work in a transaction. @throws what the work throws, or the commit; nothing is done then */
  within<T>(mode: TransactionMode, work: (connection: Connection) => T): T {
    this.begin(mode);
    return this.committed(work);
  }

  /** As `within`, in the transaction that has begun. */
  committed<T>(work: (connection: Connection) => T): T {
    try {
      const result = work(this);
      this.end('COMMIT');
      return result;
    } catch (error) {
      this.end('ROLLBACK');
      throw error;
    }
  }

  /** A failure may have rolled back already: SQLite does so on a full disk. */
  end(how: 'COMMIT' | 'ROLLBACK'): void {
    if (how === 'COMMIT' || (!this.closed && this.#database.inTransaction)) this.run({ sql: how });
  }

  run({ sql, args }: { sql: string; args?: InArgs }): ResultSet {
    const parameters = args === undefined ? [] : driverArgs(args);
    return attempt(() => {
      const statement = this.#prepare(sql);
      const { columns } = statement;
      if (columns)
        return resultOf(
          statement.all(parameters).map((row) => new columns.RowOfThese(row.map(hostValue))),
          columns,
        );
      const { changes, lastInsertRowid } = statement.run(parameters);
      return resultOf([], undefined, changes, BigInt(lastInsertRowid));
    });
  }

  /** Runs statements that may change the schema, with which a prepared one's columns would be wrong. */
  runAll(sql: string): void {
    this.#prepared.clear();
    attempt(() => this.#database.exec(sql));
  }

  close(): void {
    this.#prepared.clear();
    if (!this.closed) this.#database.close();
  }

  #prepare(sql: string): Prepared {
    if (this.closed) throw new LibsqlError('The client is closed', 'CLIENT_CLOSED');
    let prepared = this.#prepared.get(sql);
    if (prepared) this.#prepared.delete(sql);
    else prepared = prepare(this.#database, sql);
    this.#prepared.set(sql, prepared);
    const [oldest] = this.#prepared.keys();
    if (this.#prepared.size > PREPARED && oldest !== undefined) this.#prepared.delete(oldest);
    return prepared;
  }
}

function prepare(database: Libsql.Database, sql: string): Prepared {
  const statement = database.prepare(sql).safeIntegers(true);
  const columns = statement.reader ? columnsOf(statement.raw(true).columns()) : undefined;
  return {
    columns,
    run: (parameters) => statement.run(parameters),
    all: (parameters) => statement.all(parameters) as unknown[][],
  };
}

function driverArgs(args: InArgs): InValue[] | Record<string, InValue> {
  if (Array.isArray(args)) return args.map(driverValue);
  return Object.fromEntries(
    Object.entries(args).map(([name, value]) => [name.replace(/^[@$:]/, ''), driverValue(value)]),
  );
}

function columnsOf(given: { name: string; type: string | null }[]): Columns {
  const names = given.map(({ name }) => name);
  return { names, types: given.map(({ type }) => type ?? ''), RowOfThese: rowClass(names) };
}

/** @throws RangeError for an integer that a number cannot hold */
function hostValue(value: unknown): Value {
  if (typeof value === 'bigint') {
    const number = Number(value);
    if (!Number.isSafeInteger(number)) throw new RangeError('an integer in the registry is too large for a number');
    return number;
  }
  if (Buffer.isBuffer(value)) return bytesOf(value);
  return value as Value;
}

/** The bytes alone, without what else shares their memory. */
function bytesOf(value: Buffer): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = value;
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength
    ? buffer
    : (buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
}

/** @throws LibsqlError, as the libSQL client has it: code `SQLITE_…`, with the extended one beside it */
function attempt<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Libsql.SqliteError)) throw error;
    const { code, rawCode, message } = error as Error & { code: string; rawCode?: number };
    throw new LibsqlError(message, /^SQLITE_[A-Z]+/.exec(code)?.[0] ?? 'SQLITE_UNKNOWN', code, rawCode, error);
  }
}
