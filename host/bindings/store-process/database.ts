/**
 * One libSQL file with group commit: all writes of an event-loop turn share one transaction and one sync, and each is
 * answered only when it is on the disk. The sync runs beside the event loop, so a slow disk delays only its own tenant.
 */
import { closeSync, fdatasync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import Libsql from 'libsql';
import { type Checkpoints, LogCheckpointer } from './checkpoints.ts';
import { makeFolder, syncFolder } from './folders.ts';
import { Refusal } from './refusal.ts';
import { Finished, finish, type Query, type StoreDatabase, type Value, type Work } from './work.ts';

/** A prepared statement that reads; rows are arrays in the order of the columns. */
export interface Reader {
  get(parameters: Value[]): Value[] | undefined;
  all(parameters: Value[]): Value[][];
}

/** A prepared statement that writes. */
export interface Writer {
  run(parameters: Value[]): { changes: number };
}

export interface DatabaseOptions {
  /** Path of the file; its folder is created. */
  path: string;
  /** Statements that create an empty database. Run once, in one transaction. */
  schema: string;
  /** Of a new file, a power of two from 512 to 65536; one that is there keeps its own. Default 4096. */
  pageBytes?: number;
  /** Bring the log into the file. */
  checkpoints: Pick<Checkpoints, 'run'>;
  /** Puts the file behind the descriptor on the disk; replaced in tests. */
  sync?: (descriptor: number, done: (error: Error | null) => void) => void;
}

interface Waiting {
  write: () => unknown;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

interface Done {
  waiting: Waiting;
  result: unknown;
}

export class Database implements StoreDatabase {
  readonly path: string;
  readonly #connection: Libsql.Database;
  readonly #log: LogCheckpointer;
  readonly #sync: NonNullable<DatabaseOptions['sync']>;
  readonly #begin: Writer;
  readonly #end: Writer;
  #waiting: Waiting[] = [];
  #running = false;
  #wal: number | undefined;
  #failure: Error | undefined;
  #closed = false;
  /** Runs inside each transaction just before its end: the place for running totals. */
  beforeCommit: () => void = () => {};
  /** Called after a transaction was rolled back: what was remembered from it is void. */
  readonly rollbackListeners: (() => void)[] = [];

  constructor(options: DatabaseOptions) {
    this.path = options.path;
    this.#sync = options.sync ?? fdatasync;
    makeFolder(dirname(options.path));
    this.#connection = new Libsql(options.path);
    this.#connection.exec(`PRAGMA page_size=${options.pageBytes ?? 4_096}`);
    this.#connection.exec('PRAGMA journal_mode=WAL');
    this.#connection.exec('PRAGMA synchronous=FULL');
    this.#connection.exec('PRAGMA trusted_schema=OFF');
    this.#connection.exec('PRAGMA busy_timeout=5000');
    if (this.reader('PRAGMA user_version').get([])?.[0] !== 1) {
      this.#connection.exec(`BEGIN IMMEDIATE; ${options.schema}; PRAGMA user_version=1; COMMIT`);
      syncFolder(dirname(options.path));
    }
    // NORMAL leaves out SQLite's own sync after each commit, which would stop the whole process for its length.
    // #settle does the same sync on the same file and answers after it, so what is acknowledged is as safe as with FULL.
    this.#connection.exec('PRAGMA synchronous=NORMAL');
    const pageBytes = Number(this.reader('PRAGMA page_size').get([])?.[0]);
    this.#log = new LogCheckpointer(options.path, pageBytes, options.checkpoints);
    this.#connection.exec('PRAGMA wal_autocheckpoint=0');
    this.#begin = this.writer('BEGIN IMMEDIATE');
    this.#end = this.writer('COMMIT');
  }

  reader(sql: string): Reader {
    return this.#connection.prepare(sql).raw() as unknown as Reader;
  }

  writer(sql: string): Writer {
    return this.#connection.prepare(sql) as unknown as Writer;
  }

  query(sql: string): Query {
    const statement = this.#connection.prepare(sql);
    const read = (statement.reader ? statement.raw() : statement) as unknown as Reader;
    return {
      get: (parameters) => new Finished(read.get(parameters)),
      all: (parameters) => new Finished(read.all(parameters)),
      run: (parameters) => new Finished(void (statement as unknown as Writer).run(parameters)),
    };
  }

  read<T>(work: () => Work<T>): T {
    return finish(work());
  }

  write<T>(work: () => Work<T>): Promise<T> {
    return this.commit(() => finish(work()));
  }

  /** True while a write is not yet on the disk, or the log is on its way into the file. */
  get busy(): boolean {
    return this.#running || this.#waiting.length > 0 || this.#log.busy;
  }

  /** Set once the disk failed: nothing more is written, and the database has to be opened again. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /**
   * Runs `write` in the next transaction and answers its result once that is on the disk.
   * `write` may throw a Refusal before its first change: only its own promise rejects. Any other error takes the whole
   * transaction back.
   */
  commit<T>(write: () => T): Promise<T> {
    if (this.#failure || this.#closed) return Promise.reject(this.#failure ?? new Error('the database is closed'));
    return new Promise<T>((resolve, reject) => {
      this.#waiting.push({ write, resolve: resolve as (value: unknown) => void, reject });
      if (!this.#running) {
        this.#running = true;
        setImmediate(() => this.#turn());
      }
    });
  }

  /** Ends the connection. Call it only when not busy; use of a statement afterwards would abort the process. */
  close(lastWrite?: () => void): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      if (!this.#failure) {
        lastWrite?.();
        this.#connection.exec('PRAGMA wal_checkpoint(TRUNCATE)');
      }
      // The connection lives on until its statements are collected: it should hold little meanwhile.
      this.#connection.exec('PRAGMA cache_size=0; PRAGMA shrink_memory');
    } catch {
      // A disk that fails now loses nothing: all that was acknowledged is in the log, where the next opening finds it.
    }
    if (this.#wal !== undefined) closeSync(this.#wal);
    this.#log.close();
    this.#connection.close();
  }

  #turn(): void {
    const batch = this.#waiting;
    this.#waiting = [];
    const done: Done[] = [];
    try {
      this.#begin.run([]);
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
      this.#next();
      return;
    }
    try {
      for (const waiting of batch) {
        try {
          done.push({ waiting, result: waiting.write() });
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          waiting.reject(error);
        }
      }
      if (done.length > 0) this.beforeCommit();
      this.#end.run([]);
    } catch (error) {
      this.#takeBack();
      for (const waiting of batch) waiting.reject(error);
      this.#next();
      return;
    }
    this.#settle(done);
  }

  #settle(done: Done[]): void {
    if (done.length === 0) {
      this.#next();
      return;
    }
    // The write-ahead log exists from the first commit until the last connection closes.
    this.#wal ??= openSync(`${this.path}-wal`, 'r');
    this.#sync(this.#wal, (error) => {
      if (error) {
        this.#failure = error;
        for (const { waiting } of done) waiting.reject(error);
        for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
        this.#running = false;
        return;
      }
      for (const { waiting, result } of done) waiting.resolve(result);
      const room = this.#log.tend();
      if (room) void room.then(() => this.#next());
      else this.#next();
    });
  }

  #next(): void {
    if (this.#waiting.length === 0) this.#running = false;
    else setImmediate(() => this.#turn());
  }

  #takeBack(): void {
    if (this.#connection.inTransaction) this.#connection.exec('ROLLBACK');
    for (const listener of this.rollbackListeners) listener();
  }
}
