/** The instances of one slug: the one in service, and old ones with requests in flight; and how each of them ends. */
import { setTimeout as delay } from 'node:timers/promises';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { ExitReason, RuntimeDependencies } from './contract.ts';
import { type EdgeNotices, isFailure } from './edge-notices.ts';
import type { InstanceExit, InstanceProcess } from './instance-process.ts';
import type { SlugReports } from './slug-reports.ts';
import { type LimitReason, WatchedInstance } from './watched-instance.ts';

export interface SlugInstancesOptions {
  slug: string;
  dependencies: RuntimeDependencies;
  notices: EdgeNotices;
  reports: SlugReports;
  /** One of them is gone. */
  onEnded(instance: InstanceProcess, reason: ExitReason): void;
}

/** Ends that nobody waits for. */
const PATIENT: ReadonlySet<ExitReason> = new Set(['replaced', 'idle', 'swollen', 'memory_pressure']);

export class SlugInstances {
  readonly #options: SlugInstancesOptions;
  #current: WatchedInstance | undefined;
  readonly #draining = new Set<InstanceProcess>();

  constructor(options: SlugInstancesOptions) {
    this.#options = options;
  }

  get watched(): WatchedInstance | undefined {
    return this.#current;
  }

  /** The one in service; it may have ended a moment ago. */
  get current(): InstanceProcess | undefined {
    return this.#current?.instance;
  }

  /** The one in service, while it runs. */
  get alive(): InstanceProcess | undefined {
    return this.current?.alive ? this.current : undefined;
  }

  get draining(): ReadonlySet<InstanceProcess> {
    return this.#draining;
  }

  get none(): boolean {
    return !this.#current && this.#draining.size === 0;
  }

  /** This one is in service from now on. */
  adopt(instance: InstanceProcess): void {
    const { config } = this.#options.dependencies;
    const { reports } = this.#options;
    const { memoryBytes, cpuStallMs } = { ...config, ...limitsOf('runtime', instance.spec.limits) };
    this.#current = new WatchedInstance(instance, {
      memoryBytes,
      cpuStallMs,
      // Most that are over their limits soon are so again, in less time than it takes to tell that they are hungry.
      yielding: reports.record.exceededLately,
      onExceeded: (reason, detail) => this.kill(instance, reason, detail),
    });
    reports.log({ kind: 'platform', event: 'started', text: `revision ${instance.spec.revision}` });
    void instance.ended.then((exit) => this.#ended(instance, exit));
  }

  /** Tells the edges first: those who wait for an answer should get the reason, not a broken connection. */
  kill(instance: InstanceProcess, reason: LimitReason, detail: string): void {
    if (instance.ending) return;
    this.#drain(instance);
    void instance.kill(reason, detail, this.#options.notices.failed(instance, reason, detail));
  }

  /**
   * Takes an instance out of service, lets its requests end, ends it.
   * @param atOnce whoever is in it after `drainMs` is cut off
   */
  async end(
    instance: InstanceProcess,
    reason: ExitReason,
    detail: string,
    drainMs: number,
    atOnce = false,
  ): Promise<void> {
    this.#drain(instance);
    instance.leave();
    // Where somebody waits for the end, they are cut off.
    const runs = PATIENT.has(reason) && Promise.race([instance.runsEnded(), delay(drainMs, undefined, { ref: false })]);
    await Promise.race([Promise.all([this.#options.notices.retired(instance, drainMs), runs]), instance.ended]);
    if (atOnce) await instance.kill(reason, detail);
    else await instance.terminate(reason, detail);
  }

  /** Tells what CPU time has been used since it was last told. */
  countCpu(): void {
    for (const instance of [...(this.current ? [this.current] : []), ...this.#draining]) this.#countCpu(instance);
  }

  #countCpu(instance: InstanceProcess): void {
    this.#options.reports.used(instance.takeCpuMs(), instance.spec.tenant);
  }

  /** Whoever asks from now on gets a new one. */
  #drain(instance: InstanceProcess): void {
    if (this.current === instance) this.#current = undefined;
    this.#draining.add(instance);
  }

  /** The process is gone, for whatever reason. */
  #ended(instance: InstanceProcess, { reason, detail }: InstanceExit): void {
    const { slug, dependencies, notices, reports, onEnded } = this.#options;
    const wasCurrent = this.current === instance;
    if (wasCurrent) this.#current = undefined;
    this.#draining.delete(instance);
    if (isFailure(reason)) {
      void notices.failed(instance, reason, detail);
      reports.failed(reason, detail, instance.ageMs);
    } else if (wasCurrent || reason !== 'replaced') reports.stopped(reason, detail);
    this.#countCpu(instance);
    const { cpuMs } = instance.usage();
    dependencies.log.debug({ slug, reason, detail, cpuMs }, 'instance ended');
    const { tenant } = instance.spec;
    reports.emit({ type: 'stopped', slug, tenant, generation: instance.generation, reason, detail, cpuMs });
    onEnded(instance, reason);
  }
}
