/** Which deployments have named a shared store of their owner: it is removed with the last of them. */
import type { BindingSet, TenantId } from '../shared/contracts.ts';
import { sharedBindings } from '../shared/shared-bindings.ts';
import { and, eq, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { sharedStores } from './schema/deployments.ts';

type Transaction = Parameters<Parameters<Database['transaction']>[0]>[0];

/** A part of whatever gives the deployment these bindings. What it named before stays named. */
export async function nameSharedStores(
  tx: Transaction,
  { tenant, owner, bindings }: { tenant: TenantId; owner: string; bindings: BindingSet },
): Promise<void> {
  const named = sharedBindings(bindings).map((store) => ({ owner, ...store, tenant }));
  if (named.length > 0) await tx.insert(sharedStores).values(named).onConflictDoNothing();
}

export class SharedStores {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Those that no other deployment has named. */
  async onlyOf(tenant: TenantId): Promise<{ owner: string; kind: string; id: string }[]> {
    const { owner, kind, id } = sharedStores;
    return await this.#db
      .select({ owner, kind, id })
      .from(sharedStores)
      .where(
        and(
          eq(sharedStores.tenant, tenant),
          sql`NOT EXISTS (SELECT 1 FROM shared_stores AS other WHERE other.owner = ${owner} AND other.kind = ${kind} AND other.id = ${id} AND other.tenant <> ${tenant})`,
        ),
      );
  }

  /** Once the data of those that it alone had named is gone. */
  async forget(tenant: TenantId): Promise<void> {
    await this.#db.delete(sharedStores).where(eq(sharedStores.tenant, tenant));
  }
}
