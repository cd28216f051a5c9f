/**
 * Deployments that their owner lets renew, by a mandate or from credit, and how far the renewal of each has come. A row
 * that its owner has ended stays while it may hold a charge of credit that nothing was done for (`until` is 0 then).
 */
import { and, asc, eq, gt, lte, ne, or, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { type AutoRenewal, autoRenewals, type Deployment, deployments } from './schema/deployments.ts';

export interface DueRenewal {
  deployment: Deployment;
  renewal: AutoRenewal;
}

/** Renewals of one run. */
const MOST_DUE = 100;

/** Begins the key of a charge of credit, which is noted as its payment. */
export const CREDIT_KEY = 'credit:';
const isCharging = sql`coalesce(${autoRenewals.payment}, '') LIKE ${`${CREDIT_KEY}%`}`;
const isIdle = sql`coalesce(${autoRenewals.payment}, '') NOT LIKE ${`${CREDIT_KEY}%`}`;

export class AutoRenewals {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async of(tenant: string): Promise<AutoRenewal | undefined> {
    const [row] = await this.#db
      .select()
      .from(autoRenewals)
      .where(and(eq(autoRenewals.tenant, tenant), gt(autoRenewals.until, 0)));
    return row;
  }

  /**
   * In place of the one before; the same mandate again changes nothing.
   * @returns false where a charge of credit is under way, which comes first
   */
  async set(
    { tenant, mandate, until }: Pick<AutoRenewal, 'tenant' | 'mandate' | 'until'>,
    now: number,
  ): Promise<boolean> {
    const fresh = { mandate, until, payment: null, paymentFor: null, failures: 0, nextAt: 0, lastFailure: null };
    await this.#db
      .insert(autoRenewals)
      .values({ tenant, ...fresh, createdAt: now })
      .onConflictDoUpdate({
        target: autoRenewals.tenant,
        set: fresh,
        setWhere: sql`${ne(autoRenewals.mandate, mandate)} AND ${isIdle}`,
      });
    return (await this.of(tenant))?.mandate === mandate;
  }

  /** From now on nothing is signed. @returns whether there was one */
  async end(tenant: string, mandate?: string): Promise<boolean> {
    const whose = eq(autoRenewals.tenant, tenant);
    const which = mandate === undefined ? whose : and(whose, eq(autoRenewals.mandate, mandate));
    const ended = await this.#db
      .update(autoRenewals)
      .set({ until: 0, nextAt: 0 })
      .where(and(which, gt(autoRenewals.until, 0)))
      .returning();
    await this.#forget(tenant);
    return ended.length > 0;
  }

  /** An ended row that holds no charge. */
  async #forget(tenant: string): Promise<void> {
    await this.#db.delete(autoRenewals).where(and(eq(autoRenewals.tenant, tenant), eq(autoRenewals.until, 0), isIdle));
  }

  /** @param expiring before this they are renewed, business time @param now real time, ms */
  async due(expiring: number, now: number): Promise<DueRenewal[]> {
    return await this.#db
      .select({ deployment: deployments, renewal: autoRenewals })
      .from(autoRenewals)
      .innerJoin(deployments, eq(deployments.tenant, autoRenewals.tenant))
      .where(
        and(
          // A charge of credit comes to its end whatever has become of the deployment meanwhile.
          or(isCharging, and(ne(deployments.state, 'decommissioned'), lte(deployments.expiresAt, expiring))),
          lte(autoRenewals.nextAt, now),
        ),
      )
      .orderBy(asc(deployments.expiresAt))
      .limit(MOST_DUE);
  }

  /** Notes a signed payment before it is presented. @returns false where the owner has ended it meanwhile */
  async signed({ tenant, mandate }: AutoRenewal, payment: string, paymentFor: number): Promise<boolean> {
    const noted = await this.#db
      .update(autoRenewals)
      .set({ payment, paymentFor })
      .where(and(eq(autoRenewals.tenant, tenant), eq(autoRenewals.mandate, mandate), gt(autoRenewals.until, 0)))
      .returning();
    return noted.length > 0;
  }

  /** The payment came to its end: it is presented no more. @param why undefined: nothing failed @param nextAt real time, ms */
  async over({ tenant, payment }: AutoRenewal, why: string | undefined, nextAt: number): Promise<void> {
    const done = { payment: null, paymentFor: null };
    await this.#db
      .update(autoRenewals)
      .set(
        why === undefined
          ? { ...done, failures: 0, nextAt, lastFailure: null }
          : { ...done, failures: sql`${autoRenewals.failures} + 1`, nextAt, lastFailure: why },
      )
      .where(
        payment === null
          ? eq(autoRenewals.tenant, tenant)
          : and(eq(autoRenewals.tenant, tenant), eq(autoRenewals.payment, payment)),
      );
    await this.#forget(tenant);
  }
}
