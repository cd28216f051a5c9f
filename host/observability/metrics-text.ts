/**
 * One Prometheus text from many processes. Each child's series carry its process name, so that a counter that starts
 * anew with its process is seen as a reset of that process alone.
 */
import { AggregatorRegistry, type Registry } from 'prom-client';
import { type Metric, metric } from '../shared/metric.ts';

export interface MetricsSource {
  /** `edge-0`, `storage`, ...: few, and known before. */
  process: string;
  /** The child's `metrics` method; a child that is restarting rejects and is left out. */
  read(): Promise<unknown>;
}

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A child that does not answer must not keep the operator from seeing the others. */
const READ_TIMEOUT_MS = 2_000;

/** The text of `/metrics`. Never rejects because of a child; `turnpike_process_up` says which one answered. */
export async function metricsText(own: Registry, sources: readonly MetricsSource[]): Promise<string> {
  const read = await Promise.all(
    sources.map(async ({ process, read }) => ({ process, metrics: await within(read()).catch(() => undefined) })),
  );
  const labelled = read.map(({ process, metrics }) => (isMetrics(metrics) ? label(metrics, process) : []));
  const up = metric(
    'gauge',
    'turnpike_process_up',
    'Whether a process of the host answered (1) or is restarting (0)',
    read.map(({ process, metrics }) => ({ labels: { process }, value: isMetrics(metrics) ? 1 : 0 })),
  );
  const all = [label((await own.getMetricsAsJSON()) as unknown as Metric[], 'control'), ...labelled, [up]];
  return AggregatorRegistry.aggregate(all as unknown as Parameters<typeof AggregatorRegistry.aggregate>[0]).metrics();
}

function label(metrics: readonly Metric[], process: string): Metric[] {
  return metrics.map((metric) => ({
    ...metric,
    // Whatever a metric says of merging, its series stay apart by process; "sum" only joins the families.
    aggregator: 'sum',
    values: metric.values.map((value) => ({ ...value, labels: { process, ...value.labels } })),
  }));
}

function isMetrics(value: unknown): value is Metric[] {
  return Array.isArray(value);
}

function within<T>(work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error('no answer in time')), READ_TIMEOUT_MS);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}
