/** What tells the registry's client when its commits are on the disk. */
import { closeSync, openSync } from 'node:fs';
import { SharedSync } from '../shared/shared-sync.ts';
import { LibsqlError } from './drizzle.ts';

/** Puts the file behind the descriptor on the disk; replaced in tests. */
export type Sync = (descriptor: number, done: (error: Error | null) => void) => void;

/**
 * SQLite's log of commits. `synchronous=NORMAL` leaves out SQLite's own sync after each commit, for which the event loop
 * would stand still; this does the same sync of the same file. Before SQLite copies the log into the database, and when
 * it begins the log anew, it syncs by itself (https://sqlite.org/pragma.html#pragma_synchronous).
 */
export class CommitLog {
  readonly #descriptor: number;
  readonly #shared: SharedSync;
  #ended = false;
  /** Of the last commit; undefined: it is on the disk. */
  #latest: Promise<void> | undefined;
  #failure: Error | undefined;

  constructor(file: string, sync: Sync) {
    const descriptor = openSync(file, 'r');
    this.#descriptor = descriptor;
    this.#shared = new SharedSync((done) => sync(descriptor, done));
    this.#shared.idle = () => {
      if (this.#ended) closeSync(descriptor);
    };
  }

  /** Set once the disk failed: what the kernel forgot then, no later sync brings back. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** To be called after each commit. */
  committed(): void {
    const synced = this.#shared.sync();
    this.#latest = synced;
    synced.then(
      () => {
        if (this.#latest === synced) this.#latest = undefined;
      },
      (cause: Error) => {
        this.#failure ??= new LibsqlError(
          `The disk did not keep what was written to the registry (${cause.message}). Start the host again once it does.`,
          'SQLITE_IOERR',
          'SQLITE_IOERR_FSYNC',
          undefined,
          cause,
        );
      },
    );
  }

  /** Calls `give` once all commits are on the disk: at once, where they are. */
  answer(give: () => void, reject: (error: unknown) => void): void {
    if (this.#latest === undefined) give();
    else this.kept().then(give, reject);
  }

  /** Resolves once all commits are on the disk. @throws LibsqlError where they will not be */
  async kept(): Promise<void> {
    await this.#latest?.catch(() => undefined);
    if (this.#failure) throw this.#failure;
  }

  /** Lets go of the file, after a sync that is under way. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (!this.#shared.running) closeSync(this.#descriptor);
  }
}
