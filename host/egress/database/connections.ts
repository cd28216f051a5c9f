/**
 * The connections of one tenant to its databases: so many at a time, kept for a while where the next client can have one,
 * and waited for where all are in use.
 */
import type { Duplex } from 'node:stream';
import { Problem } from '../../shared/problem.ts';

/** A kept connection is closed when nobody wanted it for this long, ms. */
const KEEP_MS = 60_000;
/** A client waits for a connection for this long, ms. */
const WAIT_MS = 10_000;
/** Clients that may wait for each connection before more are refused. */
const WAITING_PER_CONNECTION = 10;

/** An authenticated connection to a database. */
export interface Session {
  socket: Duplex;
}

interface Kept {
  session: Session;
  /** Of whoever may have it next: equal keys have equal database, user and settings. */
  key: string;
  forget(): void;
}

export class Connections {
  most: number;
  #open = 0;
  #closed = false;
  readonly #waitMs: number;
  readonly #kept: Kept[] = [];
  readonly #waiting: (() => void)[] = [];

  /**
   * @param most connections at a time, kept ones included
   * @param waitMs how long a client waits for one
   */
  constructor(most: number, waitMs = WAIT_MS) {
    this.most = most;
    this.#waitMs = waitMs;
  }

  get open(): number {
    return this.#open;
  }

  /**
   * A kept connection, or the right to make one; either has to be given back.
   * @param key undefined: a new one
   * @throws Problem egress_limit when none becomes free in time
   */
  async take(key: string | undefined, signal: AbortSignal): Promise<Session | undefined> {
    for (const until = performance.now() + this.#waitMs; ; await this.#wait(until - performance.now(), signal)) {
      const index = key === undefined ? -1 : this.#kept.findLastIndex((one) => one.key === key);
      const found = this.#kept[index];
      if (found) {
        this.#drop(found);
        return found.session;
      }
      const [oldest] = this.#kept;
      if (this.#open >= this.most && oldest) this.#close(oldest);
      if (this.#open < this.most) {
        this.#open++;
        return undefined;
      }
    }
  }

  /** Of a connection that was not made, or is closed. */
  gone(): void {
    this.#open--;
    this.#waiting.shift()?.();
  }

  /** Keeps a connection that has nothing left of its last client. */
  keep(session: Session, key: string): void {
    const { socket } = session;
    // Whatever a server says unasked, it is about to close the connection, or has changed what its clients were told.
    const close = () => this.#close(kept);
    const timer = setTimeout(close, KEEP_MS).unref();
    const kept: Kept = {
      session,
      key,
      forget() {
        clearTimeout(timer);
        socket.off('data', close).off('close', close).off('end', close);
        socket.pause();
      },
    };
    if (socket.destroyed || this.#closed) {
      socket.destroy();
      this.gone();
      return;
    }
    this.#kept.push(kept);
    socket.on('data', close).once('close', close).once('end', close);
    socket.resume();
    this.#waiting.shift()?.();
  }

  /** Closes what is kept, and keeps nothing from now on. */
  close(): void {
    this.#closed = true;
    this.empty();
  }

  /** Closes what is kept. */
  empty(): void {
    for (const kept of [...this.#kept]) this.#close(kept);
  }

  #close(kept: Kept): void {
    if (!this.#drop(kept)) return;
    kept.session.socket.destroy();
    this.gone();
  }

  #drop(kept: Kept): boolean {
    const index = this.#kept.indexOf(kept);
    if (index < 0) return false;
    this.#kept.splice(index, 1);
    kept.forget();
    return true;
  }

  #wait(ms: number, signal: AbortSignal): Promise<void> {
    const busy = () =>
      new Problem(
        'egress_limit',
        `All ${this.most} connections to databases are in use; close those that are not needed, and wait before opening more.`,
      );
    if (ms <= 0 || this.#waiting.length >= this.most * WAITING_PER_CONNECTION) return Promise.reject(busy());
    return new Promise((resolve, reject) => {
      const settle = (done: () => void) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', stop);
        const index = this.#waiting.indexOf(wake);
        if (index >= 0) this.#waiting.splice(index, 1);
        done();
      };
      const wake = () => settle(resolve);
      const stop = () => settle(() => reject(signal.reason));
      const timer = setTimeout(() => settle(() => reject(busy())), ms);
      signal.addEventListener('abort', stop, { once: true });
      if (signal.aborted) stop();
      else this.#waiting.push(wake);
    });
  }
}
