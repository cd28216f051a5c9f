/** All running deployments of this node: composes the runners, watches CPU and memory over all of them. */
import { mkdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ObjectAlarms } from '../bindings/durable-objects/alarms.ts';
import { objectsFolder } from '../bindings/durable-objects/folder.ts';
import { endLeftovers } from '../sandbox/leftovers.ts';
import { availableMemory } from '../sandbox/process-tree.ts';
import type { EdgeTraffic, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { Cgroups } from './cgroups.ts';
import type { ExitReason, InstanceStatus, Runtime, RuntimeDependencies, ScheduledResult } from './contract.ts';
import { DeploymentRunner } from './deployment-runner.ts';
import { type Candidate, chooseEvictions, type Eviction } from './eviction.ts';
import type { PrewarmedSandboxOptions } from './prewarmed-sandbox.ts';
import { SoloTenant } from './solo-tenant.ts';
import { Standby } from './standby.ts';
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
  readonly #dependencies: RuntimeDependencies;
  readonly #standby: Standby;
  readonly #cgroups: PrewarmedSandboxOptions['cgroups'];
  readonly #runners = new Map<string, DeploymentRunner>();
  /** CPU time at the last look, ms, and whether the instance was busy then. */
  readonly #seen = new Map<string, { cpuMs: number; busy: boolean }>();
  readonly #alarms: ObjectAlarms;
  readonly #soloTenant = new SoloTenant();
  readonly #totalBytes: number;
  readonly #timer: NodeJS.Timeout;
  #ticks = 0;
  #generation = 0;
  #closed = false;

  constructor(dependencies: RuntimeDependencies) {
    this.#dependencies = dependencies;
    const { sandbox, config, runFolder, log } = dependencies;
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
    this.#alarms = new ObjectAlarms({ sandbox, runFolder, log, wake: (slug) => this.#wake(slug) });
    this.#totalBytes = config.totalMemoryBytes || Math.floor(os.totalmem() * TOTAL_SHARE);
    this.#timer = setInterval(() => this.#tick(), BUSY_TICK_MS);
    this.#timer.unref();
  }

  async acquire(slug: string): Promise<{ socket: string; generation: number }> {
    const { socket, generation } = await this.#runner(slug).acquire();
    return { socket, generation };
  }

  async activate(slug: string): Promise<void> {
    await this.#runners.get(slug)?.activate();
  }

  async stop(slug: string, reason: ExitReason, options: { drainMs?: number } = {}): Promise<void> {
    await this.#runners.get(slug)?.stop(reason, 'The deployment was stopped.', options.drainMs);
  }

  async runScheduled(slug: string, cron: string, scheduledTimeMs: number): Promise<ScheduledResult> {
    if (this.#closed) return { outcome: 'interrupted', error: 'The host is stopping.', durationMs: 0 };
    return this.#runner(slug).runScheduled(cron, scheduledTimeMs);
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
    return [...this.#runners.values()].flatMap((runner) => runner.address() ?? []);
  }

  reportTraffic(traffic: EdgeTraffic[]): void {
    const now = performance.now();
    for (const report of traffic) {
      const { slug, requests, inFlight } = report;
      this.#runners.get(slug)?.reportTraffic(report);
      if (requests > 0 || inFlight > 0) this.#soloTenant.seen(slug, now);
    }
  }

  watchAlarms(deployments: Parameters<Runtime['watchAlarms']>[0]): void {
    const { tenantsFolder } = this.#dependencies;
    for (const { slug, tenant } of deployments) {
      // One that runs is looked at when it has ended.
      if (this.status(slug).state === 'cold')
        this.#alarms.look({ slug, tenant, folder: objectsFolder(tenantsFolder, tenant) });
    }
  }

  async #wake(slug: string): Promise<void> {
    if (!this.#closed) await this.#runner(slug).acquire();
  }

  async standStill<Result>(tenant: TenantId, work: () => Promise<Result>): Promise<Result> {
    const runner = [...this.#runners.values()].find((one) => one.tenant === tenant);
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
    rmSync(path.join(this.#dependencies.runFolder, CELLS), { recursive: true, force: true });
  }

  #runner(slug: string): DeploymentRunner {
    if (this.#closed) throw new Problem('not_ready', 'The host is stopping; try again when it runs again.');
    let runner = this.#runners.get(slug);
    if (!runner) {
      runner = new DeploymentRunner({
        slug,
        dependencies: this.#dependencies,
        standby: this.#standby,
        cgroups: this.#cgroups,
        nextGeneration: () => ++this.#generation,
        admit: () => this.#admit(),
        onObjectsAtRest: (objects) => this.#alarms.look(objects),
      });
      this.#runners.set(slug, runner);
    }
    return runner;
  }

  #tick(): void {
    const now = performance.now();
    const tick = this.#ticks++;
    const wait = Math.max(FEW_TICKS, Math.min(IDLE_TICKS, Math.ceil(this.#runners.size / LOOKS_A_TICK)));
    const everyone = tick % wait === 0;
    for (const [slug, runner] of this.#runners) {
      const seen = this.#seen.get(slug);
      if (runner.state === 'cold') {
        this.#seen.delete(slug);
        if (runner.forgettable) this.#runners.delete(slug);
        continue;
      }
      if (tick % COUNT_TICKS === 0) runner.countCpu();
      if (!everyone && !seen?.busy) continue;
      const { cpuMs } = runner.sample(now, this.#soloTenant.isAlone(slug, now));
      if (seen && cpuMs > seen.cpuMs) this.#soloTenant.seen(slug, now);
      this.#seen.set(slug, { cpuMs, busy: cpuMs - (seen?.cpuMs ?? cpuMs) >= BUSY_CPU_MS });
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
    for (const { slug, reason } of evictions) {
      void this.#runners
        .get(slug)
        ?.stop(reason, DETAILS[reason])
        .catch((error) => {
          this.#dependencies.log.error({ err: error, slug }, 'an instance was not stopped');
        });
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
              slug: runner.slug,
              lastActive: runner.lastActive,
              inFlight: runner.inFlight,
              privateBytes: runner.privateBytes,
            },
          ]
        : [],
    );
  }
}
