/** Wallets and address ranges that the host does not serve. All are in memory: they are asked for on the way of calls. */
import { Mutex } from '../shared/mutex.ts';
import { Problem } from '../shared/problem.ts';
import { asc, eq, sql } from './drizzle.ts';
import type { Database, Registry } from './index.ts';
import { type Block, blocks } from './schema/operator.ts';

export const MOST_BLOCKS = 10_000;

export class Blocks {
  readonly #db: Database;
  readonly #kinds = new Map<string, Block['kind']>();
  /** What is in memory changes in the order of the database. */
  readonly #turns = new Mutex();

  private constructor(db: Database) {
    this.#db = db;
  }

  static async open({ db, changes }: Pick<Registry, 'db' | 'changes'>): Promise<Blocks> {
    const opened = new Blocks(db);
    changes.on('blocks', () => opened.reload());
    await opened.reload();
    return opened;
  }

  /** As the registry has them by now. */
  reload(): Promise<void> {
    return this.#turns.run(async () => {
      const rows = await this.#db.select().from(blocks);
      this.#kinds.clear();
      for (const { subject, kind } of rows) this.#kinds.set(subject, kind);
    });
  }

  /** @param wallet lowercase 0x address */
  hasWallet(wallet: string): boolean {
    return this.#kinds.size > 0 && this.#kinds.has(wallet);
  }

  ranges(): string[] {
    return [...this.#kinds].flatMap(([subject, kind]) => (kind === 'range' ? [subject] : []));
  }

  async list(): Promise<Block[]> {
    return await this.#db.select().from(blocks).orderBy(asc(blocks.createdAt), asc(blocks.subject));
  }

  /** Blocking again what is blocked replaces the reason. @throws Problem `conflict` where there are too many */
  add(block: Omit<Block, 'createdAt'>, now: number): Promise<Block> {
    return this.#turns.run(() => this.#add(block, now));
  }

  /** @returns whether it was blocked */
  remove(subject: string): Promise<boolean> {
    return this.#turns.run(async () => {
      const gone = await this.#db.delete(blocks).where(eq(blocks.subject, subject)).returning();
      this.#kinds.delete(subject);
      return gone.length > 0;
    });
  }

  async #add({ subject, kind, reason }: Omit<Block, 'createdAt'>, now: number): Promise<Block> {
    const block = await this.#db.transaction(async (tx) => {
      const [{ count } = { count: 0 }] = await tx.select({ count: sql<number>`count(*)` }).from(blocks);
      if (count >= MOST_BLOCKS && !this.#kinds.has(subject)) {
        throw new Problem('conflict', `There are ${MOST_BLOCKS} blocks; remove some, or block wider ranges.`);
      }
      const [row] = await tx
        .insert(blocks)
        .values({ subject, kind, reason, createdAt: now })
        .onConflictDoUpdate({ target: blocks.subject, set: { reason } })
        .returning();
      if (!row) throw new Error('insert returned nothing');
      return row;
    });
    this.#kinds.set(subject, kind);
    return block;
  }
}
