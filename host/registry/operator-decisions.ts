/** What the operator decides about a deployment, beside its state: it goes on through renewals, expiry and restarts. */
import type { TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { TenantLimits } from '../shared/tenant-limits.ts';
import type { DeploymentMemory } from './deployment-memory.ts';
import { eq } from './drizzle.ts';
import { type Deployment, deployments } from './schema/deployments.ts';

type Decision = Partial<Pick<Deployment, 'suspendedAt' | 'suspendedReason' | 'limits' | 'note'>>;

export class OperatorDecisions {
  readonly #memory: DeploymentMemory;

  constructor(memory: DeploymentMemory) {
    this.#memory = memory;
  }

  /** Suspending again replaces the reason. @throws Problem `gone` */
  suspend(tenant: TenantId, reason: string, now: number): Promise<Deployment> {
    return this.#decide(tenant, (row) => ({ suspendedAt: row.suspendedAt ?? now, suspendedReason: reason }));
  }

  /** Idempotent. @throws Problem `gone` */
  resume(tenant: TenantId): Promise<Deployment> {
    return this.#decide(tenant, () => ({ suspendedAt: null, suspendedReason: null }));
  }

  /** @param change from the limits as they are. @throws Problem `gone` */
  limit(tenant: TenantId, change: (present: TenantLimits) => TenantLimits): Promise<Deployment> {
    return this.#decide(tenant, (row) => ({ limits: change(row.limits) }));
  }

  /** Of decommissioned deployments, too. */
  note(tenant: TenantId, note: string | null): Promise<Deployment> {
    return this.#decide(tenant, () => ({ note }), true);
  }

  #decide(tenant: TenantId, decide: (row: Deployment) => Decision, alsoGone = false): Promise<Deployment> {
    return this.#memory.transaction(async (tx) => {
      const [row] = await tx.select().from(deployments).where(eq(deployments.tenant, tenant));
      if (!row || (row.state === 'decommissioned' && !alsoGone))
        throw new Problem('gone', 'This deployment was decommissioned.');
      const [decided] = await tx.update(deployments).set(decide(row)).where(eq(deployments.tenant, tenant)).returning();
      if (!decided) throw new Error('update returned nothing');
      return decided;
    });
  }
}
