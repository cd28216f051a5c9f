/** The versions of deployments: what each ran, the previews of them, and which code none of them needs. */
import { randomBytes } from 'node:crypto';
import type { AssetSettings, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { Transaction } from './deployment-memory.ts';
import { and, desc, eq, inArray, isNotNull, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { deployments, type Version, versions } from './schema/deployments.ts';
import { unusedCode } from './unused-code.ts';

export interface CodeVersion {
  digest: string;
  bytes: number;
  handlers: string[];
}

/** The id in the address of a version. */
export function newPreview(): string {
  return randomBytes(6).toString('hex');
}

export async function nextVersion(tx: Transaction, tenant: TenantId): Promise<number> {
  const [latest] = await tx
    .select({ version: sql<number>`max(${versions.version})` })
    .from(versions)
    .where(eq(versions.tenant, tenant));
  return (latest?.version ?? 0) + 1;
}

export class DeploymentVersions {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Of a deployment, newest first. */
  async of(tenant: TenantId): Promise<Version[]> {
    return await this.#db.select().from(versions).where(eq(versions.tenant, tenant)).orderBy(desc(versions.version));
  }

  /** Keeps a version that is not live. @throws Problem gone when the deployment was decommissioned meanwhile */
  async add(
    tenant: TenantId,
    code: CodeVersion & { madeBy: string; assets: AssetSettings | null },
    now: number,
  ): Promise<Version> {
    return await this.#db.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || row.state === 'decommissioned') throw new Problem('gone', 'This deployment was decommissioned.');
      const version = await nextVersion(tx, tenant);
      const [added] = await tx
        .insert(versions)
        .values({ tenant, version, createdAt: now, preview: newPreview(), note: 'preview', ...code })
        .returning();
      if (!added) throw new Error('insert returned nothing');
      return added;
    });
  }

  /** The version with that id in its address. */
  async preview(tenant: TenantId, id: string): Promise<Version | undefined> {
    const [row] = await this.#db
      .select()
      .from(versions)
      .where(and(eq(versions.tenant, tenant), eq(versions.preview, id)));
    return row;
  }

  /** Ids in the addresses of versions: of one tenant, or of all. */
  async previews(tenant?: TenantId): Promise<Map<TenantId, string[]>> {
    const rows = await this.#db
      .select({ tenant: versions.tenant, preview: versions.preview })
      .from(versions)
      .where(and(isNotNull(versions.preview), tenant === undefined ? undefined : eq(versions.tenant, tenant)));
    const found = new Map<TenantId, string[]>();
    for (const { tenant, preview } of rows) {
      if (preview === null) continue;
      const ids = found.get(tenant) ?? [];
      found.set(tenant, ids);
      ids.push(preview);
    }
    return found;
  }

  /**
   * Forgets the oldest versions of a deployment; the newest two and the one that it runs are always kept.
   * @param keep versions, and bytes of their code, each digest once
   * @returns digests that nothing else uses
   */
  async forget(tenant: TenantId, keep: { count: number; bytes: number }): Promise<string[]> {
    return await this.#db.transaction(async (tx) => {
      const own = await tx.select().from(versions).where(eq(versions.tenant, tenant)).orderBy(desc(versions.version));
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      const counted = new Set<string>();
      let together = 0;
      const old = own.filter(({ version, digest, bytes }, index) => {
        if (!counted.has(digest)) together += bytes;
        counted.add(digest);
        return index > 1 && version !== row?.version && (index >= keep.count || together > keep.bytes);
      });
      if (old.length === 0) return [];
      const numbers = old.map(({ version }) => version);
      await tx.delete(versions).where(and(eq(versions.tenant, tenant), inArray(versions.version, numbers)));
      return await unusedCode(
        tx,
        old.map(({ digest }) => digest),
      );
    });
  }

  /** Which of these digests neither a version nor a deploy that is being paid for needs. */
  async unusedCode(digests: string[]): Promise<string[]> {
    return await unusedCode(this.#db, digests);
  }
}
