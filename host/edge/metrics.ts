/**
 * The edge's metrics for prom-client. Counted in plain numbers on the request's way and copied when they are read;
 * labels never carry tenant names.
 */
import { Counter, Gauge, Registry } from 'prom-client';

const CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60];

export interface EdgeGauges {
  connections(): number;
  inFlight(): number;
  routes(): number;
}

export class EdgeMetrics {
  readonly #registry = new Registry();
  readonly #byClass: Record<'instance' | 'control', number[]> = { instance: [0, 0, 0, 0, 0], control: [0, 0, 0, 0, 0] };
  readonly #durations: number[] = new Array(BUCKETS.length + 1).fill(0);
  #durationSum = 0;
  #starts = 0;
  #unpaid = 0;

  constructor(gauges: EdgeGauges) {
    const registers = [this.#registry];
    const metrics = this;
    new Counter({
      name: 'turnpike_edge_requests_total',
      help: 'Answered requests by what answered and class of status',
      labelNames: ['to', 'status'],
      registers,
      collect() {
        this.reset();
        for (const to of ['instance', 'control'] as const) {
          CLASSES.forEach((status, index) => {
            this.inc({ to, status }, metrics.#byClass[to][index] ?? 0);
          });
        }
      },
    });
    new Counter({
      name: 'turnpike_edge_cold_starts_total',
      help: 'Requests that waited for an instance to start',
      registers,
      collect() {
        this.reset();
        this.inc(metrics.#starts);
      },
    });
    new Counter({
      name: 'turnpike_edge_unpaid_total',
      help: 'Requests that were asked to pay (402)',
      registers,
      collect() {
        this.reset();
        this.inc(metrics.#unpaid);
      },
    });
    for (const [name, help, read] of [
      ['turnpike_edge_connections', 'Open connections of callers', gauges.connections],
      ['turnpike_edge_requests_in_flight', 'Requests under way', gauges.inFlight],
      ['turnpike_edge_routes', 'Slugs in the route table', gauges.routes],
    ] as const) {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    }
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

  /** prom-client's JSON, with the durations as a histogram. */
  async json(): Promise<unknown> {
    let total = 0;
    const values = this.#durations.map((count, index) => {
      total += count;
      return {
        labels: { le: BUCKETS[index] ?? '+Inf' },
        value: total,
        metricName: 'turnpike_edge_duration_seconds_bucket',
      };
    });
    return [
      ...(await this.#registry.getMetricsAsJSON()),
      {
        name: 'turnpike_edge_duration_seconds',
        help: 'From the head of a request to the end of its answer',
        type: 'histogram',
        aggregator: 'sum',
        values: [
          ...values,
          { labels: {}, value: this.#durationSum, metricName: 'turnpike_edge_duration_seconds_sum' },
          { labels: {}, value: total, metricName: 'turnpike_edge_duration_seconds_count' },
        ],
      },
    ];
  }
}
