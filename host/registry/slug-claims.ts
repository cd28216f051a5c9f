/** Who may deploy to a slug, and who is doing so just now. */
import { Problem } from '../shared/problem.ts';
import { and, eq, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { type Deployment, slugClaims } from './schema/deployments.ts';
import { savedTrustedTime } from './trusted-clock.ts';

export class SlugClaims {
  readonly #db: Database;
  readonly #current: (slug: string) => Promise<Deployment | undefined>;

  /** @param current the living deployment of a slug, else its latest decommissioned one */
  constructor(db: Database, current: (slug: string) => Promise<Deployment | undefined>) {
    this.#db = db;
    this.#current = current;
  }

  /** Whether a payer may deploy to the slug now; see the last rows of the state table. */
  async availability(slug: string, owner: string, now: number): Promise<'free' | 'taken' | 'cooling'> {
    const current = await this.#current(slug);
    if (!current) return 'free';
    if (current.state !== 'decommissioned') return 'taken';
    if (current.owner === owner) return 'free';
    // What another takes does not come back when a clock that was ahead is set right.
    const trustedNow = Math.min(now, (await savedTrustedTime(this.#db))?.at ?? now);
    return (current.freeAt ?? 0) <= trustedNow ? 'free' : 'cooling';
  }

  /**
   * Holds a slug for one paid call, so that of two payers only one is charged.
   * @throws Problem slug_taken when another call holds it or it is not available to this owner
   */
  async take(slug: string, claim: string, owner: string, now: number, holdMs: number): Promise<void> {
    const state = await this.availability(slug, owner, now);
    if (state === 'taken')
      throw new Problem('slug_taken', `The slug ${slug} is taken; choose another. Nothing was charged.`);
    if (state === 'cooling') {
      throw new Problem(
        'slug_taken',
        `The slug ${slug} was given up lately and is kept for its former owner. Nothing was charged.`,
      );
    }
    const taken = await this.#db
      .insert(slugClaims)
      .values({ slug, claim, expiresAt: now + holdMs })
      .onConflictDoUpdate({
        target: slugClaims.slug,
        set: { claim, expiresAt: now + holdMs },
        setWhere: sql`${slugClaims.claim} = ${claim} OR ${slugClaims.expiresAt} <= ${now}`,
      })
      .returning();
    if (taken.length === 0) {
      throw new Problem(
        'slug_taken',
        `Somebody else is deploying to ${slug} right now; choose another slug. Nothing was charged.`,
      );
    }
  }

  async release(slug: string, claim: string): Promise<void> {
    await this.#db.delete(slugClaims).where(and(eq(slugClaims.slug, slug), eq(slugClaims.claim, claim)));
  }
}
