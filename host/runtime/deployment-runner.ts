/**
 * The life of one slug: cold, starting, warm, draining, cold. It shares one start among concurrent callers, replaces
 * instances without a failed request, and backs off from what keeps failing.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessUsage } from '../sandbox/process-tree.ts';
import type { EdgeTraffic, InstancePlan, InstanceSpec, ServingInstance, TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';
import { instanceKey } from '../shared/previews.ts';
import { Activity } from './activity.ts';
import type { InstanceState, InstanceStatus } from './contract.ts';
import type { ProbePlace } from './deploy/probe.ts';
import { EdgeNotices } from './edge-notices.ts';
import type { ExitReason } from './exit-reason.ts';
import type { InstanceProcess } from './instance-process.ts';
import { InstanceStarts, type StartOptions } from './instance-starts.ts';
import type { JointUpdate } from './joint-updates.ts';
import { MoreInstances } from './more-instances.ts';
import { Runs } from './runs.ts';
import type { SharedServices } from './shared-services.ts';
import { SlugInstances } from './slug-instances.ts';
import { SlugObjects } from './slug-objects.ts';
import { SlugReports } from './slug-reports.ts';
import { SlugServices } from './slug-services.ts';

export interface RunnerOptions extends StartOptions {
  /** Id of the version that it runs; undefined: the one that is live. */
  preview?: string | undefined;
  /** Makes room for one more instance. @throws Problem overloaded */
  admit(): Promise<void>;
  /** An instance with Durable Objects is gone: one of them may have an alarm. */
  onObjectsAtRest(objects: { slug: string; tenant: TenantId; folder: string }): void;
  /** What the instances of a tenant have in common. */
  servicesOf(tenant: TenantId): SharedServices;
}

/** Requests of a replaced or idle instance may go on for this long, ms. */
const DRAIN_MS = 30_000;
/** As long where a new instance waits for the objects of the old one. Open WebSockets then end. */
const HANDOVER_MS = 2_000;
/** How long others wait at most for requests that are under way, while objects of a cluster pass on. ms */
const QUIET_MS = 1_000;

