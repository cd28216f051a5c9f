/** The services of the tenant, as the instances of one slug use them: from the first start to the last end. */
import type { BindingProcesses } from '../bindings/server.ts';
import type { ProcessUsage } from '../sandbox/process-tree.ts';
import type { TenantId } from '../shared/contracts.ts';
import type { Services } from './services.ts';
import type { SharedServices } from './shared-services.ts';
import type { SlugReports } from './slug-reports.ts';

export class SlugServices {
  readonly #of: (tenant: TenantId) => SharedServices;
  readonly #reports: SlugReports;
  #shared: SharedServices | undefined;
  #processesUsed = false;

  /** @param of what the instances of a tenant have in common */
  constructor(of: (tenant: TenantId) => SharedServices, reports: SlugReports) {
    this.#of = of;
    this.#reports = reports;
  }

  get open(): boolean {
    return this.#shared !== undefined;
  }

  get current(): Services | undefined {
    return this.#shared?.current;
  }

  /** One of the bindings' processes had something to do: that of the next instance will, too. */
  get processesUsed(): boolean {
    return this.#processesUsed;
  }

  enter(tenant: TenantId, start: Parameters<SharedServices['enter']>[1]): ReturnType<SharedServices['enter']> {
    this.#shared = this.#of(tenant);
    return this.#shared.enter(this, start);
  }

  /** As `keepOpen` of what the tenant's instances share. */
  keepOpen(): ReturnType<SharedServices['keepOpen']> {
    return this.#shared?.keepOpen();
  }

  async leave(): Promise<void> {
    this.countCpu();
    const shared = this.#shared;
    this.#shared = undefined;
    await shared?.leave(this);
  }

  /** Processes of the bindings, where it is this slug that looks after them. */
  get processes(): BindingProcesses[] {
    return (this.#shared?.isLookedAfterBy(this) && this.#shared.current?.processes) || [];
  }

  /** @param now ms of `performance.now()` */
  sample(now: number): ProcessUsage {
    const total = { cpuMs: 0, privateBytes: 0 };
    for (const processes of this.processes) {
      const { cpuMs, privateBytes } = processes.sample(now);
      total.cpuMs += cpuMs;
      total.privateBytes += privateBytes;
    }
    if (total.privateBytes > 0) this.#processesUsed = true;
    return total;
  }

  /** Tells what CPU time has been used since it was last told. */
  countCpu(): void {
    let cpuMs = 0;
    for (const processes of this.current?.processes ?? []) cpuMs += processes.takeCpuMs();
    this.#reports.used(cpuMs);
  }

  /** Opens the sockets again that a restarted part served. */
  async reopen(part: 'storage' | 'egress'): Promise<void> {
    if (!this.#shared?.isLookedAfterBy(this)) return;
    if (part === 'storage') await this.current?.openStorage();
    else await this.current?.openEgress();
  }
}
