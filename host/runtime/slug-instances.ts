/** The instances of one slug: those in service, and old ones with requests in flight; and how each of them ends. */
import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessUsage } from '../sandbox/process-tree.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { RuntimeDependencies } from './contract.ts';
import { type EdgeNotices, isFailure } from './edge-notices.ts';
import type { ExitReason } from './exit-reason.ts';
import { InService } from './in-service.ts';
import type { CountLimits } from './instance-count.ts';
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

/** What began in an instance that is not needed any more may go on: the longest that a timer can wait, ms. */
const AS_LONG_AS_IT_TAKES = 2 ** 31 - 1;
/** Ends that nobody waits for. */
const PATIENT: ReadonlySet<ExitReason> = new Set(['replaced', 'idle', 'swollen', 'memory_pressure']);

export class SlugInstances {
  readonly #options: SlugInstancesOptions;
  readonly #inService = new InService();
  readonly #draining = new Set<InstanceProcess>();
  /** Of every instance until it is gone. */
  readonly #watches = new Map<InstanceProcess, WatchedInstance>();

  constructor(options: SlugInstancesOptions) {
    this.#options = options;
  }

  /** Those in service, the oldest first, and those that were let go. */
  get watched(): WatchedInstance[] {
    return this.#inService.watched;
  }

  get serving(): InstanceProcess[] {
    return this.#inService.instances;
  }

  /** The first in service; it may have ended a moment ago. */
  get current(): InstanceProcess | undefined {
    return this.#inService.first?.instance;
  }

  /** Any of those in service: one after the other. */
  get next(): InstanceProcess | undefined {
    return this.#inService.next();
  }

  /** The first in service that runs. */
  get alive(): InstanceProcess | undefined {
    return this.serving.find(({ alive }) => alive);
  }

  get draining(): ReadonlySet<InstanceProcess> {
    return this.#draining;
  }

  get none(): boolean {
    return this.watched.length === 0 && this.#draining.size === 0;
  }

  /** Whether there should be more or fewer of them; see `InService.change`. */
  change(...asked: [at: number, inFlight: number, idleCores: number, limits: CountLimits]) {
    return this.#inService.change(...asked);
  }

  /** This one is in service from now on, beside those of the same revision. @param aside in place of the others after `takeOver` */
  adopt(instance: InstanceProcess, aside: boolean): void {
    const { config } = this.#options.dependencies;
    const { reports } = this.#options;
    const { memoryBytes, cpuStallMs } = { ...config, ...limitsOf('runtime', instance.spec.limits) };
    const watched = new WatchedInstance(instance, {
      memoryBytes,
      cpuStallMs,
      // Most that are over their limits soon are so again, in less time than it takes to tell that they are hungry.
      yielding: reports.record.exceededLately,
      onExceeded: (reason, detail) => this.kill(instance, reason, detail),
    });
    this.#watches.set(instance, watched);
    this.#inService.add(watched, aside);
    reports.log({ kind: 'platform', event: 'started', text: `revision ${instance.spec.revision}` });
    void instance.ended.then((exit) => this.#ended(instance, exit));
  }

  /** Those of the next revision are in service from now on. */
  takeOver(): void {
    this.#inService.takeOver();
  }

  /** Tells the edges first: those who wait for an answer should get the reason, not a broken connection. */
  kill(instance: InstanceProcess, reason: LimitReason, detail: string): void {
    if (instance.killed) return;
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

  /** All that are in service, at once. */
  async endAll(reason: ExitReason, detail: string, drainMs: number, atOnce = false): Promise<void> {
    await Promise.all(this.watched.map(({ instance }) => this.end(instance, reason, detail, drainMs, atOnce)));
  }

  /** Ends the youngest of several when nothing is under way in it, however long that takes; it is watched until then. */
  async letGo(): Promise<void> {
    const instance = this.#inService.letGo();
    if (!instance) return;
    instance.leave();
    const { notices } = this.#options;
    await Promise.all([notices.retired(instance, AS_LONG_AS_IT_TAKES), instance.runsEnded()]);
    if (instance.alive && !instance.ending) await this.end(instance, 'idle', 'Fewer instances are enough.', 0);
  }

  /** Looks at CPU and memory; ends what is over its limits. @param now ms of `performance.now()` */
  sample(now: number, alone: boolean): ProcessUsage {
    const total = { cpuMs: 0, privateBytes: 0 };
    for (const one of this.watched.filter(({ alive }) => alive)) {
      const { cpuMs, privateBytes } = one.sample(now, alone);
      total.cpuMs += cpuMs;
      total.privateBytes += privateBytes;
    }
    return total;
  }

  /** As `sample`, for those that end their last requests: the limits hold until they are gone. */
  sampleDraining(now: number, alone: boolean): void {
    for (const instance of this.#draining) if (instance.alive) this.#watches.get(instance)?.sample(now, alone);
  }

  /** @param bytes by generation, of answers that came out in about the last second */
  answered(bytes: Readonly<Record<number, number>>): void {
    for (const [{ generation }, watched] of this.#watches) watched.answered(bytes[generation] ?? 0);
  }

  /** Tells what CPU time has been used since it was last told. */
  countCpu(): void {
    for (const instance of this.all) this.#countCpu(instance);
  }

  get all(): InstanceProcess[] {
    return [...this.watched.map(({ instance }) => instance), ...this.#draining];
  }

  #countCpu(instance: InstanceProcess): void {
    this.#options.reports.used(instance.takeCpuMs(), instance.spec.tenant);
  }

  /** Whoever asks from now on gets a new one. */
  #drain(instance: InstanceProcess): void {
    this.#inService.remove(instance);
    this.#draining.add(instance);
  }

  /** The process is gone, for whatever reason. */
  #ended(instance: InstanceProcess, { reason, detail }: InstanceExit): void {
    const { slug, dependencies, notices, reports, onEnded } = this.#options;
    const wasInService = this.#inService.remove(instance);
    this.#draining.delete(instance);
    this.#watches.delete(instance);
    if (isFailure(reason)) {
      void notices.failed(instance, reason, detail);
      reports.failed(reason, detail, instance.ageMs);
    } else if (wasInService || reason !== 'replaced') reports.stopped(reason, detail);
    this.#countCpu(instance);
    const { cpuMs } = instance.usage();
    dependencies.log.debug({ slug, reason, detail, cpuMs }, 'instance ended');
    const { tenant } = instance.spec;
    reports.emit({ type: 'stopped', slug, tenant, generation: instance.generation, reason, detail, cpuMs });
    onEnded(instance, reason);
  }
}
