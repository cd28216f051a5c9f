/**
 * What control counts about the whole host. Labels are closed sets (states, reasons, outcomes): never a slug, a wallet
 * or a path, whose number nobody bounds.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** Read when metrics are asked for. */
export interface HostGauges {
  /** Deployments by state. */
  deployments(): Promise<Record<string, number>> | Record<string, number>;
  /** Instances by state, and private memory of all of them in bytes. */
  instances(): { byState: Record<string, number>; memoryBytes: number };
  /** Restarts of each process of the host since the start. */
  restarts(): Record<string, number>;
  /** Payments by state, and amounts still owed to others in micro-USD. */
  payments(): Promise<{ byState: Record<string, number>; owedMicroUsd: number }>;
  /** The checks of the books that stopped payouts; empty: they are sent. */
  stoppedPayouts(): string[];
  /** Things that wait, by queue: `cron`, `payout`, ... */
  queues(): Promise<Record<string, number>> | Record<string, number>;
}

export interface HostMetrics {
  registry: Registry;
  /** Adds what is read when metrics are asked for. Call it once. */
  watch(gauges: HostGauges): void;
  /** The runtime's events: pass `onEvent` to `createRuntime`. */
  onRuntimeEvent(
    event:
      | { type: 'started'; coldStartMs: number }
      | { type: 'used'; cpuMs: number }
      | { type: 'stopped'; reason: string }
      | { type: 'start_failed' },
  ): void;
  /** Pass as `onRun` to TenantCrons. */
  onCronRun(run: { outcome: string; lateMs: number; durationMs: number }): void;
  /** A request that control answered. `kind`: `admin`, `toll`, `page`, ... */
  onControlRequest(request: { kind: string; status: number; seconds: number }): void;
  /** A payment reached a final state. */
  onPayment(payment: { rail: string; kind: string; outcome: string; microUsd: bigint }): void;
}

/** How often the delay of the event loop is looked at, ms: each look wakes a host that has nothing else to do. */
const EVENT_LOOP_SAMPLE_MS = 200;

const COLD_START_SECONDS = [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2, 5, 10];
const REQUEST_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const RUN_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300];

export function createHostMetrics(): HostMetrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({
    register: registry,
    prefix: 'turnpike_',
    eventLoopMonitoringPrecision: EVENT_LOOP_SAMPLE_MS,
  });

  const coldStarts = new Histogram({
    name: 'turnpike_cold_start_seconds',
    help: 'Time from the decision to start an instance until it listens',
    buckets: COLD_START_SECONDS,
    registers,
  });
  const ends = new Counter({
    name: 'turnpike_instance_ends_total',
    help: 'Instances that ended, by reason',
    labelNames: ['reason'],
    registers,
  });
  const failedStarts = new Counter({
    name: 'turnpike_instance_start_failures_total',
    help: 'Starts of instances that failed',
    registers,
  });
  const cpu = new Counter({
    name: 'turnpike_instance_cpu_seconds_total',
    help: 'CPU time of instances and their databases',
    registers,
  });
  const cronRuns = new Histogram({
    name: 'turnpike_cron_run_seconds',
    help: 'Duration of scheduled runs',
    labelNames: ['outcome'],
    buckets: RUN_SECONDS,
    registers,
  });
  const cronLate = new Histogram({
    name: 'turnpike_cron_late_seconds',
    help: 'How long after their time scheduled runs started',
    buckets: RUN_SECONDS,
    registers,
  });
  const control = new Histogram({
    name: 'turnpike_control_request_seconds',
    help: 'Requests that control answered',
    labelNames: ['kind', 'status'],
    buckets: REQUEST_SECONDS,
    registers,
  });
  const payments = new Counter({
    name: 'turnpike_payments_total',
    help: 'Payments that reached a final state',
    labelNames: ['rail', 'kind', 'outcome'],
    registers,
  });
  const paid = new Counter({
    name: 'turnpike_payments_usd_total',
    help: 'USD of payments that reached a final state',
    labelNames: ['rail', 'kind', 'outcome'],
    registers,
  });

  return {
    registry,
    watch: (gauges) => addGauges(gauges, registers),
    onRuntimeEvent(event) {
      if (event.type === 'started') coldStarts.observe(event.coldStartMs / 1000);
      else if (event.type === 'start_failed') failedStarts.inc();
      else if (event.type === 'used') cpu.inc(event.cpuMs / 1000);
      else ends.inc({ reason: event.reason });
    },
    onCronRun({ outcome, lateMs, durationMs }) {
      cronRuns.observe({ outcome }, durationMs / 1000);
      cronLate.observe(lateMs / 1000);
    },
    onControlRequest({ kind, status, seconds }) {
      control.observe({ kind, status: `${Math.floor(status / 100)}xx` }, seconds);
    },
    onPayment({ rail, kind, outcome, microUsd }) {
      payments.inc({ rail, kind, outcome });
      paid.inc({ rail, kind, outcome }, Number(microUsd) / 1e6);
    },
  };
}

function addGauges(gauges: HostGauges, registers: Registry[]): void {
  const byLabel = (name: string, help: string, label: string, read: () => Promise<object> | object) =>
    new Gauge({
      name,
      help,
      labelNames: [label],
      registers,
      async collect() {
        const values = Object.entries(await read());
        this.reset();
        for (const [key, value] of values) this.set({ [label]: key }, value);
      },
    });
  const single = (name: string, help: string, read: () => Promise<number> | number) =>
    new Gauge({
      name,
      help,
      registers,
      async collect() {
        this.set(await read());
      },
    });
  byLabel('turnpike_deployments', 'Deployments by state', 'state', () => gauges.deployments());
  byLabel('turnpike_instances', 'Instances by state', 'state', () => gauges.instances().byState);
  single('turnpike_instances_memory_bytes', 'Private memory of all instances', () => gauges.instances().memoryBytes);
  byLabel('turnpike_process_restarts', 'Restarts of each process of the host', 'part', () => gauges.restarts());
  byLabel('turnpike_payments_open', 'Payments by state', 'state', async () => (await gauges.payments()).byState);
  single(
    'turnpike_payments_owed_usd',
    'USD that are owed to others',
    async () => (await gauges.payments()).owedMicroUsd / 1e6,
  );
  single('turnpike_payouts_stopped', 'Checks of the books that failed: above 0 nothing is sent', () => {
    return gauges.stoppedPayouts().length;
  });
  byLabel('turnpike_queue_length', 'Things that wait, by queue', 'queue', () => gauges.queues());
}
