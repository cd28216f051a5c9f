/**
 * The life of blobs: names that are never used twice, removal only when nobody reads any more, and collection of what
 * a crash left unnamed. An index row is written after its blob is safe and removed before its blob goes, so a row never
 * names bytes that are not there.
 */
import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Database, Reader, Writer } from '../database.ts';
import { Finished } from '../work.ts';
import type { BlobBackend, Bytes, StoreBlobs } from './backend.ts';
import { type Extents, isExtent } from './extents.ts';

/** Part of the schema of every database that names blobs. */
export const BLOB_SCHEMA = 'CREATE TABLE unclean (epoch TEXT PRIMARY KEY)';

/** How many removals run at once. */
const REMOVERS = 4;
/** Collecting waits while so many wait to be removed, and looks again after, ms. */
const MOST_CONDEMNED = 10_000;
const REMOVAL_LOOK_MS = 100;

const CHANGED = new Finished<void>(undefined);

export class Blobs implements StoreBlobs {
  readonly #backend: BlobBackend;
  readonly #database: Database;
  readonly #log: Logger;
  readonly #extents: Extents | undefined;
  readonly #named: Reader;
  readonly #epochs: Reader;
  readonly #mark: Writer;
  readonly #unmark: Writer;
  /** Marks the names given since the store was opened; another opening has another epoch. */
  readonly #epoch = `${Date.now().toString(36)}${randomBytes(4).toString('hex')}`;
  #count = 0;
  #marked: Promise<void> | undefined;
  #writing = 0;
  readonly #readers = new Map<string, number>();
  readonly #condemned = new Set<string>();
  #removing = 0;
  #failed = false;
  #held = 0;
  #collecting = false;
  #stopped = false;

  /**
   * @param named SQL that finds a row naming the blob `?1`
   * @param extents where there are names of extents, too
   */
  constructor(options: {
    backend: BlobBackend;
    database: Database;
    log: Logger;
    named: string;
    extents?: Extents;
  }) {
    this.#backend = options.backend;
    this.#extents = options.extents;
    this.#database = options.database;
    this.#log = options.log;
    this.#named = options.database.reader(options.named);
    this.#epochs = options.database.reader('SELECT epoch FROM unclean');
    this.#mark = options.database.writer('INSERT OR IGNORE INTO unclean VALUES (?)');
    this.#unmark = options.database.writer('DELETE FROM unclean');
    const left = this.#epochs.all([]).length;
    if (left > 0) void this.#collect();
  }

  get busy(): boolean {
    return this.#writing > 0 || this.#removing > 0 || this.#collecting || this.#readers.size > 0 || this.#held > 0;
  }

  async write(bytes: Bytes): Promise<string> {
    this.#writing++;
    try {
      // Written before the first blob of this epoch, so that a crash from now on is noticed by the next opening.
      await this.#begin();
      const name = `${this.#epoch}-${(this.#count++).toString(36)}`;
      try {
        await this.#backend.write(name, bytes);
      } catch (error) {
        this.drop([name]);
        throw error;
      }
      return name;
    } finally {
      this.#writing--;
    }
  }

  isDirect(name: string, length: number): boolean {
    return isExtent(name) || length <= this.#backend.directBytes;
  }

  read(name: string, offset: number, length: number, md5?: string): Buffer | Promise<Readable> {
    if (isExtent(name)) return this.#knownExtents().read(name, offset, length);
    const bytes = this.#backend.read(name, offset, length, md5);
    if (Buffer.isBuffer(bytes)) return bytes;
    this.hold(name);
    return bytes.then(
      (stream) => {
        stream.once('close', () => this.release(name));
        return stream;
      },
      (error) => {
        this.release(name);
        throw error;
      },
    );
  }

  hold(name: string): void {
    this.#readers.set(name, (this.#readers.get(name) ?? 0) + 1);
  }

  release(name: string): void {
    const left = (this.#readers.get(name) ?? 1) - 1;
    if (left > 0) this.#readers.set(name, left);
    else this.#readers.delete(name);
    this.#remove();
  }

  /** The rows say it all. */
  change(): Finished<void> {
    return CHANGED;
  }

  abandon(name: string): void {
    this.drop([name]);
  }

  drop(names: string[]): void {
    // What a transaction wrote that could not be synced may be on the disk nevertheless: the next opening knows.
    if (this.#database.failure) return;
    for (const name of names) this.#condemned.add(name);
    this.#remove();
  }

  pauseRemoval(): void {
    this.#held++;
  }

  resumeRemoval(): void {
    this.#held--;
    this.#remove();
  }

  /** Ends collection early; it is done again at the next opening. */
  stop(): void {
    this.#stopped = true;
  }

  /** To be done as the last write of the database: all names are settled, so the next opening has nothing to collect. */
  settle(): void {
    if (!this.busy && this.#condemned.size === 0 && !this.#failed) this.#unmark.run([]);
  }

  close(): void {
    this.#backend.close();
    this.#extents?.close();
  }

  #knownExtents(): Extents {
    if (!this.#extents) throw new Error('a store without extents has none to read or free');
    return this.#extents;
  }

  #begin(): Promise<void> {
    this.#marked ??= this.#database
      .commit(() => void this.#mark.run([this.#epoch]))
      .catch((error) => {
        this.#marked = undefined;
        throw error;
      });
    return this.#marked;
  }

  #remove(): void {
    if (this.#held > 0) return;
    for (const name of this.#condemned) {
      if (this.#removing >= REMOVERS) return;
      if (this.#readers.has(name)) continue;
      this.#condemned.delete(name);
      if (isExtent(name)) {
        this.#knownExtents().free(name);
        continue;
      }
      this.#removing++;
      this.#backend
        .remove(name)
        .catch((error) => {
          this.#failed = true;
          this.#log.warn({ err: error }, 'a blob could not be removed; it is collected at a later start');
        })
        .finally(() => {
          this.#removing--;
          this.#remove();
        });
    }
  }

  async #collect(): Promise<void> {
    this.#collecting = true;
    let kept = 0;
    let dropped = 0;
    try {
      for await (const name of this.#backend.names()) {
        if (this.#stopped) throw new Error('stopped before the end');
        if (name.startsWith(this.#epoch)) continue;
        if (this.#named.get([name]) === undefined) {
          this.drop([name]);
          dropped++;
        } else kept++;
        if ((kept + dropped) % 64 === 0) await nextTurn();
        // They are listed faster than they go.
        while (this.#condemned.size > MOST_CONDEMNED && !this.#stopped) await delay(REMOVAL_LOOK_MS);
      }
      if (dropped > 0) this.#log.info({ kept, dropped }, 'collected blobs that a stop had left unnamed');
    } catch (error) {
      this.#failed = true;
      this.#log.warn({ err: error }, 'unnamed blobs could not be collected; tried again at a later start');
    } finally {
      this.#collecting = false;
    }
  }
}
