/**
 * The stores that are open now, least recently used first. A store is opened by the first call that needs it, and closed
 * when too many are open and nobody uses it; the next call opens it again within a few milliseconds.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { collectGarbage } from '../../shared/idle-memory.ts';
import type { StoreBlobs } from './blobs/backend.ts';
import type { StoreDatabase, StoreTotals } from './work.ts';

/** What all stores have in common. */
export interface Store {
  readonly database: StoreDatabase;
  /** True while something is under way that no caller waits for. */
  readonly busy: boolean;
  readonly blobs: StoreBlobs;
  readonly totals: StoreTotals;
  /** Values up to here are in its rows. */
  readonly inlineBytes: number;
  /** Removes some of what has expired; answers how much. */
  sweep(): Promise<number>;
  close(): void;
}

/** A store that stays open until it is given back: a statement used after closing would abort the process. */
export interface Lease<S extends Store> {
  readonly store: S;
  users: number;
}

const IDLE_POLL_MS = 5;
/** Longest wait for what is under way in a store that is to be closed; it then stays open until it is evicted. */
const CLOSE_MS = 10_000;
/** Closed stores of which at most so many still hold their files; see `#end`. */
const UNCOLLECTED = 32;

export class OpenStores {
  readonly #limit: number;
  readonly #leases = new Map<string, Lease<Store>>();
  #closed = 0;

  /** @param limit stores held open; more only while all of them are in use */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#leases.size;
  }

  names(): string[] {
    return [...this.#leases.keys()];
  }

  get(name: string): Store | undefined {
    return this.#leases.get(name)?.store;
  }

  /** The store of that name, opened where it is not. Give it back with `release`. */
  acquire<S extends Store>(name: string, open: () => S): Lease<S> {
    let lease = this.#leases.get(name);
    if (lease?.store.database.failure && !inUse(lease)) {
      // The disk failed under it; perhaps only for a while.
      this.#end(lease);
      lease = undefined;
    }
    this.#leases.delete(name);
    if (!lease) {
      this.#evict();
      lease = { store: open(), users: 0 };
    }
    this.#leases.set(name, lease);
    lease.users++;
    return lease as Lease<S>;
  }

  release(lease: Lease<Store>): void {
    lease.users--;
  }

  /** Closes a store as soon as nobody uses it, or leaves it open where that takes too long. */
  async close(name: string): Promise<void> {
    const lease = this.#leases.get(name);
    if (!lease) return;
    lease.store.blobs.stop();
    const deadline = performance.now() + CLOSE_MS;
    while (inUse(lease) && performance.now() < deadline) await delay(IDLE_POLL_MS);
    if (inUse(lease) || this.#leases.get(name) !== lease) return;
    this.#leases.delete(name);
    this.#end(lease);
  }

  async closeAll(): Promise<void> {
    await Promise.all(this.names().map((name) => this.close(name)));
  }

  #evict(): void {
    for (const [name, lease] of this.#leases) {
      if (this.#leases.size < this.#limit) return;
      if (inUse(lease)) continue;
      this.#leases.delete(name);
      this.#end(lease);
    }
  }

  #end({ store }: Lease<Store>): void {
    store.close();
    // libsql 0.5.29 cannot finalize a statement: a closed connection and its file descriptors live on until the garbage
    // collector finds the statements, which on a quiet machine takes hours, because their memory is not the collector's.
    if (++this.#closed % UNCOLLECTED === 0) setImmediate(collectGarbage, { type: 'major' });
  }
}

function inUse({ store, users }: Lease<Store>): boolean {
  return users > 0 || store.busy;
}
