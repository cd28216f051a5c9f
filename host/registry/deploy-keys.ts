/** Deploy keys of owners: made, found, listed, revoked. */
import { Problem } from '../shared/problem.ts';
import { and, desc, eq, isNull, lte, or, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { type DeployKey, deployKeys } from './schema/deploy-keys.ts';

/** Keys of one owner at a time. */
export const MOST_KEYS = 50;
/** When a key was used last is written no oftener. */
const NOTED_MS = 60_000;

export class DeployKeys {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Forgets the owner's keys that have ended. @throws Problem conflict when the owner has too many */
  async add(key: Omit<DeployKey, 'usedAt'>): Promise<void> {
    await this.#db.transaction(async (tx) => {
      const { owner, createdAt } = key;
      await tx.delete(deployKeys).where(and(eq(deployKeys.owner, owner), lte(deployKeys.expiresAt, createdAt)));
      const [present] = await tx
        .select({ count: sql<number>`count(*)` })
        .from(deployKeys)
        .where(eq(deployKeys.owner, owner));
      if ((present?.count ?? 0) >= MOST_KEYS)
        throw new Problem('conflict', `A wallet has at most ${MOST_KEYS} deploy keys; revoke one first.`);
      await tx.insert(deployKeys).values(key);
    });
  }

  async byId(id: string): Promise<DeployKey | undefined> {
    const [row] = await this.#db.select().from(deployKeys).where(eq(deployKeys.id, id));
    return row;
  }

  /** Newest first, with those that have ended. */
  async ofOwner(owner: string): Promise<DeployKey[]> {
    return await this.#db
      .select()
      .from(deployKeys)
      .where(eq(deployKeys.owner, owner))
      .orderBy(desc(deployKeys.createdAt), desc(deployKeys.id));
  }

  /** @returns whether the owner had such a key */
  async remove(id: string, owner: string): Promise<boolean> {
    const gone = await this.#db
      .delete(deployKeys)
      .where(and(eq(deployKeys.id, id), eq(deployKeys.owner, owner)))
      .returning();
    return gone.length > 0;
  }

  async noteUse(id: string, now: number): Promise<void> {
    const stale = or(isNull(deployKeys.usedAt), lte(deployKeys.usedAt, now - NOTED_MS));
    await this.#db
      .update(deployKeys)
      .set({ usedAt: now })
      .where(and(eq(deployKeys.id, id), stale));
  }
}
