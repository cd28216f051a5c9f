/**
 * Until when a deployment runs, and what is left of it afterwards: active, expired, decommissioned, purged. Every change
 * is one transaction; the state table is that of admin-api.md.
 */
import type { TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { DeploymentMemory, Transaction } from './deployment-memory.ts';
import { and, eq, gt, isNotNull, isNull, lte, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import {
  type Deployment,
  deployments,
  domains,
  renewals,
  secrets,
  usageDaily,
  versions,
} from './schema/deployments.ts';
import { unusedCode } from './unused-code.ts';

export class DeploymentTerms {
  readonly #db: Database;
  readonly #memory: DeploymentMemory;

  constructor(db: Database, memory: DeploymentMemory) {
    this.#db = db;
    this.#memory = memory;
  }

  /**
   * + one term from the later of now and the present expiry. Idempotent by payment id.
   * @param expected the expiry that it is for; another one was renewed meanwhile
   * @throws Problem gone | conflict
   */
  async renew(
    tenant: TenantId,
    paymentId: string,
    termMs: number,
    now: number,
    expected?: number,
  ): Promise<Deployment> {
    return await this.#memory.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      const [done] = await tx.select().from(renewals).where(eq(renewals.paymentId, paymentId));
      if (row && done) return row;
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      if (expected !== undefined && row.expiresAt !== expected)
        throw new Problem('conflict', 'This deployment was renewed meanwhile.');
      const expiresAt = Math.max(now, row.expiresAt) + termMs;
      await tx.insert(renewals).values({ paymentId, tenant, expiresAt, createdAt: now });
      const [renewed] = await tx
        .update(deployments)
        .set({ expiresAt, state: 'active', warnedAt: null, updatedAt: now })
        .where(eq(deployments.tenant, tenant))
        .returning();
      if (!renewed) throw new Error('update returned nothing');
      return renewed;
    });
  }

  /** As a renewal for which nobody paid. @throws Problem `gone`, or `conflict` where it never expires */
  async extend(tenant: TenantId, termMs: number, now: number): Promise<Deployment> {
    return await this.#memory.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      if (row.builtin) throw new Problem('conflict', `${row.slug} comes with the host and never expires.`);
      const expiresAt = Math.max(now, row.expiresAt) + termMs;
      const [extended] = await tx
        .update(deployments)
        .set({ expiresAt, state: 'active', warnedAt: null, updatedAt: now })
        .where(eq(deployments.tenant, tenant))
        .returning();
      if (!extended) throw new Error('update returned nothing');
      return extended;
    });
  }

  /** Marks what ran out. @returns the deployments that expired by this call */
  async expireDue(now: number): Promise<Deployment[]> {
    return await this.#memory.change(async () =>
      this.#db
        .update(deployments)
        .set({ state: 'expired' })
        .where(and(eq(deployments.state, 'active'), lte(deployments.expiresAt, now), eq(deployments.builtin, false)))
        .returning(),
    );
  }

  /** Makes active again what should not have expired yet: the clock was ahead. @returns the deployments it is true of */
  async undoExpiry(now: number): Promise<Deployment[]> {
    return await this.#memory.change(async () =>
      this.#db
        .update(deployments)
        .set({ state: 'active' })
        .where(and(eq(deployments.state, 'expired'), gt(deployments.expiresAt, now)))
        .returning(),
    );
  }

  /** When the next active deployment expires. */
  async nextExpiry(): Promise<number | undefined> {
    const [row] = await this.#db
      .select({ at: sql<number | null>`min(${deployments.expiresAt})` })
      .from(deployments)
      .where(and(eq(deployments.state, 'active'), eq(deployments.builtin, false)));
    return row?.at ?? undefined;
  }

  /** Active deployments that expire before `until` and were not warned about yet; marks them as warned. */
  async takeExpiryWarnings(now: number, until: number): Promise<Deployment[]> {
    return await this.#memory.change(async () =>
      this.#db
        .update(deployments)
        .set({ warnedAt: now })
        .where(
          and(
            eq(deployments.state, 'active'),
            eq(deployments.builtin, false),
            lte(deployments.expiresAt, until),
            isNull(deployments.warnedAt),
          ),
        )
        .returning(),
    );
  }

  /** Idempotent. Domains become free at once; data stays until the grace period is over. */
  async decommission(tenant: TenantId, now: number, graceMs: number, cooldownMs: number): Promise<Deployment> {
    return await this.#memory.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row) throw new Problem('not_found', 'There is no such deployment.');
      if (row.state === 'decommissioned') return row;
      return await end(tx, tenant, now, graceMs, cooldownMs);
    });
  }

  /**
   * Decommissions what expired longer than the grace period ago; its data goes at once.
   * @returns undefined where it was renewed, or ended, meanwhile
   */
  async endGrace(tenant: TenantId, now: number, graceMs: number, cooldownMs: number): Promise<Deployment | undefined> {
    return await this.#memory.transaction(async (tx) => {
      const [row] = await tx
        .select()
        .from(deployments)
        .where(and(eq(deployments.tenant, tenant), isGraceOver(now, graceMs)));
      return row && (await end(tx, tenant, now, 0, cooldownMs));
    });
  }

  /** Expired deployments whose grace period is over. */
  async graceOver(now: number, graceMs: number): Promise<Deployment[]> {
    return await this.#db.select().from(deployments).where(isGraceOver(now, graceMs));
  }

  async duePurges(now: number): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(isNotNull(deployments.purgeAt), lte(deployments.purgeAt, now), isNull(deployments.purgedAt)));
  }

  /** Forgets everything but the fact that the deployment existed. @returns digests that nothing else uses */
  async markPurged(tenant: TenantId, now: number): Promise<string[]> {
    return await this.#memory.transaction(async (tx) => {
      const own = await tx.select({ digest: versions.digest }).from(versions).where(eq(versions.tenant, tenant));
      for (const table of [secrets, versions, domains, usageDaily] as const) {
        await tx.delete(table).where(eq(table.tenant, tenant));
      }
      await tx.update(deployments).set({ purgedAt: now }).where(eq(deployments.tenant, tenant));
      return await unusedCode(
        tx,
        own.map((row) => row.digest),
      );
    });
  }
}

const isGraceOver = (now: number, graceMs: number) =>
  and(eq(deployments.state, 'expired'), lte(deployments.expiresAt, now - graceMs));

async function end(
  tx: Transaction,
  tenant: TenantId,
  now: number,
  graceMs: number,
  cooldownMs: number,
): Promise<Deployment> {
  await tx.delete(domains).where(eq(domains.tenant, tenant));
  const [gone] = await tx
    .update(deployments)
    .set({
      state: 'decommissioned',
      decommissionedAt: now,
      purgeAt: now + graceMs,
      freeAt: now + cooldownMs,
      updatedAt: now,
    })
    .where(eq(deployments.tenant, tenant))
    .returning();
  if (!gone) throw new Error('update returned nothing');
  return gone;
}
