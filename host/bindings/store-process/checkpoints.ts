/**
 * Checkpoints beside the event loop. SQLite brings its log into the file within the commit that makes it too long: 4 MB
 * read, written and synced twice, 5 to 10 ms in which no tenant is served. Here a thread does that while writers write
 * on. Only where they fill the log more quickly than it is emptied, the next transaction of that one database waits,
 * so that the log can begin anew.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import type { Logger } from 'pino';
import { Thread } from './thread.ts';

/** Of the log that is not in the file yet; then a checkpoint begins, bytes. */
export const CHECKPOINT_BYTES = 4_096_000;
/** Of the log; then the next transaction waits for the checkpoint, bytes. */
const FULL_BYTES = 3 * CHECKPOINT_BYTES;

export interface CheckpointJob {
  path: string;
}

export interface CheckpointAnswer {
  error?: string;
}

/** One thread for all databases of a process. */
export class Checkpoints {
  readonly #thread = new Thread<CheckpointJob, CheckpointAnswer>(new URL('./checkpoint-worker.ts', import.meta.url));
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Brings what it can of a database's log into its file. Where the disk refuses, the log stays and holds what it held. */
  async run(path: string): Promise<void> {
    const { error } = await this.#thread.ask({ path });
    if (error === undefined) return;
    this.#log.warn({ path, error }, 'the log of a database could not be brought into its file; it grows until it can');
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}

/** Decides when one database's log is brought into its file. */
export class LogCheckpointer {
  readonly #path: string;
  readonly #checkpoints: Pick<Checkpoints, 'run'>;
  /** In frames, each a page. */
  readonly #soon: number;
  readonly #full: number;
  #index: number | undefined;
  readonly #words = new Uint32Array(2);
  #running: Promise<void> | undefined;
  /** No checkpoint begins below these, as one would achieve nothing: somebody reads the log. */
  #tryAt = 0;
  #holdAt: number;
  #seen = 0;

  constructor(path: string, pageBytes: number, checkpoints: Pick<Checkpoints, 'run'>) {
    this.#path = path;
    this.#checkpoints = checkpoints;
    this.#soon = Math.ceil(CHECKPOINT_BYTES / pageBytes);
    this.#full = Math.ceil(FULL_BYTES / pageBytes);
    this.#holdAt = this.#full;
  }

  /** True while the thread works on this database. */
  get busy(): boolean {
    return this.#running !== undefined;
  }

  /** To be called after each commit. Answers what the next transaction has to wait for, if anything. */
  tend(): Promise<void> | undefined {
    const { frames, moved } = this.#read();
    if (frames < this.#seen) {
      // The log began anew.
      this.#holdAt = this.#full;
      this.#tryAt = 0;
    }
    this.#seen = frames;
    const full = frames >= this.#holdAt && moved < frames;
    if (full || (frames - moved >= this.#soon && frames >= this.#tryAt)) this.#running ??= this.#run(moved);
    return full ? this.#running : undefined;
  }

  close(): void {
    if (this.#index !== undefined) closeSync(this.#index);
  }

  async #run(before: number): Promise<void> {
    await this.#checkpoints.run(this.#path);
    this.#running = undefined;
    const { frames, moved } = this.#read();
    const stuck = moved === before;
    if (stuck) this.#tryAt = frames + this.#soon;
    if (stuck || moved === frames) this.#holdAt = Math.max(this.#full, frames + this.#soon);
  }

  /**
   * The last frame of the log, and the last one that is in the file: `mxFrame` and `nBackfill` of the WAL-index header
   * (https://www.sqlite.org/walformat.html#the_wal_index_header), in the machine's own order of bytes.
   */
  #read(): { frames: number; moved: number } {
    this.#index ??= openSync(`${this.#path}-shm`, 'r');
    readSync(this.#index, this.#words, 0, 4, 16);
    readSync(this.#index, this.#words, 4, 4, 96);
    return { frames: this.#words[0] ?? 0, moved: this.#words[1] ?? 0 };
  }
}
