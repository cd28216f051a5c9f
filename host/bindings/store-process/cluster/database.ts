/**
 * One store's rows in PostgreSQL, with group commit: what is written at a node while a transaction is under way shares
 * the next one. Writes of all nodes come one after the other, because each transaction begins by locking the row that says
 * how much the store holds; with it those of the tenant's other stores of the kind, as they have one quota.
 */
import { KeyedLock } from '../../../shared/mutex.ts';
import { Refusal } from '../refusal.ts';
import type { Query, StoreDatabase, StoreTotals, Value, Work } from '../work.ts';
import { type Ask, type Pools, rowsOf } from './pools.ts';
import { storeText } from './schema.ts';

/** Writes in one transaction: those of other nodes wait for it. */
const MOST_TOGETHER = 64;

const MAKE = 'INSERT INTO stores (store, tenant, kind, name) VALUES ($1, $2, $3, $4) ON CONFLICT (store) DO NOTHING';
const TOTALS = 'SELECT store, bytes, items FROM stores WHERE tenant = $1 AND kind = $2 ORDER BY store';
const SAVE = 'UPDATE stores SET bytes = $2, items = $3 WHERE store = $1';

/** A store among those of all tenants. */
export interface Place {
  /** Where its objects are in the bucket, too. */
  store: string;
  tenant: string;
  /** `kv`, `r2` */
  kind: string;
  /** `kv`, `kv.sessions` */
  name: string;
}

interface Waiting {
  work: () => Work<unknown>;
  key: string | undefined;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** A tenant's stores of one kind wait for each other before they take a connection: others find one free. */
const turns = new KeyedLock();

export class ClusterDatabase implements StoreDatabase {
  readonly failure = undefined;
  readonly totals: ClusterTotals;
  readonly #pools: Pools;
  readonly #place: Place;
  #waiting: Waiting[] = [];
  #running = false;

  /** @param itemBytes about what each item takes beside what it counts: it is part of the quota, too */
  constructor(pools: Pools, place: Place, itemBytes: number) {
    this.#pools = pools;
    this.#place = place;
    this.totals = new ClusterTotals(pools, place, itemBytes);
  }

  get busy(): boolean {
    return this.#running || this.#waiting.length > 0;
  }

  query(sql: string): Query {
    const text = storeText(sql);
    return {
      *get(parameters) {
        return (yield { text, parameters, answers: true })[0];
      },
      *all(parameters) {
        return yield { text, parameters, answers: true };
      },
      *run(parameters) {
        yield { text, parameters, answers: false };
      },
    };
  }

  read<T>(work: () => Work<T>, what?: 'snapshot'): Promise<T> {
    if (what) return this.#pools.snapshot((ask) => this.#drive(work(), async (...step) => rowsOf(await ask(...step))));
    return this.#drive(work(), (text, values) => this.#pools.read(text, values));
  }

  write<T>(work: () => Work<T>, key?: Buffer): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const waiting = { work, key: key?.toString('latin1'), reject };
      this.#waiting.push({ ...waiting, resolve: resolve as (value: unknown) => void });
      if (this.#running) return;
      this.#running = true;
      setImmediate(() => void this.#run());
    });
  }

  close(): void {}

  async #run(): Promise<void> {
    const { tenant, kind } = this.#place;
    while (this.#waiting.length > 0)
      await turns.run(`${tenant} ${kind}`, () => this.#together(this.#waiting.splice(0, MOST_TOGETHER)));
    this.#running = false;
  }

  async #together(batch: Waiting[]): Promise<void> {
    try {
      const answers = await this.#pools.transaction(async (ask) => {
        await this.totals.lock(ask);
        const done: (() => void)[] = [];
        await inOrder(batch, async ({ work, resolve, reject }) => {
          try {
            const result = await this.#drive(work(), async (...step) => rowsOf(await ask(...step)));
            done.push(() => resolve(result));
          } catch (error) {
            if (!(error instanceof Refusal)) throw error;
            done.push(() => reject(error));
          }
        });
        this.totals.save(ask);
        return done;
      });
      this.totals.unlock('committed');
      for (const answer of answers) answer();
    } catch (error) {
      this.totals.unlock('failed');
      for (const { reject } of batch) reject(error);
    }
  }

  async #drive<T>(work: Work<T>, ask: (text: string, values: unknown[]) => Promise<Value[][]>): Promise<T> {
    const steps = work[Symbol.iterator]();
    let step = steps.next([]);
    while (!step.done) {
      const { text, parameters, answers } = step.value;
      const rows = ask(text, [this.#place.store, ...parameters]);
      step = steps.next(answers ? await rows : ignored(rows));
    }
    return step.value;
  }
}

