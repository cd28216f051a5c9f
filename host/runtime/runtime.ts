/** All running deployments of this node: composes the runners, watches CPU and memory over all of them. */
import { mkdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ObjectAlarms } from '../bindings/durable-objects/alarms.ts';
import { objectsFolder, removePassed } from '../bindings/durable-objects/folder.ts';
import type { QueueAnswer, QueueCall } from '../bindings/queues/call.ts';
import type { Visit } from '../bindings/services/directory.ts';
import { IdleCores } from '../sandbox/idle-cores.ts';
import { endLeftovers } from '../sandbox/leftovers.ts';
import { availableMemory } from '../sandbox/process-tree.ts';
import type { EdgeTraffic, InstancePlan, TenantId } from '../shared/contracts.ts';
import { ofInstanceKey } from '../shared/previews.ts';
import { Problem } from '../shared/problem.ts';
import { Cgroups } from './cgroups.ts';
import type { InstanceStatus, Runtime, RuntimeDependencies, ScheduledResult } from './contract.ts';
import type { ProbePlace } from './deploy/probe.ts';
import { DeploymentRunner } from './deployment-runner.ts';
import { type Candidate, chooseEvictions, type Eviction } from './eviction.ts';
import type { ExitReason } from './exit-reason.ts';
import { Members } from './members.ts';
import type { PrewarmedSandboxOptions } from './prewarmed-sandbox.ts';
import { SharedServices } from './shared-services.ts';
import { SoloTenant } from './solo-tenant.ts';
import { Standby } from './standby.ts';
import type { ScheduledAnswer } from './system-calls.ts';
import { workerdBinary } from './workerd-binary.ts';

/** Instances that burn CPU are looked at this often, ms. */
const BUSY_TICK_MS = 100;
/**
 * All others are looked at every 0.2 s while they are few, and at least every second: a handler takes 800 MB within a
 * second of its first request. One look takes about 40 µs.
 */
const FEW_TICKS = 2;
const IDLE_TICKS = 10;
const LOOKS_A_TICK = 20;
/** CPU time is counted every 10 s: what is not, is lost when the host is killed, and counts for another day after midnight. */
const COUNT_TICKS = 100;
/** CPU in one busy tick that makes an instance busy, ms. */
const BUSY_CPU_MS = 10;
/** Expected cost of one more instance, bytes. */
const START_BYTES = 16 * 1_048_576;
/** Share of the machine's memory for all instances, where the configuration does not say. */
const TOTAL_SHARE = 0.7;
/** Below this share of free memory the machine itself is short. */
const SHORT_SHARE = 0.06;

/** Folder of all instances' sockets, one numbered folder each. */
const CELLS = 'c';
/** Prewarmed sandboxes that wait for the next cold start. */
const STANDBY = 1;

/** An instance that could not follow the bucket of objects is tried again after so long, ms. */
const FOLLOW_AGAIN_MS = 2_000;

/** Previews of a slug that run at a time: they share its user, and so its limit of threads. */
const MOST_PREVIEWS = 2;
/**
 * A preview ends when it was not used for so long, ms; where another one is asked for, after the shorter time, in which
 * the edges have told of the requests that it has.
 */
const PREVIEW_IDLE_MS = 60_000;
const PREVIEW_STAYS_MS = 2_000;
/** Its requests have so long when it ends, ms: those that come meanwhile wait. */
const PREVIEW_DRAIN_MS = 5_000;

const DETAILS: Record<Eviction['reason'], string> = {
  idle: 'Nobody used it for a while; the next request starts it again.',
  swollen: 'It was idle and held much memory; the next request starts it again.',
  memory_pressure: 'It was idle and its memory was needed; the next request starts it again.',
};

export function createRuntime(dependencies: RuntimeDependencies): Runtime {
  mkdirSync(dependencies.runFolder, { recursive: true, mode: 0o700 });
  // Finds the libraries of both programs now, and not in the first tenant's cold start.
  void dependencies.sandbox.prepare([workerdBinary(), process.execPath]).catch(() => undefined);
  return new Node(dependencies);
}

