/**
 * The life of one slug: cold, starting, warm, draining, cold. It shares one start among concurrent callers, replaces
 * instances without a failed request, and backs off from what keeps failing.
 */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { objectsOf } from '../bindings/durable-objects/classes.ts';
import type { BindingProcesses } from '../bindings/server.ts';
import type { ProcessUsage } from '../sandbox/process-tree.ts';
import { tenantUser } from '../sandbox/users.ts';
import type { EdgeTraffic, InstanceSpec, TenantId } from '../shared/contracts.ts';
import { instanceKey } from '../shared/previews.ts';
import { Problem } from '../shared/problem.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import { Activity } from './activity.ts';
import type { ExitReason, InstanceState, InstanceStatus, RuntimeDependencies, RuntimeEvent } from './contract.ts';
import { EdgeNotices, isFailure } from './edge-notices.ts';
import { type InstanceExit, InstanceProcess } from './instance-process.ts';
import type { NewLogEntry } from './logs/log-entry.ts';
import type { Members } from './members.ts';
import {
  HARD_LIMIT,
  type PrewarmedSandbox,
  type PrewarmedSandboxOptions,
  startPrewarmedSandbox,
} from './prewarmed-sandbox.ts';
import { Runs } from './runs.ts';
import { Services } from './services.ts';
import type { SharedServices } from './shared-services.ts';
import { SlugObjects } from './slug-objects.ts';
import type { Standby } from './standby.ts';
import { TrackRecord } from './track-record.ts';
import { type LimitReason, WatchedInstance } from './watched-instance.ts';

export interface RunnerOptions {
  slug: string;
  /** Id of the version that it runs; undefined: the one that is live. */
  preview?: string | undefined;
  dependencies: RuntimeDependencies;
  standby: Standby;
  /** Where the kernel keeps the limits. */
  cgroups: PrewarmedSandboxOptions['cgroups'];
  /** Set where objects are the cluster's. */
  members: Members | undefined;
  nextGeneration(): number;
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
/** Ends that nobody waits for. */
const PATIENT: ReadonlySet<ExitReason> = new Set(['replaced', 'idle', 'swollen', 'memory_pressure']);

export class DeploymentRunner {
  readonly slug: string;
  readonly preview: string | undefined;
  /** Under which edges know it. */
  readonly key: string;
  readonly #options: RunnerOptions;
  readonly #activity = new Activity();
  readonly #record = new TrackRecord();
  readonly #objects: SlugObjects;
  readonly #notices: EdgeNotices;
  /** Crons, messages and calls of other deployments. */
  readonly runs = new Runs(this.#activity, () => this.acquire());
  #current: WatchedInstance | undefined;
  #starting: Promise<InstanceProcess> | undefined;
  /** Old instances with requests in flight. */
  readonly #draining = new Set<InstanceProcess>();
  /** Starts, replacements and closings happen one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  /** How many of them there are, those that wait included. */
  #turns = 0;
  #shared: SharedServices | undefined;
  #tenant: TenantId | undefined;
  #usage: ProcessUsage = { cpuMs: 0, privateBytes: 0 };
  #processesUsed = false;

  constructor(options: RunnerOptions) {
    this.slug = options.slug;
    this.preview = options.preview;
    this.key = instanceKey(options.slug, options.preview);
    this.#options = options;
    const { tenantsFolder, storeQuotas, edges } = options.dependencies;
    this.#notices = new EdgeNotices(this.key, edges);
    this.#objects = new SlugObjects({
      slug: options.slug,
      preview: options.preview,
      tenantsFolder,
      storeQuotas,
      clustered: options.members !== undefined,
      away: () => options.members?.away === true,
      onAtRest: options.onObjectsAtRest,
      onExceeded: (detail) => {
        const current = this.#current?.instance;
        if (current) this.#kill(current, 'storage_exceeded', detail);
      },
      onFreed: () => void this.#leaveFullDisk(),
    });
  }

  /** Nothing runs, and nothing needs to be remembered. */
  get forgettable(): boolean {
    const { lastExit, pauseMs } = this.#record;
    const tells = lastExit !== undefined && this.preview === undefined;
    const nothingRuns = this.state === 'cold' && this.#shared === undefined && this.#turns === 0;
    return nothingRuns && pauseMs === 0 && !tells;
  }

