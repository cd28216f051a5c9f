/** All that the host does by the clock: lifecycle of deployments, tenants' crons, and its own housekeeping. */
import type { Lifecycle } from '../control/lifecycle.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Registry } from '../registry/index.ts';
import type { Scheduler } from '../scheduler/index.ts';
import type { TenantCrons } from '../scheduler/tenant-crons.ts';
import type { TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';

const LIFECYCLE_MS = 60_000;
/** Of several nodes one does all timed work of the host. */
export const TIMED_WORK = 'timed work';

export interface TimedWorkParts {
  scheduler: Scheduler;
  lifecycle: Lifecycle;
  crons: TenantCrons;
  deployments: Deployments;
  registry: Pick<Registry, 'leases' | 'changes'>;
}

export class TimedWork {
  readonly #parts: TimedWorkParts;
  #cancelExpiry = (): void => undefined;
  #scheduled = new Set<TenantId>();
  readonly #turns = new Mutex();

  constructor(parts: TimedWorkParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {
    const { leases, changes } = this.#parts.registry;
    changes.on('deployments', () => this.plan());
    await leases.keep(TIMED_WORK, {
      gained: () => this.#begin(),
      lost: () => this.#stop(),
    });
    this.#parts.scheduler.every(LIFECYCLE_MS, 'lifecycle', () => this.plan());
  }

  /** Does what is due and plans what comes next; call it when expiry dates, crons or the clock have changed. */
  plan(): Promise<void> {
    return this.#turns.round(async () => {
      await this.#parts.registry.leases.run(TIMED_WORK, () => this.#planNow());
    });
  }

  async #begin(): Promise<void> {
    await this.#parts.crons.recover();
    this.#scheduled.clear();
    await this.#planNow();
  }

  #stop(): void {
    this.#cancelExpiry();
    this.#parts.crons.forget();
  }

  async #planNow(): Promise<void> {
    const { scheduler, lifecycle, crons, deployments } = this.#parts;
    this.#cancelExpiry();
    const next = await lifecycle.tick();
    if (next !== undefined) this.#cancelExpiry = scheduler.at(next, 'expiry', () => this.plan());
    const wanted = new Map((await deployments.scheduled()).map((row) => [row.tenant, row]));
    for (const tenant of this.#scheduled) if (!wanted.has(tenant)) await crons.remove(tenant);
    for (const { crons: expressions, ...whose } of wanted.values()) await crons.set(whose, expressions);
    this.#scheduled = new Set(wanted.keys());
  }
}
