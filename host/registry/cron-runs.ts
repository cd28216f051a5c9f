/**
 * Run history of tenants' crons. A trigger moves on when its run has ended, so a run that the host's own end cut off
 * is made up for after the start: at least once, as on Cloudflare.
 */
import type { TenantId } from '../shared/contracts.ts';
import { and, desc, eq, lte, notInArray } from './drizzle.ts';
import type { Database } from './index.ts';
import { type CronOutcome, type CronRun, cronRuns, cronTriggers } from './schema/cron.ts';

/** Runs kept per tenant and expression. */
const KEPT_RUNS = 100;
const MAX_ERROR_CHARACTERS = 1_000;

export class CronRuns {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Call once at start: runs that were going on when the host ended did not finish. */
  async interruptAll(now: number): Promise<void> {
    await this.#db
      .update(cronRuns)
      .set({ outcome: 'interrupted', finishedAt: now })
      .where(eq(cronRuns.outcome, 'running'));
  }

  /**
   * Makes `crons` the tenant's expressions; new ones count from `now`.
   * Answers for each the occurrence that ran last, or the time from which it counts, ms.
   */
  async setTriggers(tenant: TenantId, crons: string[], now: number): Promise<Map<string, number>> {
    return await this.#db.transaction(async (tx) => {
      const ofTenant = eq(cronTriggers.tenant, tenant);
      await tx
        .delete(cronTriggers)
        .where(crons.length === 0 ? ofTenant : and(ofTenant, notInArray(cronTriggers.cron, crons)));
      if (crons.length > 0) {
        await tx
          .insert(cronTriggers)
          .values(crons.map((cron) => ({ tenant, cron, since: now })))
          .onConflictDoNothing();
      }
      const rows = await tx.select().from(cronTriggers).where(ofTenant);
      return new Map(rows.map(({ cron, since }) => [cron, since]));
    });
  }

  /** Answers the id of the run. */
  async begin(tenant: TenantId, cron: string, scheduledAt: number, now: number): Promise<number> {
    const [row] = await this.#db
      .insert(cronRuns)
      .values({ tenant, cron, scheduledAt, startedAt: now, outcome: 'running' })
      .returning({ id: cronRuns.id });
    if (!row) throw new Error('insert returned nothing');
    return row.id;
  }

  async finish(
    run: { id: number; tenant: TenantId; cron: string; scheduledAt: number },
    result: { outcome: CronOutcome; error: string | undefined },
    now: number,
  ): Promise<void> {
    await this.#db.transaction(async (tx) => {
      await tx
        .update(cronRuns)
        .set({ outcome: result.outcome, error: result.error?.slice(0, MAX_ERROR_CHARACTERS) ?? null, finishedAt: now })
        .where(eq(cronRuns.id, run.id));
      // Whatever way the host ended: what it cut off is made up for.
      if (result.outcome !== 'interrupted') {
        await tx
          .update(cronTriggers)
          .set({ since: run.scheduledAt })
          .where(and(eq(cronTriggers.tenant, run.tenant), eq(cronTriggers.cron, run.cron)));
      }
      const ofTrigger = and(eq(cronRuns.tenant, run.tenant), eq(cronRuns.cron, run.cron));
      const [oldest] = await tx
        .select({ id: cronRuns.id })
        .from(cronRuns)
        .where(ofTrigger)
        .orderBy(desc(cronRuns.id))
        .limit(1)
        .offset(KEPT_RUNS);
      if (oldest) await tx.delete(cronRuns).where(and(ofTrigger, lte(cronRuns.id, oldest.id)));
    });
  }

  /** Newest first. */
  async latest(tenant: TenantId, limit = KEPT_RUNS): Promise<CronRun[]> {
    return await this.#db
      .select()
      .from(cronRuns)
      .where(eq(cronRuns.tenant, tenant))
      .orderBy(desc(cronRuns.id))
      .limit(limit);
  }

  /** Removes what is known of a purged tenant. */
  async forget(tenant: TenantId): Promise<void> {
    await this.#db.delete(cronTriggers).where(eq(cronTriggers.tenant, tenant));
    await this.#db.delete(cronRuns).where(eq(cronRuns.tenant, tenant));
  }
}
