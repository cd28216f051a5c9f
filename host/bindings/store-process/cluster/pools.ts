/**
 * Connections to the PostgreSQL that holds the stores of all nodes. Reads have connections of their own, which never wait
 * behind writes, and both are apart from the registry's.
 */
import { openPool, type PgConnection, type PgPool, type PgQuery, type PgResult } from '../../../shared/pg.ts';
import type { Value } from '../work.ts';
import { SCHEMA, TABLES } from './schema.ts';

const CONNECTIONS = 8;
/** Until a connection is there, or free. ms */
const CONNECT_MS = 15_000;
/** Longer than a lock is waited for: then the server is gone. ms */
const ANSWER_MS = 20_000;
/** A process that stopped within a transaction loses its locks before those who wait for them give up. */
const SESSION = `SET search_path = ${SCHEMA}; SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '10s'`;
/** Any number, the same on all nodes: who makes the tables. */
const MAKERS = 0x7475726f;

/** Object ids of types that hold whole numbers: int8, int2, int4, numeric. */
const NUMBERS = new Set([20, 21, 23, 1700]);
const BOOLEAN = 16;
const BYTES = 17;

/** What a transaction asks by; statements go out without waiting for those before them. */
export type Ask = (text: string, values?: unknown[]) => Promise<PgResult>;

export class Pools {
  readonly #readers: PgPool;
  readonly #writers: PgPool;
  /** Names of prepared statements by their text: there are few texts. */
  readonly #names = new Map<string, string>();

  /** @param url `postgres://user:password@host/database` */
  constructor(url: string) {
    this.#readers = poolOf(url);
    this.#writers = poolOf(url);
  }

  /** Makes the tables where they are not there. Several nodes may do so at once. */
  async prepare(): Promise<void> {
    await this.#using(this.#writers, async (connection) => {
      await connection.query(
        `BEGIN; SELECT pg_advisory_xact_lock(${MAKERS}); CREATE SCHEMA IF NOT EXISTS ${SCHEMA}; ${TABLES} COMMIT`,
      );
    });
  }

  async read(text: string, values: unknown[]): Promise<Value[][]> {
    return this.#using(this.#readers, async (connection) => rowsOf(await connection.query(this.#query(text, values))));
  }

  /** Several statements that see the database as of one moment. */
  snapshot<T>(work: (ask: Ask) => Promise<T>): Promise<T> {
    return this.#transaction(this.#readers, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', work);
  }

  /** One statement that is a transaction by itself. */
  async write(text: string, values: unknown[]): Promise<Value[][]> {
    return this.#using(this.#writers, async (connection) => rowsOf(await connection.query(this.#query(text, values))));
  }

  /** Commits what the work has asked once it resolves; nothing of it is done where this rejects before the COMMIT. */
  transaction<T>(work: (ask: Ask) => Promise<T>): Promise<T> {
    return this.#transaction(this.#writers, 'BEGIN', work);
  }

  async close(): Promise<void> {
    await Promise.all([this.#readers.end(), this.#writers.end()]);
  }

  #transaction<T>(pool: PgPool, begin: string, work: (ask: Ask) => Promise<T>): Promise<T> {
    return this.#using(pool, async (connection) => {
      const sent: Promise<unknown>[] = [];
      const asked = <R>(answer: Promise<R>): Promise<R> => {
        // The first that failed is the one to tell of; the others failed because of it.
        answer.catch(() => undefined);
        sent.push(answer);
        return answer;
      };
      asked(connection.query(begin));
      try {
        const result = await work((text, values = []) => asked(connection.query(this.#query(text, values))));
        const { command } = (await asked(connection.query('COMMIT'))) as PgResult;
        if (command !== 'COMMIT') throw new Error('the transaction was rolled back');
        return result;
      } catch (error) {
        const settled = await Promise.allSettled(sent);
        throw settled.find((one) => one.status === 'rejected')?.reason ?? error;
      }
    });
  }

  /** A connection on which something went wrong is not used again, and with it goes what it had begun. */
  async #using<T>(pool: PgPool, work: (connection: PgConnection) => Promise<T>): Promise<T> {
    const connection = await pool.connect();
    let isBroken = true;
    try {
      const result = await work(connection);
      isBroken = false;
      return result;
    } finally {
      connection.release(isBroken);
    }
  }

  #query(text: string, values: unknown[]): PgQuery {
    let name = this.#names.get(text);
    if (name === undefined) {
      name = `s${this.#names.size}`;
      this.#names.set(text, name);
    }
    return { text, name, values: values.map(sentValue), rowMode: 'array', types: { getTypeParser: readerOf } };
  }
}

export function rowsOf({ rows }: PgResult): Value[][] {
  return rows as Value[][];
}

function poolOf(connectionString: string): PgPool {
  const times = { connectionTimeoutMillis: CONNECT_MS, query_timeout: ANSWER_MS };
  return openPool({ connectionString, max: CONNECTIONS, ...times }, SESSION);
}

/** PostgreSQL's text holds no NUL. */
function sentValue(value: unknown): unknown {
  if (typeof value === 'string' && value.includes('\0')) return value.replaceAll('\0', '\ufffd');
  return typeof value === 'number' ? String(value) : value;
}

function readerOf(type: number): (text: string) => unknown {
  if (NUMBERS.has(type)) return Number;
  if (type === BYTES) return (text) => Buffer.from(text.slice(2), 'hex');
  if (type === BOOLEAN) return (text) => Number(text === 't');
  return (text) => text;
}
