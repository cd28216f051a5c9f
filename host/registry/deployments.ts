/**
 * Deployments: who owns a slug and what it runs. Every change is one transaction; the state table of admin-api.md is
 * enforced here, in `terms`, and by the unique index on living slugs.
 */
import { randomBytes } from 'node:crypto';
import type { AssetSettings, BindingSet, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { AutoRenewals } from './auto-renewals.ts';
import { type Changes, NO_CHANGES } from './changes.ts';
import { DeploymentMemory } from './deployment-memory.ts';
import { DeploymentTerms } from './deployment-terms.ts';
import { type CodeVersion, DeploymentVersions, newPreview, nextVersion } from './deployment-versions.ts';
import { and, asc, desc, eq, inArray, isNotNull, isNull, ne, or, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { OperatorDecisions } from './operator-decisions.ts';
import {
  type Deployment,
  type DeploymentState,
  deployments,
  type StoredPaidRoute,
  secrets,
  slugClaims,
  versions,
} from './schema/deployments.ts';
import type { SealedSecret } from './secrets.ts';
import { nameSharedStores } from './shared-stores.ts';
import { SlugClaims } from './slug-claims.ts';

export const DAY_MS = 86_400_000;
/** What a route is made of. To read all columns of ten thousand deployments takes a start three times as long. */
const ROUTED = (({ tenant, slug, state, builtin, paidRoutes, limits, assets, suspendedAt, suspendedReason }) => ({
  tenant,
  slug,
  state,
  builtin,
  paidRoutes,
  limits,
  assets,
  suspendedAt,
  suspendedReason,
}))(deployments);
export type Routed = Pick<Deployment, keyof typeof ROUTED>;
const SERVES = and(eq(deployments.state, 'active'), isNull(deployments.suspendedAt));
const OLDEST_FIRST = [desc(sql`${deployments.state} = 'decommissioned'`), asc(deployments.createdAt)];
/** Bindings that are kept in Durable Objects. */
const OBJECT_BINDINGS = ['durableObjects', 'queues', 'workflows'] as const;
/** Deployments of one wallet that are listed. */
const MOST_LISTED = 1_000;

/** What an owner may set; the same for a deploy and an update. */
export interface DeploymentSettings {
  compatibilityDate: string;
  compatibilityFlags: string[];
  bindings: BindingSet;
  vars: Record<string, unknown>;
  /** Static files. */
  assets: AssetSettings | null;
  crons: string[];
  paidRoutes: StoredPaidRoute[];
  payTo: string;
  notify: string | null;
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
  code?: CodeVersion & { note: string; madeBy?: string };
  settings?: Partial<DeploymentSettings>;
  /** The whole set; what is not in it is removed. */
  secrets?: SealedSecret[];
  /** Single changes; `null` removes. */
  secretChanges?: { set: SealedSecret[]; remove: string[] };
}

export interface DeploymentSearch {
  text: string;
  state: DeploymentState | 'suspended' | undefined;
  sort: 'slug' | 'owner' | 'createdAt' | 'expiresAt';
  descending: boolean;
  offset: number;
  limit: number;
}

export interface DeploymentSnapshot {
  row: Deployment;
  secrets: (typeof secrets.$inferSelect)[];
}

function isRouted(now: number) {
  return sql`${deployments.state} <> 'decommissioned' OR ${deployments.freeAt} > ${now}`;
}

/** A slug taken again after decommissioning has two rows; the living one comes last and wins. */
function newest<Row extends { slug: string }>(rows: Row[]): Row[] {
  return [...new Map(rows.map((row) => [row.slug, row])).values()];
}

export function newTenantId(): TenantId {
  return `t${randomBytes(10).toString('hex')}`;
}

/** What a change may set. All else has its own ways: an end, a renewal or a warning may have come meanwhile. */
function changeable(row: Deployment) {
  const { digest, handlers, version, compatibilityDate, compatibilityFlags } = row;
  const { bindings, vars, assets, crons, paidRoutes, payTo, notify } = row;
  return {
    digest,
    handlers,
    version,
    compatibilityDate,
    compatibilityFlags,
    bindings,
    vars,
    assets,
    crons,
    paidRoutes,
    payTo,
    notify,
  };
}

export class Deployments {
  readonly #db: Database;
  readonly #memory: DeploymentMemory;
  readonly versions: DeploymentVersions;
  readonly claims: SlugClaims;
  readonly terms: DeploymentTerms;
  readonly autoRenewals: AutoRenewals;
  readonly decisions: OperatorDecisions;

  /** @param changes of other nodes. Default: none are made */
  constructor(db: Database, changes: Changes = NO_CHANGES) {
    this.#db = db;
    this.#memory = new DeploymentMemory(db);
    changes.on('deployments', () => this.#memory.forget());
    this.versions = new DeploymentVersions(db);
    this.claims = new SlugClaims(db, (slug) => this.bySlug(slug));
    this.terms = new DeploymentTerms(db, this.#memory);
    this.autoRenewals = new AutoRenewals(db);
    this.decisions = new OperatorDecisions(this.#memory);
  }

  /** The deployment of a slug that serves, if it was looked up since the last change: reads no disk. */
  remembered(slug: string): Deployment | undefined {
    return this.#memory.get(slug);
  }

  /** As `bySlug`; deployments that serve are remembered. */
  lookUp(slug: string): Promise<Deployment | undefined> {
    return this.#memory.lookUp(slug, () => this.bySlug(slug));
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
  async routed(now: number): Promise<Routed[]> {
    return newest(
      await this.#db
        .select(ROUTED)
        .from(deployments)
        .where(isRouted(now))
        .orderBy(...OLDEST_FIRST),
    );
  }

  /** The same with all that is known of them. */
  async routable(now: number): Promise<Deployment[]> {
    return newest(
      await this.#db
        .select()
        .from(deployments)
        .where(isRouted(now))
        .orderBy(...OLDEST_FIRST),
    );
  }

  /** The living ones of a wallet, newest first. */
  async ofOwner(owner: string): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(eq(deployments.owner, owner), ne(deployments.state, 'decommissioned')))
      .orderBy(desc(deployments.createdAt))
      .limit(MOST_LISTED);
  }

  async all(): Promise<Deployment[]> {
    return await this.#db.select().from(deployments).orderBy(asc(deployments.createdAt));
  }

  /** One page of all deployments. @param text in the slug, the owner's address, the tenant's id or the note */
  async find({ text, state, sort, descending, offset, limit }: DeploymentSearch) {
    const { slug, owner, tenant, note } = deployments;
    const column = { slug, owner, createdAt: deployments.createdAt, expiresAt: deployments.expiresAt }[sort];
    const pattern = `%${text.toLowerCase().replace(/[\\%_]/g, '\\$&')}%`;
    const holds = (field: typeof slug | typeof owner | typeof tenant | typeof note) =>
      sql`lower(${field}) LIKE ${pattern} ESCAPE '\\'`;
    const where = and(
      text === '' ? undefined : or(holds(slug), holds(owner), holds(tenant), holds(note)),
      state === undefined
        ? undefined
        : state === 'suspended'
          ? and(isNotNull(deployments.suspendedAt), ne(deployments.state, 'decommissioned'))
          : eq(deployments.state, state),
    );
    const rows = await this.#db
      .select()
      .from(deployments)
      .where(where)
      .orderBy(descending ? desc(column) : asc(column), asc(tenant))
      .limit(limit)
      .offset(offset);
    const [counted] = await this.#db.select({ total: sql<number>`count(*)` }).from(deployments).where(where);
    return { rows, total: counted?.total ?? 0 };
  }

  /** Slugs by tenant. */
  async slugsOf(tenants: readonly TenantId[]): Promise<Map<TenantId, string>> {
    const { tenant, slug } = deployments;
    const rows = await this.#db
      .select({ tenant, slug })
      .from(deployments)
      .where(inArray(tenant, [...tenants]));
    return new Map(rows.map((row) => [row.tenant, row.slug]));
  }

  /** Deployments that run on a schedule: active, and not suspended. */
  async scheduled(): Promise<Pick<Deployment, 'tenant' | 'slug' | 'owner' | 'builtin' | 'crons'>[]> {
    const { tenant, slug, owner, builtin, crons } = deployments;
    return await this.#db
      .select({ tenant, slug, owner, builtin, crons })
      .from(deployments)
      .where(and(SERVES, sql`${deployments.crons} <> '[]'`));
  }

  /** Deployments that have Durable Objects, expired ones too; not those that are suspended. */
  async withObjects(): Promise<Pick<Deployment, 'tenant' | 'slug'>[]> {
    const { tenant, slug, bindings, state } = deployments;
    const named = (kind: string) => sql`${bindings} LIKE ${`%"${kind}":{%`}`;
    const rows = await this.#db
      .select({ tenant, slug, bindings })
      .from(deployments)
      .where(
        and(
          ne(state, 'decommissioned'),
          isNull(deployments.suspendedAt),
          or(...OBJECT_BINDINGS.map((kind) => named(kind))),
        ),
      );
    // What is an object deeper within is none of these.
    return rows.filter((row) => OBJECT_BINDINGS.some((kind) => typeof row.bindings[kind] === 'object'));
  }

  /** Deployments that sell something just now, oldest first. */
  async selling(limit: number): Promise<Deployment[]> {
    return await this.#db
      .select()
      .from(deployments)
      .where(and(SERVES, sql`${deployments.paidRoutes} <> '[]'`))
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

  /** Idempotent by tenant id. @throws Problem slug_taken if another deployment lives under the slug */
  async create(input: NewDeployment, now: number): Promise<Deployment> {
    return await this.#memory.transaction(async (tx) => {
      const [existing] = await tx.select().from(deployments).where(eq(deployments.tenant, input.tenant));
      if (existing) return existing;
      const [living] = await tx
        .select()
        .from(deployments)
        .where(and(eq(deployments.slug, input.slug), ne(deployments.state, 'decommissioned')));
      if (living) throw new Problem('slug_taken', `The slug ${input.slug} is taken; choose another one.`);
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
      await tx.insert(versions).values({
        tenant: input.tenant,
        version: 1,
        note: 'deploy',
        madeBy: input.owner,
        preview: newPreview(),
        createdAt: now,
        ...code,
        assets: settings.assets,
      });
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
      await nameSharedStores(tx, row);
      return row;
    });
  }

  /** @throws Problem gone when the deployment was decommissioned meanwhile */
  async update(tenant: TenantId, change: DeploymentChange, now: number): Promise<Deployment> {
    return await this.#memory.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      let { version } = row;
      if (change.code) {
        version = await nextVersion(tx, tenant);
        const assets = change.settings?.assets === undefined ? row.assets : change.settings.assets;
        const preview = newPreview();
        await tx.insert(versions).values({ tenant, version, createdAt: now, preview, ...change.code, assets });
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
      await nameSharedStores(tx, updated);
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
    const { tenant, version } = before.row;
    await this.#memory.transaction(async (tx) => {
      const restored = await tx
        .update(deployments)
        .set({ ...changeable(before.row), revision: failed.revision + 1, updatedAt: now })
        .where(
          and(
            eq(deployments.tenant, tenant),
            eq(deployments.revision, failed.revision),
            // Who deleted it meanwhile wants its secrets gone.
            ne(deployments.state, 'decommissioned'),
          ),
        )
        .returning();
      if (restored.length === 0) return;
      await tx.delete(secrets).where(eq(secrets.tenant, tenant));
      if (before.secrets.length > 0) await tx.insert(secrets).values(before.secrets);
      if (failed.version !== version) {
        await tx.delete(versions).where(and(eq(versions.tenant, tenant), eq(versions.version, failed.version)));
      }
    });
  }

  async secretNames(tenant: TenantId): Promise<string[]> {
    const rows = await this.#db.select({ name: secrets.name }).from(secrets).where(eq(secrets.tenant, tenant));
    return rows.map((row) => row.name);
  }
}
