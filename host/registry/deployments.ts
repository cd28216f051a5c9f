/**
 * Deployments: who owns a slug, what it runs and until when. Every change is one transaction; the state table of
 * admin-api.md is enforced here and by the unique index on living slugs.
 */
import { randomBytes } from 'node:crypto';
import { and, asc, desc, eq, inArray, isNotNull, isNull, lte, ne, sql } from 'drizzle-orm';
import type { BindingSet, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { Database } from './index.ts';
import {
  type Deployment,
  deployments,
  domains,
  renewals,
  type StoredPaidRoute,
  secrets,
  slugClaims,
  usageDaily,
  versions,
} from './schema/deployments.ts';
import type { SealedSecret } from './secrets.ts';

export const DAY_MS = 86_400_000;

/** What an owner may set; the same for a deploy and an update. */
export interface DeploymentSettings {
  compatibilityDate: string;
  compatibilityFlags: string[];
  bindings: BindingSet;
  crons: string[];
  paidRoutes: StoredPaidRoute[];
  payTo: string;
  notify: string | null;
}

export interface CodeVersion {
  digest: string;
  bytes: number;
  handlers: string[];
}

export interface NewDeployment {
  tenant: TenantId;
  slug: string;
  owner: string;
  ownerDid: string;
  code: CodeVersion;
  settings: DeploymentSettings;
  secrets: SealedSecretText[];
  termMs: number;
  builtin?: boolean;
}

/** A sealed secret as JSON (base64), as it is kept with a payment that is being worked on. */
export interface SealedSecretText {
  name: string;
  keyId: string;
  sealed: string;
}

export interface DeploymentChange {
  code?: CodeVersion & { note: string };
  settings?: Partial<DeploymentSettings>;
  /** The whole set; what is not in it is removed. */
  secrets?: SealedSecret[];
  /** Single changes; `null` removes. */
  secretChanges?: { set: SealedSecret[]; remove: string[] };
}

export interface DeploymentSnapshot {
  row: Deployment;
  secrets: (typeof secrets.$inferSelect)[];
}

export function newTenantId(): TenantId {
  return `t${randomBytes(10).toString('hex')}`;
}

type Transaction = Parameters<Parameters<Database['transaction']>[0]>[0];

/** Slugs that are remembered at most; hosts with more of them in use read the registry again now and then. */
const MAX_REMEMBERED = 2_000;

export class Deployments {
  readonly #db: Database;
  /** Active deployments by slug, as of the last change of any. */
  readonly #remembered = new Map<string, Deployment>();
  #changes = 0;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The active deployment of a slug, if it was looked up since the last change: a flood of requests reads no disk. */
  remembered(slug: string): Deployment | undefined {
    return this.#remembered.get(slug);
  }

  /** As `bySlug`; active deployments are remembered. */
  async lookUp(slug: string): Promise<Deployment | undefined> {
    const known = this.#remembered.get(slug);
    if (known) return known;
    const changes = this.#changes;
    const row = await this.bySlug(slug);
    // A row that was read while somebody changed it may be the one before the change.
    if (row?.state === 'active' && changes === this.#changes) {
      if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
      this.#remembered.set(slug, row);
    }
    return row;
  }

  #transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#change(() => this.#db.transaction(work));
  }

  async #change<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      this.#changes += 1;
      this.#remembered.clear();
    }
  }

  async byTenant(tenant: TenantId): Promise<Deployment | undefined> {
    const [row] = await this.#db.select().from(deployments).where(eq(deployments.tenant, tenant));
    return row;
  }

  /** The living deployment of a slug, else its latest decommissioned one. */
  async bySlug(slug: string): Promise<Deployment | undefined> {
    const [row] = await this.#db
      .select()
      .from(deployments)
      .where(eq(deployments.slug, slug))
      .orderBy(asc(sql`${deployments.state} = 'decommissioned'`), desc(deployments.createdAt))
      .limit(1);
    return row;
  }

  /** All that edges must know: living slugs, and decommissioned ones that nobody else may take yet. */
  async routable(now: number): Promise<Deployment[]> {
    const rows = await this.#db
      .select()
      .from(deployments)
      .where(sql`${deployments.state} <> 'decommissioned' OR ${deployments.freeAt} > ${now}`)
      .orderBy(desc(sql`${deployments.state} = 'decommissioned'`), asc(deployments.createdAt));
    // A slug taken again after decommissioning has two rows; the living one comes last and wins.
    return [...new Map(rows.map((row) => [row.slug, row])).values()];
  }

  async all(): Promise<Deployment[]> {
    return await this.#db.select().from(deployments).orderBy(asc(deployments.createdAt));
  }

  /** Active deployments that run on a schedule. */
  async scheduled(): Promise<Pick<Deployment, 'tenant' | 'slug' | 'crons'>[]> {
    return await this.#db
      .select({ tenant: deployments.tenant, slug: deployments.slug, crons: deployments.crons })
      .from(deployments)
      .where(and(eq(deployments.state, 'active'), sql`${deployments.crons} <> '[]'`));
  }

  /** Active deployments that sell something, oldest first. */
  async selling(limit: number): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(eq(deployments.state, 'active'), sql`${deployments.paidRoutes} <> '[]'`))
      .orderBy(asc(deployments.createdAt))
      .limit(limit);
  }

  /** Slugs of the built-in tenants. */
  async builtin(): Promise<string[]> {
    const rows = await this.#db
      .select({ slug: deployments.slug })
      .from(deployments)
      .where(and(eq(deployments.state, 'active'), eq(deployments.builtin, true)))
      .orderBy(asc(deployments.createdAt));
    return rows.map((row) => row.slug);
  }

  async countByState(): Promise<Record<string, number>> {
    const rows = await this.#db
      .select({ state: deployments.state, count: sql<number>`count(*)` })
      .from(deployments)
      .groupBy(deployments.state);
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
  }

  async versions(tenant: TenantId) {
    return await this.#db.select().from(versions).where(eq(versions.tenant, tenant)).orderBy(desc(versions.version));
  }

  /** Whether a payer may deploy to the slug now; see the last rows of the state table. */
  async availability(slug: string, owner: string, now: number): Promise<'free' | 'taken' | 'cooling'> {
    const current = await this.bySlug(slug);
    if (!current) return 'free';
    if (current.state !== 'decommissioned') return 'taken';
    return current.owner === owner || (current.freeAt ?? 0) <= now ? 'free' : 'cooling';
  }

  /**
   * Holds a slug for one paid call, so that of two payers only one is charged.
   * @throws Problem slug_taken when another call holds it or it is not available to this owner
   */
  async claim(slug: string, claim: string, owner: string, now: number, holdMs: number): Promise<void> {
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

  async releaseClaim(slug: string, claim: string): Promise<void> {
    await this.#db.delete(slugClaims).where(and(eq(slugClaims.slug, slug), eq(slugClaims.claim, claim)));
  }

  /** Idempotent by tenant id. @throws Problem slug_taken if another deployment lives under the slug */
  async create(input: NewDeployment, now: number): Promise<Deployment> {
    return await this.#transaction(async (tx) => {
      const [existing] = await tx.select().from(deployments).where(eq(deployments.tenant, input.tenant));
      if (existing) return existing;
      const [living] = await tx
        .select()
        .from(deployments)
        .where(and(eq(deployments.slug, input.slug), ne(deployments.state, 'decommissioned')));
      if (living) throw new Problem('slug_taken', `The slug ${input.slug} is taken.`);
      const { code, settings } = input;
      const [row] = await tx
        .insert(deployments)
        .values({
          tenant: input.tenant,
          slug: input.slug,
          owner: input.owner,
          ownerDid: input.ownerDid,
          state: 'active',
          digest: code.digest,
          handlers: code.handlers,
          version: 1,
          revision: 1,
          ...settings,
          builtin: input.builtin ?? false,
          createdAt: now,
          updatedAt: now,
          expiresAt: now + input.termMs,
        })
        .returning();
      await tx.insert(versions).values({ tenant: input.tenant, version: 1, note: 'deploy', createdAt: now, ...code });
      if (input.secrets.length > 0) {
        await tx.insert(secrets).values(
          input.secrets.map(({ name, keyId, sealed }) => ({
            tenant: input.tenant,
            name,
            keyId,
            sealed: Buffer.from(sealed, 'base64'),
          })),
        );
      }
      await tx.delete(slugClaims).where(eq(slugClaims.slug, input.slug));
      if (!row) throw new Error('insert returned nothing');
      return row;
    });
  }

  /** @throws Problem gone when the deployment was decommissioned meanwhile */
  async update(tenant: TenantId, change: DeploymentChange, now: number): Promise<Deployment> {
    return await this.#transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      let { version } = row;
      if (change.code) {
        const [latest] = await tx
          .select({ version: sql<number>`max(${versions.version})` })
          .from(versions)
          .where(eq(versions.tenant, tenant));
        version = (latest?.version ?? 0) + 1;
        await tx.insert(versions).values({ tenant, version, createdAt: now, ...change.code });
      }
      if (change.secrets) await tx.delete(secrets).where(eq(secrets.tenant, tenant));
      const remove = change.secretChanges?.remove ?? [];
      if (remove.length > 0) {
        await tx.delete(secrets).where(and(eq(secrets.tenant, tenant), inArray(secrets.name, remove)));
      }
      for (const { name, keyId, sealed } of [...(change.secrets ?? []), ...(change.secretChanges?.set ?? [])]) {
        await tx
          .insert(secrets)
          .values({ tenant, name, keyId, sealed })
          .onConflictDoUpdate({ target: [secrets.tenant, secrets.name], set: { keyId, sealed } });
      }
      const [updated] = await tx
        .update(deployments)
        .set({
          ...change.settings,
          ...(change.code ? { digest: change.code.digest, handlers: change.code.handlers, version } : {}),
          revision: row.revision + 1,
          updatedAt: now,
        })
        .where(eq(deployments.tenant, tenant))
        .returning();
      if (!updated) throw new Error('update returned nothing');
      return updated;
    });
  }

  /** What `restore` needs to take back a change: the row, its secrets and its newest version. */
  async snapshot(tenant: TenantId): Promise<DeploymentSnapshot> {
    return await this.#db.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row) throw new Problem('not_found', 'There is no such deployment.');
      return { row, secrets: await tx.select().from(secrets).where(eq(secrets.tenant, tenant)) };
    });
  }

  /**
   * Takes back a change that did not start, unless somebody changed the deployment again meanwhile.
   * @param failed the deployment as the failed change made it
   */
  async restore(before: DeploymentSnapshot, failed: Deployment, now: number): Promise<void> {
    const { tenant, state, expiresAt, ...row } = before.row;
    await this.#transaction(async (tx) => {
      const restored = await tx
        .update(deployments)
        // State and expiry are not the change's: a renewal may have happened meanwhile.
        .set({ ...row, revision: failed.revision + 1, updatedAt: now })
        .where(and(eq(deployments.tenant, tenant), eq(deployments.revision, failed.revision)))
        .returning();
      if (restored.length === 0) return;
      await tx.delete(secrets).where(eq(secrets.tenant, tenant));
      if (before.secrets.length > 0) await tx.insert(secrets).values(before.secrets);
      if (failed.version !== row.version) {
        await tx.delete(versions).where(and(eq(versions.tenant, tenant), eq(versions.version, failed.version)));
      }
    });
  }

  async secretNames(tenant: TenantId): Promise<string[]> {
    const rows = await this.#db.select({ name: secrets.name }).from(secrets).where(eq(secrets.tenant, tenant));
    return rows.map((row) => row.name);
  }

  /** + one term from the later of now and the present expiry. Idempotent by payment id. */
  async renew(tenant: TenantId, paymentId: string, termMs: number, now: number): Promise<Deployment> {
    return await this.#transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      const [done] = await tx.select().from(renewals).where(eq(renewals.paymentId, paymentId));
      if (done) return row;
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

  /** Marks what ran out. @returns the deployments that expired by this call */
  async expireDue(now: number): Promise<Deployment[]> {
    return await this.#change(async () =>
      this.#db
        .update(deployments)
        .set({ state: 'expired' })
        .where(and(eq(deployments.state, 'active'), lte(deployments.expiresAt, now), eq(deployments.builtin, false)))
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
    return await this.#change(async () =>
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
    return await this.#transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row) throw new Problem('not_found', 'There is no such deployment.');
      if (row.state === 'decommissioned') return row;
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
    });
  }

  /** Expired deployments whose grace period is over. */
  async graceOver(now: number, graceMs: number): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(eq(deployments.state, 'expired'), lte(deployments.expiresAt, now - graceMs)));
  }

  async duePurges(now: number): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(isNotNull(deployments.purgeAt), lte(deployments.purgeAt, now), isNull(deployments.purgedAt)));
  }

  /** Forgets everything but the fact that the deployment existed. @returns digests that nothing else uses */
  async markPurged(tenant: TenantId, now: number): Promise<string[]> {
    return await this.#transaction(async (tx) => {
      const own = await tx.select({ digest: versions.digest }).from(versions).where(eq(versions.tenant, tenant));
      for (const table of [secrets, versions, domains, usageDaily] as const) {
        await tx.delete(table).where(eq(table.tenant, tenant));
      }
      await tx.update(deployments).set({ purgedAt: now }).where(eq(deployments.tenant, tenant));
      const digests = [...new Set(own.map((row) => row.digest))];
      if (digests.length === 0) return [];
      const used = await tx.select({ digest: versions.digest }).from(versions).where(inArray(versions.digest, digests));
      const kept = new Set(used.map((row) => row.digest));
      return digests.filter((digest) => !kept.has(digest));
    });
  }
}
