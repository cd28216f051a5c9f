/** The edge's metrics. Counted in plain numbers on the request's way; labels never carry tenant names. */
import { type Metric, metric } from '../shared/metric.ts';

const CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60];

export interface EdgeGauges {
  connections(): number;
  inFlight(): number;
  routes(): number;
}

export class EdgeMetrics {
  readonly #gauges: EdgeGauges;
  readonly #byClass: Record<'instance' | 'control', number[]> = { instance: [0, 0, 0, 0, 0], control: [0, 0, 0, 0, 0] };
  readonly #durations: number[] = new Array(BUCKETS.length + 1).fill(0);
  #durationSum = 0;
  #starts = 0;
  #unpaid = 0;

  constructor(gauges: EdgeGauges) {
    this.#gauges = gauges;
  }

  finished(toInstance: boolean, status: number, durationMs: number): void {
    const classes = this.#byClass[toInstance ? 'instance' : 'control'];
    const index = Math.min(4, Math.max(0, Math.floor(status / 100) - 1));
    classes[index] = (classes[index] ?? 0) + 1;
    if (status === 402) this.#unpaid += 1;
    const seconds = durationMs / 1000;
    let bucket = 0;
    while (bucket < BUCKETS.length && seconds > (BUCKETS[bucket] ?? 0)) bucket += 1;
    this.#durations[bucket] = (this.#durations[bucket] ?? 0) + 1;
    this.#durationSum += seconds;
  }

  waited(): void {
    this.#starts += 1;
  }

  json(): Metric[] {
    const answers = Object.entries(this.#byClass).flatMap(([to, counts]) =>
      CLASSES.map((status, index) => ({ labels: { to, status }, value: counts[index] ?? 0 })),
    );
    const duration = 'turnpike_edge_duration_seconds';
    let total = 0;
    const durations = this.#durations.map((count, index) => {
      total += count;
      return { labels: { le: BUCKETS[index] ?? '+Inf' }, value: total, metricName: `${duration}_bucket` };
    });
    const { connections, inFlight, routes } = this.#gauges;
    return [
      metric(
        'counter',
        'turnpike_edge_requests_total',
        'Answered requests by what answered and class of status',
        answers,
      ),
      metric(
        'counter',
        'turnpike_edge_cold_starts_total',
        'Requests that waited for an instance to start',
        this.#starts,
      ),
      metric('counter', 'turnpike_edge_unpaid_total', 'Requests that were asked to pay (402)', this.#unpaid),
      metric('gauge', 'turnpike_edge_connections', 'Open connections of callers', connections()),
      metric('gauge', 'turnpike_edge_requests_in_flight', 'Requests under way', inFlight()),
      metric('gauge', 'turnpike_edge_routes', 'Slugs in the route table', routes()),
      metric('histogram', duration, 'From the head of a request to the end of its answer', [
        ...durations,
        { labels: {}, value: this.#durationSum, metricName: `${duration}_sum` },
        { labels: {}, value: total, metricName: `${duration}_count` },
      ]),
    ];
  }
}
