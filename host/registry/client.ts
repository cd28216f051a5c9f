/**
 * The registry's libSQL connection: one connection, one user of it at a time.
 * The libSQL client hands its connection to an open transaction and refuses everybody else meanwhile, so calls queue
 * here instead; a transaction must therefore never wait for anything but the database.
 */
import type { Client, InArgs, InStatement, Transaction, TransactionMode } from '@libsql/client/sqlite3';
import { createClient } from './drizzle.ts';

export async function openClient(file: string): Promise<Client> {
  const client = createClient({ url: `file:${file}`, concurrency: 1, intMode: 'number' });
  for (const pragma of ['journal_mode=WAL', 'synchronous=FULL', 'foreign_keys=ON', 'busy_timeout=5000']) {
    await client.execute(`PRAGMA ${pragma}`);
  }
  return new QueuedClient(client);
}

class QueuedClient implements Client {
  readonly #client: Client;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(client: Client) {
    this.#client = client;
  }

  get closed(): boolean {
    return this.#client.closed;
  }

  get protocol(): string {
    return this.#client.protocol;
  }

  execute(statement: InStatement | string, args?: InArgs) {
    return this.#queue(() =>
      typeof statement === 'string' ? this.#client.execute(statement, args) : this.#client.execute(statement),
    );
  }

  batch(...args: Parameters<Client['batch']>) {
    return this.#queue(() => this.#client.batch(...args));
  }

  migrate(statements: InStatement[]) {
    return this.#queue(() => this.#client.migrate(statements));
  }

  executeMultiple(sql: string) {
    return this.#queue(() => this.#client.executeMultiple(sql));
  }

  /** Holds the queue until the transaction is committed, rolled back or closed. */
  async transaction(mode: TransactionMode = 'write'): Promise<Transaction> {
    const turn = Promise.withResolvers<void>();
    const before = this.#tail;
    this.#tail = turn.promise;
    await before.catch(() => {});
    try {
      const transaction = await this.#client.transaction(mode);
      return releasing(transaction, turn.resolve);
    } catch (error) {
      turn.resolve();
      throw error;
    }
  }

  sync() {
    return this.#client.sync();
  }

  reconnect() {
    return this.#client.reconnect();
  }

  close() {
    this.#client.close();
  }

  #queue<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#tail.then(work, work);
    this.#tail = run.catch(() => {});
    return run;
  }
}

/** The same transaction, telling `done` when it has ended. */
function releasing(transaction: Transaction, done: () => void): Transaction {
  return {
    execute: (statement: InStatement) => transaction.execute(statement),
    batch: (statements) => transaction.batch(statements),
    executeMultiple: (sql) => transaction.executeMultiple(sql),
    async commit() {
      try {
        await transaction.commit();
      } finally {
        transaction.close();
        done();
      }
    },
    async rollback() {
      try {
        await transaction.rollback();
      } finally {
        transaction.close();
        done();
      }
    },
    close() {
      transaction.close();
      done();
    },
    get closed() {
      return transaction.closed;
    },
  };
}