/** Those of different keys do not wait for each other's answers; one without a key waits for all before it. */
async function inOrder(batch: Waiting[], work: (waiting: Waiting) => Promise<void>): Promise<void> {
  let last = new Map<string, Promise<void>>();
  for (const waiting of batch) {
    if (waiting.key === undefined) {
      await allDone(last.values());
      last = new Map();
      await work(waiting);
      continue;
    }
    const before = last.get(waiting.key);
    last.set(waiting.key, before ? before.then(() => work(waiting)) : work(waiting));
  }
  await allDone(last.values());
}

/** Nothing goes on behind the back of who waits for it. */
async function allDone(works: Iterable<Promise<void>>): Promise<void> {
  const failed = (await Promise.allSettled(works)).find(({ status }) => status === 'rejected');
  if (failed) throw (failed as PromiseRejectedResult).reason;
}

/** Whether it worked shows at the COMMIT. */
function ignored(rows: Promise<unknown>): Value[][] {
  rows.catch(() => undefined);
  return [];
}

/** As of the transaction that was the last one here; other nodes change them, too. */
export class ClusterTotals implements StoreTotals {
  readonly #pools: Pools;
  readonly #place: Place;
  readonly #itemBytes: number;
  bytes = 0;
  items = 0;
  #saved = { bytes: 0, items: 0 };
  /** Of the tenant's other stores of the kind: they have one quota. */
  #others = 0;
  #isMade = false;
  #isLocked = false;

  constructor(pools: Pools, place: Place, itemBytes: number) {
    this.#pools = pools;
    this.#place = place;
    this.#itemBytes = itemBytes;
  }

  get charged(): number {
    return this.#charge(this.bytes, this.items);
  }

  exceeds(quota: number, bytes: number): boolean {
    return bytes > 0 && this.charged + this.#others + bytes > quota;
  }

  add(bytes: number, items: number): void {
    this.bytes += bytes;
    this.items += items;
  }

  async refresh(): Promise<void> {
    const { tenant, kind } = this.#place;
    const rows = await this.#pools.read(TOTALS, [tenant, kind]);
    // What a transaction counts meanwhile is newer.
    if (!this.#isLocked) this.#load(rows);
  }

  /** The beginning of a transaction. */
  async lock(ask: Ask): Promise<void> {
    const { store, tenant, kind, name } = this.#place;
    this.#isLocked = true;
    if (!this.#isMade) ignored(ask(MAKE, [store, tenant, kind, name]));
    this.#isMade = this.#load(rowsOf(await ask(`${TOTALS} FOR UPDATE`, [tenant, kind])));
    // It was purged since, and is made again.
    if (!this.#isMade) await this.lock(ask);
  }

  /** The end of it. */
  save(ask: Ask): void {
    const { bytes, items } = this;
    if (bytes === this.#saved.bytes && items === this.#saved.items) return;
    ignored(ask(SAVE, [this.#place.store, bytes, items]));
  }

  unlock(how: 'committed' | 'failed'): void {
    this.#isLocked = false;
    if (how === 'failed') Object.assign(this, this.#saved);
    else this.#saved = { bytes: this.bytes, items: this.items };
  }

  /** Whether the store was among them. */
  #load(rows: Value[][]): boolean {
    this.#saved = { bytes: 0, items: 0 };
    this.#others = 0;
    let isThere = false;
    for (const [store, bytes, items] of rows as [string, number, number][]) {
      if (store === this.#place.store) {
        this.#saved = { bytes, items };
        isThere = true;
      } else this.#others += this.#charge(bytes, items);
    }
    this.bytes = this.#saved.bytes;
    this.items = this.#saved.items;
    return isThere;
  }

  #charge(bytes: number, items: number): number {
    return bytes + items * this.#itemBytes;
  }
}