  get state(): InstanceState {
    if (this.#current?.alive) return 'warm';
    if (this.#starting) return 'starting';
    return this.#draining.size > 0 ? 'draining' : 'cold';
  }

  /** Somebody waits for its instance or its database. */
  get starting(): boolean {
    return this.#starting !== undefined || (this.#shared?.current?.processes.some(({ starting }) => starting) ?? false);
  }

  get tenant(): TenantId | undefined {
    return this.#tenant;
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
    const current = this.#current?.instance;
    if (current?.alive) return current;
    this.#starting ??= this.#inTurn(() => this.#startCold()).finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  /**
   * Starts another instance in place of one with objects: the cluster's bucket is away, or back. One that is being
   * started is looked at when it is there.
   */
  async followBucket(): Promise<void> {
    const current = this.#current?.instance;
    if (this.#turns > 0 || (current && this.#isBehindBucket(current))) await this.activate();
  }

  /** It has its objects while the cluster's bucket is away, or lacks them while it is there. */
  #isBehindBucket({ spec, away }: InstanceProcess): boolean {
    const { members } = this.#options;
    return members !== undefined && this.#objects.isKept(spec) && away !== members.away;
  }

  /** @throws Problem when the new revision does not start; the old one then goes on */
  async activate(): Promise<void> {
    this.#record.startAfresh();
    // Whatever is under way may end with an instance.
    if (this.state === 'cold' && this.#turns === 0) return;
    await this.#inTurn(async () => {
      const old = this.#current?.instance;
      if (!old?.alive) return;
      const spec = await this.#options.dependencies.resolve(this.slug, this.preview);
      if (spec.revision === old.spec.revision && !this.#isBehindBucket(old)) return;
      if (spec.tenant !== old.spec.tenant) {
        await this.#end(old, 'replaced', 'The slug belongs to another deployment now.', 0);
        return;
      }
      await this.#options.admit();
      const overlap = this.#objects.mayOverlap(spec, old.spec);
      const instance = await (overlap ? this.#start(spec) : this.#handOver(old, spec, 'A new version took over.'));
      await this.#notices.inService(instance);
      this.#log({ kind: 'platform', event: 'replaced', text: 'The new version is in service.' });
      if (overlap) void this.#end(old, 'replaced', 'A new version took over.', DRAIN_MS);
    });
  }

  #handOver(old: InstanceProcess, spec: InstanceSpec, detail: string): Promise<InstanceProcess> {
    return SlugObjects.handOver(old.spec, spec, {
      end: () => this.#end(old, 'replaced', detail, HANDOVER_MS, true),
      start: (next) => this.#start(next),
    });
  }

  /** The limits of a process with a full disk are for good: another one takes its place. */
  async #leaveFullDisk(): Promise<void> {
    const old = this.#current?.instance;
    await this.#inTurn(async () => {
      if (!old?.alive || this.#current?.instance !== old) return;
      await this.#options.admit();
      await this.#notices.inService(await this.#handOver(old, old.spec, 'Its Durable Objects have room again.'));
      this.#log({ kind: 'platform', event: 'replaced', text: 'Its Durable Objects have room again.' });
    }).catch((error) => {
      // Where nothing runs now, the next request starts it.
      this.#options.dependencies.log.warn({ err: error, slug: this.slug }, 'an instance was not started again');
    });
  }

  /** Does the work while nothing runs: processes are halted, starts and stops wait. */
  standStill<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#inTurn(async () => {
      const halted = [this.#current?.instance, ...this.#draining].filter((instance) => instance?.halt(true));
      try {
        return await work();
      } finally {
        for (const instance of halted) instance?.halt(false);
      }
    });
  }

  /** Drains and ends everything; resolves when nothing runs. */
  async stop(reason: ExitReason, detail: string, drainMs = DRAIN_MS): Promise<void> {
    await this.#inTurn(async () => {
      const current = this.#current?.instance;
      if (current?.alive) await this.#end(current, reason, detail, drainMs);
      await Promise.all([...this.#draining].map((instance) => instance.terminate(reason, detail)));
      await this.#closeServices();
    });
  }

  /** @param traffic since the edge's last report */
  reportTraffic({ requests, inFlight, instanceBytesOut }: EdgeTraffic): void {
    this.#activity.report(requests, inFlight);
    this.#current?.answered(instanceBytesOut);
  }

  /** Looks at CPU and memory; ends what is over its limits. Call about once a second, more often while busy. @param now ms of `performance.now()`; @param alone no other tenant does anything */
  sample(now: number, alone: boolean): ProcessUsage {
    // What they have used by then counts, whatever ends them.
    for (const instance of this.#draining) instance.usage();
    const current = this.#current;
    if (!current?.alive) {
      this.#usage = { cpuMs: 0, privateBytes: 0 };
      return this.#usage;
    }
    const own = current.sample(now, alone);
    // Alarms and deliveries are no requests: an end of the instance would cut them off.
    if (this.#objects.sample(current.instance, now)) this.#activity.touch();
    const total = { cpuMs: own.cpuMs, privateBytes: own.privateBytes };
    for (const processes of this.#ownProcesses) {
      const { cpuMs, privateBytes } = processes.sample(now);
      total.cpuMs += cpuMs;
      total.privateBytes += privateBytes;
      if (privateBytes > 0) this.#processesUsed = true;
    }
    this.#usage = total;
    return total;
  }

  /** Tells what CPU time has been used since it was last told. */
  countCpu(): void {
    if (this.#current) this.#countCpu(this.#current.instance);
    for (const instance of this.#draining) this.#countCpu(instance);
    this.#countBindingCpu();
  }

  /** Opens the sockets again that a restarted part served. */
  async reopen(part: 'storage' | 'egress'): Promise<void> {
    if (!this.#shared?.isLookedAfterBy(this)) return;
    if (part === 'storage') await this.#shared.current?.openStorage();
    else await this.#shared.current?.openEgress();
  }

  /** Every process of the slug, for limits that the kernel keeps. */
  pids(): number[] {
    const own = this.#current?.instance.pid;
    return [...(own === undefined ? [] : [own]), ...this.#ownProcesses.flatMap((processes) => processes.pids())];
  }

  status(): InstanceStatus {
    const current = this.#current?.instance;
    const { lastExit, pauseMs } = this.#record;
    return {
      state: this.state,
      inFlight: this.inFlight,
      ...(current
        ? {
            generation: current.generation,
            revision: current.spec.revision,
            startedAt: current.startedAt,
            memoryBytes: this.#usage.privateBytes,
            cpuMs: this.#usage.cpuMs,
          }
        : {}),
      ...(lastExit ? { lastExit } : {}),
      ...(pauseMs > 0 ? { retryAt: Date.now() + pauseMs } : {}),
    };
  }

  /** The address of the instance in service, for an edge that starts later. */
  address(): { slug: string; generation: number; socket: string } | undefined {
    const current = this.#current?.instance;
    return current?.alive ? { slug: this.key, generation: current.generation, socket: current.socket } : undefined;
  }

  async #startCold(): Promise<InstanceProcess> {
    const running = this.#current?.instance;
    if (running?.alive) return running;
    this.#record.refuseWhileBackingOff();
    const { dependencies, admit } = this.#options;
    const startedAt = performance.now();
    const [spec] = await Promise.all([dependencies.resolve(this.slug, this.preview), admit()]);
    if (this.#tenant !== undefined && this.#tenant !== spec.tenant) await this.#closeServices();
    const instance = await this.#start(spec);
    // Not waited for: the edge that asked learns it from the answer, the others may as well ask.
    void this.#notices.inService(instance).catch(() => undefined);
    this.#emit({
      type: 'started',
      slug: this.slug,
      tenant: spec.tenant,
      generation: instance.generation,
      coldStartMs: performance.now() - startedAt,
    });
    return instance;
  }

  /** Starts an instance beside whatever runs, and makes it the current one. */
  async #start(spec: InstanceSpec): Promise<InstanceProcess> {
    const { dependencies, nextGeneration } = this.#options;
    const { log } = dependencies;
    const config = { ...dependencies.config, ...limitsOf('runtime', spec.limits) };
    const tenant = spec.tenant;
    const generation = nextGeneration();
    this.#tenant = tenant;
    this.#shared = this.#options.servicesOf(tenant);
    const { services, prewarmed } = await this.#shared
      .enter(this, async (known) => {
        const prewarmed = await this.#sandbox(spec, generation, known);
        prewarmed.cgroup?.allow(config.memoryBytes * HARD_LIMIT);
        const services =
          known ??
          new Services({
            dependencies,
            spec,
            prewarmed,
            onBindingDeath: (text) => this.#log({ kind: 'platform', event: 'database-ended', text }),
          });
        return { services, prewarmed };
      })
      .catch(async (error) => {
        if (!this.#current && this.#draining.size === 0) await this.#closeServices();
        throw error;
      });
    const placed = services.place(spec.assets);
    void prewarmed.process.ended.then(() => placed.release());
    const starting = Promise.all([this.#join(spec, generation, prewarmed), placed.done]).then(([member]) =>
      InstanceProcess.start({
        spec,
        generation,
        prewarmed,
        member,
        away: this.#options.members !== undefined && !member && this.#objects.isKept(spec),
        heapMb: config.heapMb,
        startTimeoutMs: config.startTimeoutMs,
        onLog: (entry) => this.#log(entry),
        onFailing: (instance, { reason, detail }) => void this.#notices.failed(instance, reason, detail),
        onDiagnostic: (text) => log.debug({ tenant, slug: this.slug, text }, 'workerd'),
      }),
    );
    try {
      services.showAt(path.join(dependencies.runFolder, this.slug));
      const [instance] = await Promise.all([starting, services.open(spec)]);
      this.#adopt(instance);
      if (this.#processesUsed) services.warm(spec.bindings);
      return instance;
    } catch (error) {
      void starting.then((instance) => instance.kill('start_failed', 'A service did not open.')).catch(() => undefined);
      if (!this.#current && this.#draining.size === 0) await this.#closeServices();
      if (error instanceof Problem && (error.code === 'start_failed' || error.code === 'memory_exceeded')) {
        this.#failed(error.code, error.message, 0);
        this.#emit({ type: 'start_failed', slug: this.slug, tenant, detail: error.message });
      }
      throw error;
    }
  }

  /** Makes an instance whose objects are the cluster's a member of it. */
  async #join(spec: InstanceSpec, generation: number, prewarmed: PrewarmedSandbox) {
    const { members } = this.#options;
    if (!members || prewarmed.inside.objects === undefined) return undefined;
    try {
      return await members.join(spec.tenant, generation, this.#objects.part(spec), prewarmed);
    } catch (error) {
      prewarmed.process.kill();
      await prewarmed.process.ended;
      throw error;
    }
  }

  /** @throws Problem quota_exceeded */
  async #sandbox(spec: InstanceSpec, generation: number, known: Services | undefined): Promise<PrewarmedSandbox> {
    const { standby } = this.#options;
    const uid = known ? known.uid : tenantUser(spec.tenant);
    const special = { uid, objects: await this.#objects.open(spec, uid, generation, this.#draining) };
    if (!known) return special.objects ? await standby.make(special) : await standby.take();
    const waiting = special.objects ? undefined : await known.next.take();
    return waiting ?? (await this.#beside(known, generation, special));
  }

  /** A sandbox for one more instance on the services. */
  #beside(
    known: Services,
    generation: number,
    special: Pick<PrewarmedSandboxOptions, 'uid' | 'objects'>,
  ): Promise<PrewarmedSandbox> {
    const { dependencies, cgroups } = this.#options;
    return startPrewarmedSandbox({
      ...special,
      sandbox: dependencies.sandbox,
      listenFolder: known.listenFolder(generation),
      servicesFolder: known.folder,
      cgroups,
    });
  }

  /** An update of what runs is being checked. */
  expectUpdate(): void {
    const services = this.#shared?.current;
    const bindings = this.#current?.instance.spec.bindings;
    if (!services || !bindings || objectsOf(bindings, this.#options.members !== undefined)) return;
    services.next.prepare(() => this.#beside(services, this.#options.nextGeneration(), { uid: services.uid }));
  }

  #adopt(instance: InstanceProcess): void {
    const { config } = this.#options.dependencies;
    const { memoryBytes, cpuStallMs } = { ...config, ...limitsOf('runtime', instance.spec.limits) };
    this.#current = new WatchedInstance(instance, {
      memoryBytes,
      cpuStallMs,
      // Most that are over their limits soon are so again, in less time than it takes to tell that they are hungry.
      yielding: this.#record.exceededLately,
      onExceeded: (reason, detail) => this.#kill(instance, reason, detail),
    });
    this.#activity.touch();
    this.#log({ kind: 'platform', event: 'started', text: `revision ${instance.spec.revision}` });
    void instance.ended.then((exit) => this.#ended(instance, exit));
  }

  /** Tells the edges first: those who wait for an answer should get the reason, not a broken connection. */
  #kill(instance: InstanceProcess, reason: LimitReason, detail: string): void {
    if (instance.ending) return;
    // Whoever asks from now on gets a new one.
    if (this.#current?.instance === instance) this.#current = undefined;
    this.#draining.add(instance);
    void instance.kill(reason, detail, this.#notices.failed(instance, reason, detail));
  }

  /** The process is gone, for whatever reason. */
  #ended(instance: InstanceProcess, exit: InstanceExit): void {
    const { reason, detail } = exit;
    const { log } = this.#options.dependencies;
    const wasCurrent = this.#current?.instance === instance;
    if (wasCurrent) this.#current = undefined;
    this.#draining.delete(instance);
    if (isFailure(reason)) {
      void this.#notices.failed(instance, reason, detail);
      this.#failed(reason, detail, instance.ageMs);
    } else if (wasCurrent || reason !== 'replaced') {
      this.#record.stopped({ reason, detail, at: this.#options.dependencies.clock.now() });
      this.#log({ kind: 'platform', event: 'stopped', text: detail });
    }
    this.#countCpu(instance);
    const { cpuMs } = instance.usage();
    log.debug({ slug: this.slug, reason, detail, cpuMs }, 'instance ended');
    this.#emit({
      type: 'stopped',
      slug: this.slug,
      tenant: instance.spec.tenant,
      generation: instance.generation,
      reason,
      detail,
      cpuMs,
    });
    this.#objects.ended(instance, reason);
    if (!this.#current && this.#draining.size === 0) {
      this.#activity.forgetRequests();
      // A start that waits for its turn makes the services its own.
      void this.#inTurn(async () => {
        if (!this.#current && this.#draining.size === 0) await this.#closeServices();
      });
    }
  }

  #countCpu(instance: InstanceProcess): void {
    const cpuMs = instance.takeCpuMs();
    if (cpuMs > 0) this.#emit({ type: 'used', slug: this.slug, tenant: instance.spec.tenant, cpuMs });
  }

  #countBindingCpu(): void {
    let cpuMs = 0;
    for (const processes of this.#shared?.current?.processes ?? []) cpuMs += processes.takeCpuMs();
    if (cpuMs > 0 && this.#tenant !== undefined)
      this.#emit({ type: 'used', slug: this.slug, tenant: this.#tenant, cpuMs });
  }

  /** Takes an instance out of service, lets its requests end, ends it. */
  async #end(
    instance: InstanceProcess,
    reason: ExitReason,
    detail: string,
    drainMs: number,
    atOnce = false,
  ): Promise<void> {
    if (this.#current?.instance === instance) this.#current = undefined;
    this.#draining.add(instance);
    instance.leave();
    // Where somebody waits for the end, they are cut off.
    const runs = PATIENT.has(reason) && Promise.race([instance.runsEnded(), delay(drainMs, undefined, { ref: false })]);
    await Promise.race([Promise.all([this.#notices.retired(instance, drainMs), runs]), instance.ended]);
    if (atOnce) await instance.kill(reason, detail);
    else await instance.terminate(reason, detail);
  }

  #failed(reason: ExitReason, detail: string, ranMs: number): void {
    this.#record.failed({ reason, detail, at: this.#options.dependencies.clock.now() }, ranMs);
    const { pauseMs } = this.#record;
    const next = pauseMs > 0 ? ` It is started again in ${Math.ceil(pauseMs / 1_000)} s at the earliest.` : '';
    this.#log({ kind: 'platform', event: 'killed', text: `${reason}: ${detail}${next}` });
  }

  /** Of the bindings, where it is this runner that looks after them. */
  get #ownProcesses(): BindingProcesses[] {
    return (this.#shared?.isLookedAfterBy(this) && this.#shared.current?.processes) || [];
  }

  async #closeServices(): Promise<void> {
    this.#countBindingCpu();
    const shared = this.#shared;
    this.#shared = undefined;
    await shared?.leave(this);
  }

  #log(entry: NewLogEntry): void {
    const { logs, log } = this.#options.dependencies;
    if (this.#tenant === undefined) return;
    const text = this.preview === undefined ? entry.text : `[${this.preview}] ${entry.text}`;
    logs
      .append(this.#tenant, { ...entry, text })
      .catch((error) => log.warn({ err: error }, "a tenant's log cannot be written"));
  }

  #emit(event: RuntimeEvent): void {
    this.#options.dependencies.onEvent?.(event);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#turns++;
    const turn = this.#turn.then(work, work).finally(() => {
      this.#turns--;
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}
