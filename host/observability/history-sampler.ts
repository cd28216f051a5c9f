/** Takes what the host counts anyway, once a minute, and adds it to the history. */
import { statfs } from 'node:fs/promises';
import type { Logger } from 'pino';
import { usageOf } from '../sandbox/process-tree.ts';
import type { TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';
import {
  busiestOf,
  emptyMinute,
  type History,
  LATENCY_BOUNDS,
  MINUTE_MS,
  type Minute,
  type ProcessGroup,
  type Traffic,
} from './history.ts';

/** Tenants whose traffic is told apart between two samples; the traffic of others is in the sums alone. */
const MOST_TENANTS = 4_096;
/** An edge that does not answer is left out. */
const READ_TIMEOUT_MS = 2_000;
/** Who asks for the history sees it as of this long ago at most, ms. */
const FRESH_MS = 1_000;

export interface SamplerSources {
  history: History;
  tally: Tally;
  /** Of the host itself, this one included. */
  processes(): { group: ProcessGroup; pid: number | undefined }[];
  /** Each edge's metrics, as Prometheus gets them. */
  edges(): { process: string; read(): Promise<unknown> }[];
  /** Instances that run, and their memory in bytes. */
  instances(): { running: number; memoryBytes: number };
  /** Deployments that serve. */
  deployments(): Promise<number>;
  dataFolder: string;
  log: Pick<Logger, 'warn'>;
}

/** What is counted as it happens, until the next sample takes it. */
export class Tally {
  #counted = nothing();

  onTraffic(traffic: Traffic): void {
    const known = this.#counted.traffic.get(traffic.tenant);
    if (known) {
      known.requests += traffic.requests;
      known.errors += traffic.errors;
    } else if (this.#counted.traffic.size < MOST_TENANTS) this.#counted.traffic.set(traffic.tenant, { ...traffic });
  }

  onInstanceCpu(ms: number): void {
    this.#counted.instanceCpuMs += ms;
  }

  onPayment({ microUsd, earnedMicroUsd }: { microUsd: bigint; earnedMicroUsd: bigint }): void {
    this.#counted.payments += 1;
    this.#counted.charged += Number(microUsd);
    this.#counted.earned += Number(earnedMicroUsd);
  }

  take() {
    const counted = this.#counted;
    this.#counted = nothing();
    return counted;
  }
}

export class HistorySampler {
  readonly #sources: SamplerSources;
  readonly #turns = new Mutex();
  /** Counters as they were last, by the process that keeps them. */
  readonly #edges = new Map<string, number[]>();
  readonly #cpu = new Map<number, number>();
  #sampledAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(sources: SamplerSources) {
    this.#sources = sources;
  }

  start(): void {
    const wait = MINUTE_MS - (Date.now() % MINUTE_MS);
    // Just before the minute is over, so that what was counted in it counts for it.
    this.#timer = setTimeout(() => void this.sample().finally(() => this.start()), Math.max(1_000, wait - 500));
    this.#timer.unref();
  }

  /** With what happened since the last minute. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await this.sample();
  }

  /** Before somebody reads the history: it then ends now. */
  refresh(): Promise<void> {
    return performance.now() - this.#sampledAt < FRESH_MS ? Promise.resolve() : this.sample();
  }

  /** Never rejects: a full disk costs the minute alone. */
  sample(): Promise<void> {
    return this.#turns.run(async () => {
      this.#sampledAt = performance.now();
      const { history, log } = this.#sources;
      try {
        await history.add(Date.now(), await this.#read());
      } catch (error) {
        log.warn({ err: error }, 'a minute of the history was not written');
      }
    });
  }

  async #read(): Promise<Minute> {
    const { tally, processes, edges, instances, deployments, dataFolder } = this.#sources;
    const counted = tally.take();
    const minute = emptyMinute();
    const { running, memoryBytes } = instances();
    const [disk, serving, ...fromEdges] = await Promise.all([
      statfs(dataFolder),
      deployments(),
      ...edges().map(async ({ process, read }) => ({ process, counts: countsOf(await within(read())) })),
    ]);
    const pids = new Set<number>();
    for (const { group, pid } of processes()) {
      const used = pid === undefined ? undefined : usageOf(pid);
      if (pid === undefined || !used) continue;
      pids.add(pid);
      // Before its first sample it used what it used.
      minute.cpuMs[group] += Math.max(0, used.cpuMs - (this.#cpu.get(pid) ?? 0));
      minute.memory[group] += used.privateBytes;
      this.#cpu.set(pid, used.cpuMs);
    }
    for (const pid of this.#cpu.keys()) if (!pids.has(pid)) this.#cpu.delete(pid);
    for (const { process, counts } of fromEdges) if (counts) addCounts(minute, this.#since(process, counts));
    minute.cpuMs.instances = counted.instanceCpuMs;
    minute.memory.instances = memoryBytes;
    minute.instances = running;
    minute.deployments = serving;
    minute.diskFree = disk.bavail * disk.bsize;
    minute.diskTotal = disk.blocks * disk.bsize;
    minute.payments = counted.payments;
    minute.charged = counted.charged;
    minute.earned = counted.earned;
    minute.busiest = busiestOf(counted.traffic.values());
    return minute;
  }

  /** What was added to counters; a process that was started again began at 0. */
  #since(process: string, counts: number[]): number[] {
    const before = this.#edges.get(process) ?? [];
    this.#edges.set(process, counts);
    const isAnew = counts.some((count, index) => count < (before[index] ?? 0));
    return isAnew ? counts : counts.map((count, index) => count - (before[index] ?? 0));
  }
}

function nothing() {
  return { payments: 0, charged: 0, earned: 0, instanceCpuMs: 0, traffic: new Map<TenantId, Traffic>() };
}

interface MetricJson {
  name: string;
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[];
}

/** All requests, those answered 4xx, 5xx and 402, and requests by duration; undefined where an edge did not answer. */
function countsOf(metrics: unknown): number[] | undefined {
  if (!Array.isArray(metrics)) return undefined;
  const found = new Map((metrics as MetricJson[]).map(({ name, values }) => [name, values]));
  const requests = found.get('turnpike_edge_requests_total') ?? [];
  const sum = (of: (status: string | number | undefined) => boolean) =>
    requests.reduce((total, { labels, value }) => (of(labels.status) ? total + value : total), 0);
  const unpaid = found.get('turnpike_edge_unpaid_total')?.[0]?.value ?? 0;
  const upTo = (found.get('turnpike_edge_duration_seconds') ?? [])
    .filter(({ metricName }) => metricName?.endsWith('_bucket'))
    .map(({ value }) => value);
  const latency = upTo.map((count, index) => count - (upTo[index - 1] ?? 0));
  return [
    sum(() => true),
    sum((status) => status === '4xx'),
    sum((status) => status === '5xx'),
    unpaid,
    ...latency.slice(0, LATENCY_BOUNDS.length + 1),
  ];
}

function addCounts(
  minute: Minute,
  [requests = 0, clientErrors = 0, serverErrors = 0, unpaid = 0, ...latency]: number[],
) {
  minute.requests += requests;
  minute.clientErrors += clientErrors;
  minute.serverErrors += serverErrors;
  minute.unpaid += unpaid;
  minute.latency = minute.latency.map((count, index) => count + (latency[index] ?? 0));
}

function within<T>(work: Promise<T>): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, READ_TIMEOUT_MS, undefined);
  return Promise.race([work.catch(() => undefined), late.promise]).finally(() => clearTimeout(timer));
}
