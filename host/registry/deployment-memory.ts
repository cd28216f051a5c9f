/** Active deployments by slug that nobody suspended, as of the last change of any: a flood of requests reads no disk. */
import type { Database } from './index.ts';
import type { Deployment } from './schema/deployments.ts';

export type Transaction = Parameters<Parameters<Database['transaction']>[0]>[0];

/** Slugs that are remembered at most; hosts with more of them in use read the registry again now and then. */
const MAX_REMEMBERED = 2_000;

export class DeploymentMemory {
  readonly #db: Database;
  readonly #remembered = new Map<string, Deployment>();
  #changes = 0;

  constructor(db: Database) {
    this.#db = db;
  }

  get(slug: string): Deployment | undefined {
    return this.#remembered.get(slug);
  }

  /** What is remembered, or what `read` answers; deployments that serve are remembered. */
  async lookUp(slug: string, read: () => Promise<Deployment | undefined>): Promise<Deployment | undefined> {
    const known = this.#remembered.get(slug);
    if (known) return known;
    const changes = this.#changes;
    const row = await read();
    // A row that was read while somebody changed it may be the one before the change.
    if (row?.state === 'active' && !row.suspendedAt && changes === this.#changes) {
      if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
      this.#remembered.set(slug, row);
    }
    return row;
  }

  /** Everything that changes a deployment goes through here, or through `change`. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.change(() => this.#db.transaction(work));
  }

  async change<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      this.forget();
    }
  }

  /** Something was changed, here or at another node. */
  forget(): void {
    this.#changes += 1;
    this.#remembered.clear();
  }
}
