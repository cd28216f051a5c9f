/**
 * The registry on PostgreSQL, behind the interface of the libSQL client that drizzle speaks. Whatever writes holds one lock
 * of the whole database, so that writes of all nodes come one after the other, as on libSQL's one connection; reads wait
 * for nobody. A transaction must therefore never wait for anything but the database.
 */
import type {
  Client,
  InArgs,
  InStatement,
  InValue,
  ResultSet,
  Transaction,
  TransactionMode,
} from '@libsql/client/sqlite3';
import {
  openPool,
  type PgConnection,
  type PgError,
  type PgPool,
  type PgQuery,
  type PgResult,
} from '../../shared/pg.ts';
import { LibsqlError } from '../drizzle.ts';
import { type Fence, fences, LeaseLost } from '../fences.ts';
import { driverValue, inStatement, resultOf, rowClass } from '../results.ts';
import { libsqlError, postgresSchema, postgresText, readerOf } from './dialect.ts';

/**
 * Connections of a process. Writes wait for each other all the same, and two connections that pass the lock on to each
 * other are slower than one. It is none of those for reads, which must not wait behind writes.
 */
const WRITE_CONNECTIONS = 1;
const READ_CONNECTIONS = 8;
/** Until a connection is there, or free: longer than a lock is waited for. */
const CONNECT_MS = 15_000;
/** How long a node waits for the one that changes the schema, and a change of the schema may take. ms */
const EXCLUSIVE_MS = 60_000;
const SCHEMA_MS = 3_600_000;
/** Texts that stay prepared, as in the libSQL client. Others are parsed each time. */
const PREPARED = 300;
/**
 * Of each connection. A process that was stopped within a transaction must not keep what it locked, and ends before those
 * who wait for it give up.
 */
const SESSION = "SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '10s'";

/** Any number, the same on all nodes: the lock of whoever writes, held until its commit can be seen. */
const WRITERS = 0x7475726e;
const BEGIN_WRITE = `BEGIN; SELECT pg_advisory_xact_lock(${WRITERS})`;
/** What a fence breaks. */
const NOT_NULL = '23502';
const BEGIN: Record<TransactionMode, string> = {
  write: BEGIN_WRITE,
  deferred: BEGIN_WRITE,
  read: 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY',
};

export interface PostgresClient extends Client {
  /** Holds `lock` in the whole database while `work` runs. */
  exclusively<T>(lock: string, work: () => Promise<T>): Promise<T>;
  /** Closes all connections. */
  end(): Promise<void>;
}

/** @param url `postgres://user:password@host/database` */
export function postgresClient(url: string): PostgresClient {
  return new PooledClient(url);
}

class PooledClient implements PostgresClient {
  readonly protocol = 'postgres';
  readonly #writers: PgPool;
  readonly #readers: PgPool;
  /** The text in PostgreSQL's words, by its text in SQLite's. */
  readonly #texts = new Map<string, Pick<PgQuery, 'text' | 'name'>>();
  #closed = false;

  constructor(url: string) {
    this.#writers = poolOf(url, WRITE_CONNECTIONS);
    this.#readers = poolOf(url, READ_CONNECTIONS);
  }

  get closed(): boolean {
    return this.#closed;
  }

  async execute(statement: InStatement | string, args?: InArgs): Promise<ResultSet> {
    const one = inStatement(statement, args);
    if (!/^select\b/i.test(one.sql)) return (await this.batch([one]))[0] as ResultSet;
    const query = this.#query(one);
    return this.#using(this.#readers, async (connection) => resultSet(await connection.query(query)));
  }

  async batch(
    statements: (InStatement | [string, InArgs?])[],
    mode: TransactionMode = 'deferred',
  ): Promise<ResultSet[]> {
    const queries = statements.map((one) => this.#query(Array.isArray(one) ? inStatement(...one) : inStatement(one)));
    const checks = mode === 'read' ? [] : fences();
    return this.#using(this.#poolFor(mode), async (connection) => {
      // All are sent at once: after one that fails PostgreSQL refuses the rest, and rolls back at the COMMIT.
      const begun = [connection.query(BEGIN[mode]), ...this.#checked(connection, checks)];
      const results = queries.map((query) => connection.query(query));
      const settled = await Promise.allSettled([...begun, ...results, connection.query('COMMIT')]);
      const failed = settled.find((one) => one.status === 'rejected');
      if (failed) throw failed.reason;
      return (await Promise.all(results)).map(resultSet);
    });
  }

  migrate(): never {
    throw new Error('migrations go through a transaction');
  }

  /** Statements that change the schema. */
  async executeMultiple(sql: string): Promise<void> {
    await this.#using(this.#writers, (connection) => connection.query(schemaQuery(sql)));
  }