export class DeploymentRunner {
  readonly slug: string;
  readonly preview: string | undefined;
  /** Under which edges know it. */
  readonly key: string;
  readonly #options: RunnerOptions;
  readonly #activity = new Activity();
  readonly #reports: SlugReports;
  readonly #services: SlugServices;
  readonly #objects: SlugObjects;
  readonly #notices: EdgeNotices;
  readonly #instances: SlugInstances;
  readonly #starts: InstanceStarts;
  readonly #more: MoreInstances;
  /** Crons, messages and calls of other deployments. */
  readonly runs = new Runs(this.#activity, () => this.#acquireAny());
  #starting: Promise<InstanceProcess> | undefined;
  /** While there is one, nobody gets an instance. */
  #passingOn: Promise<void> | undefined;
  /** Starts, replacements and closings happen one after the other. */
  readonly #turns = new Mutex();
  #usage: ProcessUsage = { cpuMs: 0, privateBytes: 0 };

  constructor(options: RunnerOptions) {
    const { slug, preview, dependencies } = options;
    this.slug = slug;
    this.preview = preview;
    this.key = instanceKey(slug, preview);
    this.#options = options;
    const reports = new SlugReports(slug, preview, dependencies);
    const services = new SlugServices(options.servicesOf, reports);
    const notices = new EdgeNotices(this.key, dependencies.edges);
    const instances = new SlugInstances({
      slug,
      dependencies,
      notices,
      reports,
      onEnded: (instance, reason) => this.#ended(instance, reason),
    });
    const objects = new SlugObjects({
      slug,
      preview,
      tenantsFolder: dependencies.tenantsFolder,
      storeQuotas: dependencies.storeQuotas,
      clustered: options.members !== undefined,
      away: () => options.members?.away === true,
      onAtRest: options.onObjectsAtRest,
      onExceeded: (detail) => {
        if (instances.current) instances.kill(instances.current, 'storage_exceeded', detail);
      },
      onFreed: () => void this.#leaveFullDisk(),
    });
    this.#reports = reports;
    this.#services = services;
    this.#notices = notices;
    this.#instances = instances;
    this.#objects = objects;
    this.#starts = new InstanceStarts(options, { instances, notices, objects, reports, services });
    this.#more = new MoreInstances(options, { instances, notices, reports, starts: this.#starts, turns: this.#turns });
  }

  /** Nothing runs, and nothing needs to be remembered. */
  get forgettable(): boolean {
    const { lastExit, pauseMs } = this.#reports.record;
    const tells = lastExit !== undefined && this.preview === undefined;
    const nothingRuns = this.state === 'cold' && !this.#services.open && this.#turns.idle;
    return nothingRuns && pauseMs === 0 && !tells;
  }

  get state(): InstanceState {
    if (this.#instances.alive) return 'warm';
    if (this.#starting) return 'starting';
    return this.#instances.none ? 'cold' : 'draining';
  }

  /** Somebody waits for its instance or its database. */
  get starting(): boolean {
    return (
      this.#starting !== undefined || (this.#services.current?.processes.some(({ starting }) => starting) ?? false)
    );
  }

  get tenant(): TenantId | undefined {
    return this.#reports.tenant;
  }

  get lastActive(): number {
    return this.#activity.lastActive;
  }

  get inFlight(): number {
    return this.#activity.inFlight;
  }

  get privateBytes(): number {
    return this.#usage.privateBytes;
  }

  /** @throws Problem */
  async acquire(): Promise<InstanceProcess> {
    this.#activity.touch();
    await this.#passingOn;
    const current = this.#instances.alive;
    if (current) return current;
    this.#starting ??= this.#turns
      .run(() => this.#startCold())
      .finally(() => {
        this.#starting = undefined;
      });
    return this.#starting;
  }

  /** Any of those that serve. @throws Problem */
  async #acquireAny(): Promise<InstanceProcess> {
    const first = await this.acquire();
    return this.#instances.next ?? first;
  }

  /** That serves; undefined: none does. */
  get revision(): string | undefined {
    return this.#instances.alive?.spec.revision;
  }

  /** An update of what runs is being checked. @returns where to probe its code */
  expectUpdate(planned: InstancePlan): ProbePlace | undefined {
    return this.#starts.expectUpdate(planned);
  }

  /**
   * Starts another instance in place of one with objects: the cluster's bucket is away, or back. One that is being
   * started is looked at when it is there.
   */
  async followBucket(): Promise<void> {
    const { current } = this.#instances;
    if (!this.#turns.idle || (current && this.#isBehindBucket(current))) await this.activate();
  }

  /** It has its objects while the cluster's bucket is away, or lacks them while it is there. */
  #isBehindBucket({ spec, away }: InstanceProcess): boolean {
    const { members } = this.#options;
    return members !== undefined && this.#objects.isKept(spec) && away !== members.away;
  }

  /** Of the cluster, whose bucket can be reached. */
  #hasObjects({ spec, away }: InstanceProcess): boolean {
    return this.#options.members?.away === false && !away && this.#objects.isKept(spec);
  }

  /** @throws Problem when the new revision does not start; the old one then goes on */
  async activate(): Promise<void> {
    this.#reports.record.startAfresh();
    // Whatever is under way may end with an instance.
    if (this.state === 'cold' && this.#turns.idle) return;
    await this.#turns.run(async () => {
      const old = this.#instances.alive;
      if (!old) {
        void this.#instances.endAll('replaced', 'A new version took over.', DRAIN_MS);
        return;
      }
      const spec = await this.#options.dependencies.resolve(this.slug, this.preview);
      if (spec.revision === old.spec.revision && !this.#isBehindBucket(old)) return;
      if (spec.tenant !== old.spec.tenant) {
        await this.#instances.endAll('replaced', 'The slug belongs to another deployment now.', 0);
        return;
      }
      const overlap = this.#objects.mayOverlap(spec, old.spec);
      await this.#replace(old, spec, overlap, 'The new version is in service.', 'A new version took over.');
    });
  }

  /** The limits of a process with a full disk are for good: another one takes its place. */
  async #leaveFullDisk(): Promise<void> {
    const old = this.#instances.current;
    const text = 'Its Durable Objects have room again.';
    await this.#turns
      .run(async () => {
        if (old?.alive && this.#instances.current === old) await this.#replace(old, old.spec, false, text, text);
      })
      .catch((error) => {
        // Where nothing runs now, the next request starts it.
        this.#options.dependencies.log.warn({ err: error, slug: this.slug }, 'an instance was not started again');
      });
  }

  /** @param overlap the old one goes on until it is ended; else it ends first @param text for the owner @param detail why the old one ends */
  async #replace(old: InstanceProcess, spec: InstanceSpec, overlap: boolean, text: string, detail: string) {
    await this.#options.admit();
    const { members } = this.#options;
    const start = (next: InstanceSpec) => this.#start(next, overlap);
    const end = () => this.#instances.endAll('replaced', detail, HANDOVER_MS, true);
    const replaced = this.#instances.watched.map(({ instance }) => instance);
    const before = this.#instances.serving.length;
    const instance = await (overlap ? start(spec) : SlugObjects.handOver(old.spec, spec, { end, start }));
    await this.#more.start(instance, before - 1);
    if (members && overlap && this.#hasObjects(old))
      await this.#passOn(replaced, members.updates.begin(this.slug, spec.revision), detail);
    this.#instances.takeOver();
    members?.updates.changed();
    // With the first, edges let go of all earlier ones.
    for (const one of this.#instances.serving) await this.#notices.inService(one);
    this.#reports.log({ kind: 'platform', event: 'replaced', text });
    if (!overlap) return;
    for (const one of replaced) if (!one.ending) void this.#instances.end(one, 'replaced', detail, DRAIN_MS);
  }

  /**
   * The old instances give their objects up while nobody calls any, here or on other nodes. Requests wait meanwhile, some
   * hundredths of a second. Where those that are under way take longer than others can be kept waiting, the old instances
   * end later, with their requests.
   */
  async #passOn(old: InstanceProcess[], update: JointUpdate, detail: string): Promise<void> {
    const isQuiet = async (one: InstanceProcess): Promise<boolean> => {
      const runs = Promise.race([one.runsEnded().then(() => 0), delay(QUIET_MS, undefined, { ref: false })]);
      const left = await Promise.all([this.#notices.retired(one, QUIET_MS), runs]);
      return left.every((count) => count === 0);
    };
    const passing = async (): Promise<void> => {
      const quiet = await Promise.all(old.map(isQuiet));
      if (!(await update.allQuiet(quiet.every(Boolean), QUIET_MS))) return;
      for (const one of old) void this.#instances.end(one, 'replaced', detail, 0);
      const gone = Promise.all(old.map((one) => one.objectsLeft()));
      await Promise.race([gone, delay(HANDOVER_MS, undefined, { ref: false })]);
      await update.allLeft(HANDOVER_MS);
    };
    await update.allReady();
    this.#passingOn = passing().finally(() => this.#instances.takeOver());
    await this.#passingOn.finally(() => {
      this.#passingOn = undefined;
      update.end();
    });
  }

  /** Does the work while nothing runs: processes are halted, starts and stops wait. */
  standStill<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#turns.run(async () => {
      const halted = this.#instances.all.filter((instance) => instance.halt(true));
      try {
        return await work();
      } finally {
        for (const instance of halted) instance.halt(false);
      }
    });
  }

  /** Drains and ends everything; resolves when nothing runs. */
  async stop(reason: ExitReason, detail: string, drainMs = DRAIN_MS): Promise<void> {
    await this.#turns.run(async () => {
      await this.#instances.endAll(reason, detail, drainMs);
      await Promise.all([...this.#instances.draining].map((instance) => instance.terminate(reason, detail)));
      await this.#services.leave();
    });
  }

  /** @param traffic since the edge's last report */
  reportTraffic({ requests, inFlight, instanceBytesOut = {} }: EdgeTraffic): void {
    this.#activity.report(requests, inFlight);
    this.#instances.answered(instanceBytesOut);
  }

  /** Looks at CPU and memory; ends what is over its limits. Call about once a second, more often while busy. @param now ms of `performance.now()`; @param alone no other tenant does anything */
  sample(now: number, alone: boolean): ProcessUsage {
    const own = this.#instances.sample(now, alone);
    const { alive } = this.#instances;
    if (!alive) {
      this.#usage = own;
      return own;
    }
    // Alarms and deliveries are no requests: an end of the instance would cut them off.
    if (this.#objects.sample(alive, now)) this.#activity.touch();
    const bound = this.#services.sample(now);
    this.#usage = { cpuMs: own.cpuMs + bound.cpuMs, privateBytes: own.privateBytes + bound.privateBytes };
    return this.#usage;
  }

  /** As `sample`, for those that are out of service and not gone yet. */
  sampleDraining(now: number, alone: boolean): void {
    this.#instances.sampleDraining(now, alone);
  }

  /** Starts one more instance, or lets one go, where that is due. @param now ms of `performance.now()` */
  adjustCount(now: number, idleCores: () => number): void {
    this.#more.adjust(now, this.inFlight, idleCores);
  }

  /** Memory is needed elsewhere: one instance has to do. */
  makeDo(): void {
    this.#more.makeDo();
  }

  /** Tells what CPU time has been used since it was last told. */
  countCpu(): void {
    this.#instances.countCpu();
    this.#services.countCpu();
  }

  /** Opens the sockets again that a restarted part served. */
  reopen(part: 'storage' | 'egress'): Promise<void> {
    return this.#services.reopen(part);
  }

  status(): InstanceStatus {
    const { current, serving } = this.#instances;
    const { lastExit, pauseMs } = this.#reports.record;
    return {
      state: this.state,
      inFlight: this.inFlight,
      ...(current
        ? {
            generation: current.generation,
            revision: current.spec.revision,
            startedAt: current.startedAt,
            ...(serving.length > 1 ? { instances: serving.length } : {}),
            memoryBytes: this.#usage.privateBytes,
            cpuMs: this.#usage.cpuMs,
          }
        : {}),
      ...(lastExit ? { lastExit } : {}),
      ...(pauseMs > 0 ? { retryAt: Date.now() + pauseMs } : {}),
    };
  }

  /** The addresses of the instances in service, for an edge that starts later. */
  addresses(): ServingInstance[] {
    return this.#instances.serving
      .filter(({ alive }) => alive)
      .map(({ generation, first, socket }) => ({ slug: this.key, generation, first, socket }));
  }

  async #startCold(): Promise<InstanceProcess> {
    const running = this.#instances.alive;
    if (running) return running;
    this.#reports.record.refuseWhileBackingOff();
    const { dependencies, admit } = this.#options;
    const startedAt = performance.now();
    const [spec] = await Promise.all([dependencies.resolve(this.slug, this.preview), admit()]);
    if (this.tenant !== undefined && this.tenant !== spec.tenant) await this.#services.leave();
    const instance = await this.#start(spec);
    // Not waited for: the edge that asked learns it from the answer, the others may as well ask.
    void this.#notices.inService(instance).catch(() => undefined);
    this.#reports.emit({
      type: 'started',
      slug: this.slug,
      tenant: spec.tenant,
      generation: instance.generation,
      coldStartMs: performance.now() - startedAt,
    });
    return instance;
  }

  async #start(spec: InstanceSpec, aside = false): Promise<InstanceProcess> {
    const instance = await this.#starts.start(spec, { aside });
    this.#activity.touch();
    return instance;
  }

  #ended(instance: InstanceProcess, reason: ExitReason): void {
    this.#objects.ended(instance, reason);
    this.#options.members?.updates.changed();
    if (!this.#instances.none) return;
    this.#activity.forgetRequests();
    // A start that waits for its turn makes the services its own.
    void this.#turns.run(async () => {
      if (this.#instances.none) await this.#services.leave();
    });
  }
}
