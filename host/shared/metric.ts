/**
 * A metric of a child process, as prom-client's `getMetricsAsJSON()` has it. Only the supervisor loads that package, and
 * makes text of what all of them tell: it would take each child 55 ms of its start and 3 MB.
 */
export interface Metric {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram';
  aggregator: 'sum';
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[];
}

/** @param values one without labels, or one for each set of labels */
export function metric(type: Metric['type'], name: string, help: string, values: number | Metric['values']): Metric {
  return {
    ...{ name, help, type, aggregator: 'sum' },
    values: typeof values === 'number' ? [{ labels: {}, value: values }] : values,
  };
}