  async transaction(mode: TransactionMode = 'write'): Promise<Transaction> {
    const checks = mode === 'read' ? [] : fences();
    const connection = await this.#connect(this.#poolFor(mode));
    try {
      await asLibsql(() => Promise.all([connection.query(BEGIN[mode]), ...this.#checked(connection, checks)]));
    } catch (error) {
      connection.release(true);
      throw error;
    }
    return new OpenTransaction(connection, (statement) => this.#query(statement));
  }

  async sync(): Promise<undefined> {
    throw new Error('a server has nothing to synchronize with');
  }

  reconnect(): never {
    throw new Error('a closed registry stays closed');
  }

  close(): void {
    void this.end();
  }

  async end(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all([this.#writers.end(), this.#readers.end()]);
  }

  async exclusively<T>(lock: string, work: () => Promise<T>): Promise<T> {
    const connection = await this.#connect(this.#readers);
    try {
      await connection.query(`SET lock_timeout = ${EXCLUSIVE_MS}`);
      const text = `SELECT pg_advisory_lock(hashtext('${lock}'))`;
      await connection.query({ text, query_timeout: EXCLUSIVE_MS + CONNECT_MS });
      return await work();
    } finally {
      // The lock goes with its connection.
      connection.release(true);
    }
  }

  #checked(connection: PgConnection, checks: readonly Fence[]): Promise<unknown>[] {
    return checks.map(({ name, check }) =>
      connection.query(this.#query(check)).catch((error: PgError) => {
        throw error.code === NOT_NULL ? new LeaseLost(name) : error;
      }),
    );
  }

  #poolFor(mode: TransactionMode): PgPool {
    return mode === 'read' ? this.#readers : this.#writers;
  }

  async #connect(pool: PgPool): Promise<PgConnection> {
    if (this.#closed) throw new LibsqlError('The client is closed', 'CLIENT_CLOSED');
    return asLibsql(() => pool.connect());
  }

  async #using<T>(pool: PgPool, work: (connection: PgConnection) => Promise<T>): Promise<T> {
    const connection = await this.#connect(pool);
    let isBroken = true;
    try {
      const result = await asLibsql(() => work(connection));
      isBroken = false;
      return result;
    } catch (error) {
      isBroken = !isRefusal(error);
      throw error;
    } finally {
      connection.release(isBroken);
    }
  }

  #query({ sql, args = [] }: { sql: string; args?: InArgs }): PgQuery {
    if (!Array.isArray(args)) throw new TypeError('values by name are not for PostgreSQL');
    let text = this.#texts.get(sql);
    if (!text) {
      text = { text: postgresText(sql) };
      if (this.#texts.size < PREPARED) {
        text.name = `s${this.#texts.size}`;
        this.#texts.set(sql, text);
      }
    }
    return { ...text, values: args.map(postgresValue), rowMode: 'array', types: { getTypeParser: readerOf } };
  }
}

function poolOf(connectionString: string, max: number): PgPool {
  return openPool({ connectionString, max, connectionTimeoutMillis: CONNECT_MS }, SESSION);
}

class OpenTransaction implements Transaction {
  readonly #connection: PgConnection;
  readonly #query: (statement: { sql: string; args?: InArgs }) => PgQuery;
  #closed = false;

  constructor(connection: PgConnection, query: (statement: { sql: string; args?: InArgs }) => PgQuery) {
    this.#connection = connection;
    this.#query = query;
  }

  get closed(): boolean {
    return this.#closed;
  }

  async execute(statement: InStatement | string, args?: InArgs): Promise<ResultSet> {
    const query = this.#query(inStatement(statement, args));
    return resultSet(await asLibsql(() => this.#open().query(query)));
  }

  async batch(statements: InStatement[]): Promise<ResultSet[]> {
    const results: ResultSet[] = [];
    for (const statement of statements) results.push(await this.execute(statement));
    return results;
  }

  async executeMultiple(sql: string): Promise<void> {
    await asLibsql(() => this.#open().query(schemaQuery(sql)));
  }

  async commit(): Promise<void> {
    await this.#end('COMMIT');
  }

  async rollback(): Promise<void> {
    if (!this.#closed) await this.#end('ROLLBACK');
  }

  close(): void {
    // What goes wrong with it goes wrong with its connection.
    void this.rollback().catch(() => {});
  }

  async #end(how: 'COMMIT' | 'ROLLBACK'): Promise<void> {
    const connection = this.#open();
    this.#closed = true;
    let isBroken = true;
    try {
      const { command } = (await asLibsql(() => connection.query(how))) as PgResult;
      isBroken = false;
      // A statement had failed, and its failure was ignored.
      if (command !== how) throw new LibsqlError('The transaction was rolled back', 'SQLITE_ABORT');
    } catch (error) {
      isBroken &&= !isRefusal(error);
      throw error;
    } finally {
      connection.release(isBroken);
    }
  }

  #open(): PgConnection {
    if (this.#closed) throw new LibsqlError('The transaction is closed', 'TRANSACTION_CLOSED');
    return this.#connection;
  }
}

function schemaQuery(sql: string): { text: string; query_timeout: number } {
  return { text: postgresSchema(sql), query_timeout: SCHEMA_MS };
}

function resultSet({ fields, rows, rowCount }: PgResult): ResultSet {
  if (fields.length === 0) return resultOf([], undefined, rowCount ?? 0);
  const columns = { names: fields.map(({ name }) => name), types: fields.map(() => '') };
  const RowOfThese = rowClass(columns.names);
  return resultOf(
    rows.map((row) => new RowOfThese(row as never)),
    { ...columns, RowOfThese },
    rowCount ?? 0,
  );
}

/** PostgreSQL's text holds no NUL. */
function postgresValue(given: InValue | undefined): unknown {
  const value = driverValue(given);
  if (typeof value === 'string') return value.includes('\0') ? value.replaceAll('\0', '\ufffd') : value;
  if (value instanceof Uint8Array && !Buffer.isBuffer(value)) return Buffer.from(value);
  return typeof value === 'bigint' || typeof value === 'number' ? String(value) : value;
}

async function asLibsql<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof LibsqlError || error instanceof RangeError || error instanceof LeaseLost) throw error;
    throw libsqlError(error as PgError);
  }
}

/** The server refused a statement; the connection is as good as before. */
function isRefusal(error: unknown): boolean {
  if (error instanceof LeaseLost) return true;
  return error instanceof LibsqlError && /^SQLITE_|^POSTGRES_(?!57P|08)[0-9A-Z]{5}$/.test(error.code);
}