class Node implements Runtime {
  readonly isolation: Runtime['isolation'];
  readonly members: Members | undefined;
  readonly #dependencies: RuntimeDependencies;
  readonly #standby: Standby;
  readonly #cgroups: PrewarmedSandboxOptions['cgroups'];
  /** By the key of their instances. */
  readonly #runners = new Map<string, DeploymentRunner>();
  readonly #services = new Map<TenantId, SharedServices>();
  /** CPU time at the last look, ms, and whether the instance was busy then. */
  readonly #seen = new Map<string, { cpuMs: number; busy: boolean }>();
  readonly #alarms: ObjectAlarms;
  readonly #soloTenant = new SoloTenant();
  readonly #idleCores = new IdleCores();
  readonly #totalBytes: number;
  readonly #timer: NodeJS.Timeout;
  #ticks = 0;
  #generation = 0;
  #closed = false;

  constructor(dependencies: RuntimeDependencies) {
    this.#dependencies = dependencies;
    const { sandbox, config, runFolder, log, cluster } = dependencies;
    if (cluster && sandbox.level === 'none')
      throw new Problem('start_failed', 'Objects of a cluster need a sandbox; set runtime.sandbox to "auto".');
    const serving = (slug: string) => this.#runners.get(slug)?.revision;
    this.members = cluster && new Members(cluster, log, serving, () => this.#followBucket());
    const waiting = path.join(runFolder, CELLS);
    // What a host that was killed left behind.
    const leftovers = endLeftovers(runFolder);
    if (leftovers.length > 0) log.info({ processes: leftovers.length }, 'sandboxes of the last run were ended');
    rmSync(waiting, { recursive: true, force: true });
    const opened = Cgroups.open();
    if ('reason' in opened) log.debug({ reason: opened.reason }, 'limits are kept by the watchdog alone');
    else this.#cgroups = { groups: opened.cgroups, memoryBytes: config.memoryBytes };
    const limits = this.#cgroups ? 'limits kept by cgroups' : 'limits kept by a watchdog';
    this.isolation = { level: sandbox.level, detail: `${sandbox.detail}; ${limits}` };
    this.#standby = new Standby({ sandbox, folder: waiting, count: STANDBY, cgroups: this.#cgroups, log });
    this.#alarms = new ObjectAlarms({
      sandbox,
      runFolder,
      log,
      wake: (slug) => this.#wake(slug),
      nextOf: cluster && ((tenant) => cluster.bucket.nextAlarm(tenant)),
    });
    this.#totalBytes = config.totalMemoryBytes || Math.floor(os.totalmem() * TOTAL_SHARE);
    this.#timer = setInterval(() => this.#tick(), BUSY_TICK_MS);
    this.#timer.unref();
  }

  async acquire(key: string): ReturnType<Runtime['acquire']> {
    for (let victim = this.#inTheWayOf(key); victim; victim = this.#inTheWayOf(key))
      await victim.stop('idle', DETAILS.idle, PREVIEW_DRAIN_MS);
    const runner = this.#runner(key);
    const { socket, generation, first } = await runner.acquire();
    const beside = runner.addresses().filter((one) => one.first === first && one.generation !== generation);
    return { socket, generation, first, ...(beside.length > 0 ? { beside } : {}) };
  }

  async visit(slug: string): Promise<Visit> {
    return this.#runner(slug).runs.visit();
  }

  expectUpdate(planned: InstancePlan): ProbePlace | undefined {
    return this.#runners.get(planned.slug)?.expectUpdate(planned);
  }

  async activate(slug: string): Promise<void> {
    await this.#runners.get(slug)?.activate();
    this.endPreviews(slug);
  }

  endPreviews(slug: string): void {
    for (const runner of this.#previewsOf(slug))
      void runner.stop('replaced', 'The deployment was changed.', PREVIEW_DRAIN_MS).catch(this.#notStopped(runner));
  }

  async stop(slug: string, reason: ExitReason, options: { drainMs?: number } = {}): Promise<void> {
    const runners = [this.#runners.get(slug), ...this.#previewsOf(slug)];
    await Promise.all(runners.map((runner) => runner?.stop(reason, 'The deployment was stopped.', options.drainMs)));
  }

  async runScheduled(slug: string, cron: string, scheduledTimeMs: number): Promise<ScheduledResult> {
    if (this.#closed) return { outcome: 'interrupted', error: 'The host is stopping.', durationMs: 0 };
    return this.#runner(slug).runs.scheduled(cron, scheduledTimeMs);
  }

  async callQueue(slug: string, binding: string, call: QueueCall): Promise<QueueAnswer> {
    return this.#runner(slug).runs.queue(binding, call);
  }

  async tail(slug: string, from: string, events: Buffer): Promise<ScheduledAnswer> {
    return this.#runner(slug).runs.tail(from, events);
  }

  status(slug: string): InstanceStatus {
    return this.#runners.get(slug)?.status() ?? { state: 'cold', inFlight: 0 };
  }

  get starting(): boolean {
    return [...this.#runners.values()].some((runner) => runner.starting);
  }

  list(): ReturnType<Runtime['list']> {
    return [...this.#runners.values()].flatMap((runner) =>
      runner.tenant === undefined || runner.state === 'cold'
        ? []
        : [{ slug: runner.slug, tenant: runner.tenant, status: runner.status() }],
    );
  }

  instances(): ReturnType<Runtime['instances']> {
    return [...this.#runners.values()].flatMap((runner) => runner.addresses());
  }

  reportTraffic(traffic: EdgeTraffic[]): void {
    const now = performance.now();
    for (const report of traffic) {
      const { slug: key, requests, inFlight } = report;
      this.#runners.get(key)?.reportTraffic(report);
      if (requests > 0 || inFlight > 0) this.#soloTenant.seen(ofInstanceKey(key).slug, now);
    }
  }

  watchAlarms(deployments: Parameters<Runtime['watchAlarms']>[0]): void {
    const { tenantsFolder } = this.#dependencies;
    for (const { slug, tenant } of deployments) {
      // One that runs is looked at when it has ended.
      if (this.status(slug).state === 'cold')
        this.#alarms.look({ slug, tenant, folder: objectsFolder(tenantsFolder, tenant) });
    }
    void removePassed(tenantsFolder, deployments).catch((err) =>
      this.#dependencies.log.warn({ err }, 'copies of objects stay'),
    );
  }

  async #wake(slug: string): Promise<void> {
    if (!this.#closed) await this.#runner(slug).acquire();
  }

  async standStill<Result>(tenant: TenantId, work: () => Promise<Result>): Promise<Result> {
    const runner = [...this.#runners.values()].find((one) => one.tenant === tenant && one.preview === undefined);
    return runner ? runner.standStill(work) : work();
  }

  async reopen(part: 'storage' | 'egress'): Promise<void> {
    const results = await Promise.allSettled([...this.#runners.values()].map((runner) => runner.reopen(part)));
    for (const result of results) {
      if (result.status === 'rejected') {
        this.#dependencies.log.warn({ err: result.reason, part }, "a tenant's sockets were not opened again");
      }
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#alarms.close();
    await Promise.all([...this.#runners.values()].map((runner) => runner.stop('shutdown', 'The host is stopping.', 0)));
    await this.#standby.close();
    await this.members?.settled();
    this.#dependencies.cluster?.bucket.close();
    rmSync(path.join(this.#dependencies.runFolder, CELLS), { recursive: true, force: true });
  }

  #followBucket(): void {
    for (const runner of this.#runners.values()) this.#follow(runner);
  }

  #follow(runner: DeploymentRunner): void {
    runner.followBucket().catch((error) => {
      this.#dependencies.log.warn(
        { err: error, slug: runner.key },
        'an instance with objects was not replaced; tried again',
      );
      setTimeout(() => this.#follow(runner), FOLLOW_AGAIN_MS).unref();
    });
  }

  #previewsOf(slug: string): DeploymentRunner[] {
    return [...this.#runners.values()].filter((runner) => runner.slug === slug && runner.preview !== undefined);
  }

  /** A preview that ends for another one to start; undefined where there is room. @throws Problem overloaded */
  #inTheWayOf(key: string): DeploymentRunner | undefined {
    const { slug, preview } = ofInstanceKey(key);
    if (preview === undefined || (this.#runners.get(key)?.state ?? 'cold') !== 'cold') return undefined;
    const running = this.#previewsOf(slug).filter(({ state }) => state !== 'cold');
    if (running.length < MOST_PREVIEWS) return undefined;
    const before = performance.now() - PREVIEW_STAYS_MS;
    const [idle] = running
      .filter(({ state, inFlight, lastActive }) => state === 'warm' && inFlight === 0 && lastActive < before)
      .sort((a, b) => a.lastActive - b.lastActive);
    if (idle) return idle;
    throw new Problem(
      'overloaded',
      `${MOST_PREVIEWS} other previews of ${slug} are in use, and no more run at a time; try again in a few seconds.`,
      { headers: { 'retry-after': '5' } },
    );
  }

  #servicesOf(tenant: TenantId): SharedServices {
    const services = this.#services.get(tenant) ?? new SharedServices(() => this.#services.delete(tenant));
    this.#services.set(tenant, services);
    return services;
  }

  #notStopped({ key }: DeploymentRunner): (error: unknown) => void {
    return (error) => this.#dependencies.log.error({ err: error, slug: key }, 'an instance was not stopped');
  }

  #runner(key: string): DeploymentRunner {
    if (this.#closed) throw new Problem('not_ready', 'The host is stopping; try again when it runs again.');
    let runner = this.#runners.get(key);
    if (!runner) {
      runner = new DeploymentRunner({
        ...ofInstanceKey(key),
        servicesOf: (tenant) => this.#servicesOf(tenant),
        dependencies: this.#dependencies,
        standby: this.#standby,
        cgroups: this.#cgroups,
        // What a preview keeps is its own, as on one box.
        members: ofInstanceKey(key).preview === undefined ? this.members : undefined,
        nextGeneration: () => ++this.#generation,
        admit: () => this.#admit(),
        onObjectsAtRest: (objects) => this.#alarms.look(objects),
      });
      this.#runners.set(key, runner);
    }
    return runner;
  }

  #tick(): void {
    const now = performance.now();
    const tick = this.#ticks++;
    const wait = Math.max(FEW_TICKS, Math.min(IDLE_TICKS, Math.ceil(this.#runners.size / LOOKS_A_TICK)));
    const everyone = tick % wait === 0;
    for (const [key, runner] of this.#runners) {
      const { slug } = runner;
      const seen = this.#seen.get(key);
      const alone = this.#soloTenant.isAlone(slug, now);
      runner.sampleDraining(now, alone);
      if (runner.state === 'cold') {
        this.#seen.delete(key);
        if (runner.forgettable) this.#runners.delete(key);
        continue;
      }
      if (tick % COUNT_TICKS === 0) runner.countCpu();
      if (!everyone && !seen?.busy) continue;
      const { cpuMs } = runner.sample(now, alone);
      runner.adjustCount(now, () => this.#idleCores.read(now));
      if (seen && cpuMs > seen.cpuMs) this.#soloTenant.seen(slug, now);
      this.#seen.set(key, { cpuMs, busy: cpuMs - (seen?.cpuMs ?? cpuMs) >= BUSY_CPU_MS });
    }
    if (tick % IDLE_TICKS === 0) this.#evict(0);
  }

  /** Ends idle instances where they are too old, too large or in the way. */
  #evict(wantedBytes: number): void {
    const { config } = this.#dependencies;
    const shortage = Math.max(0, os.totalmem() * SHORT_SHARE - availableMemory());
    // What the machine lacks counts as if instances held it beyond their total.
    const extra = shortage > 0 ? Math.max(0, this.#totalBytes - this.#used()) + shortage : 0;
    const evictions = chooseEvictions(
      this.#candidates(),
      {
        idleMs: config.idleMs,
        bloatedIdleMs: config.bloatedIdleMs,
        bloatedBytes: config.bloatedBytes,
        totalBytes: this.#totalBytes,
      },
      performance.now(),
      wantedBytes + extra,
    );
    if (this.#used() + wantedBytes + extra > this.#totalBytes)
      for (const runner of this.#runners.values()) runner.makeDo();
    for (const { slug: key, reason } of evictions) {
      const runner = this.#runners.get(key);
      void runner?.stop(reason, DETAILS[reason]).catch(this.#notStopped(runner));
    }
  }

  async #admit(): Promise<void> {
    if (this.#closed) throw new Problem('not_ready', 'The host is stopping; try again when it runs again.');
    if (this.#used() + START_BYTES <= this.#totalBytes) return;
    this.#evict(START_BYTES);
    const relief = this.#candidates().some(({ inFlight }) => inFlight === 0);
    if (!relief && this.#used() + START_BYTES > this.#totalBytes) {
      throw new Problem('overloaded', 'All memory for handlers is in use; try again in a few seconds.', {
        headers: { 'retry-after': '5' },
      });
    }
  }

  #used(): number {
    let used = 0;
    for (const runner of this.#runners.values()) used += runner.privateBytes;
    return used;
  }

  #candidates(): Candidate[] {
    return [...this.#runners.values()].flatMap((runner) =>
      runner.state === 'warm'
        ? [
            {
              slug: runner.key,
              ...(runner.preview === undefined ? {} : { idleMs: PREVIEW_IDLE_MS }),
              lastActive: runner.lastActive,
              inFlight: runner.inFlight,
              privateBytes: runner.privateBytes,
            },
          ]
        : [],
    );
  }
}
