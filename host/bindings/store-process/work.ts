/**
 * The work of one read or one transaction of a store, written once for both engines: a generator that hands each
 * statement to whoever runs it. On libSQL a statement is done at once, and the work is a plain call; PostgreSQL is asked.
 */

export type Value = null | number | string | Buffer;

/** A statement that has to be asked of a server. */
export interface Step {
  text: string;
  parameters: Value[];
  /** False: what it answers is not looked at, and what comes next need not wait for it. */
  answers: boolean;
}

/** Gets the rows of each step that answers. */
export type Work<T> = Iterable<Step, T, Value[][]>;

/** A statement of a store; rows are arrays in the order of the columns. */
export interface Query {
  get(parameters: Value[]): Work<Value[] | undefined>;
  all(parameters: Value[]): Work<Value[][]>;
  run(parameters: Value[]): Work<void>;
}

/** Work that is done, of which this is the result. */
export class Finished<T> implements Work<T> {
  readonly #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  [Symbol.iterator](): Iterator<Step, T, Value[][]> {
    return { next: () => ({ done: true, value: this.#value }) };
  }
}

/** Result of work whose statements are done at once. */
export function finish<T>(work: Work<T>): T {
  const { done, value } = work[Symbol.iterator]().next();
  if (!done) throw new Error('this work waits for a server');
  return value;
}

/** What a store is written against: a libSQL file, or its rows in PostgreSQL. */
export interface StoreDatabase {
  /** True while a write is not yet safe. */
  readonly busy: boolean;
  /** Set once nothing more can be written before the store is opened again. */
  readonly failure: Error | undefined;
  query(sql: string): Query;
  /** @param what `snapshot`: all statements see the store as of one moment; on libSQL they always do */
  read<T>(work: () => Work<T>, what?: 'snapshot'): T | Promise<T>;
  /**
   * Runs the work in a transaction, after all others of this store, and answers once it is safe. The work may throw a
   * Refusal before its first change: only its own promise rejects.
   * @param key all rows that the work reads or changes are those of this key; undefined: they may be any
   */
  write<T>(work: () => Work<T>, key?: Buffer): Promise<T>;
  /** Only when not busy. @param lastWrite in the last transaction */
  close(lastWrite?: () => void): void;
}

/** How much a store keeps, counted in the transactions that change it. */
export interface StoreTotals {
  /** Bytes of keys, values and metadata. */
  readonly bytes: number;
  readonly items: number;
  /** Bytes that count against the quota. */
  readonly charged: number;
  /** Would `bytes` more than now pass the quota? Less than now never does, so that a full store can be emptied. */
  exceeds(quota: number, bytes: number): boolean;
  /** To be called inside a transaction. */
  add(bytes: number, items: number): void;
  /** Outside of a transaction, what is known may be old where others write, too. */
  refresh(): Promise<void> | undefined;
}
