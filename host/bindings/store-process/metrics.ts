/** Counts of what the storage process did, for Prometheus. Labels never carry tenants, keys or sockets. */
import { type Metric, metric } from '../../shared/metric.ts';

export class Operations {
  readonly #gauges: { openStores(): number; tenants(): number };
  readonly #calls = new Map<string, number>();
  readonly #failures = new Map<string, number>();

  constructor(gauges: { openStores(): number; tenants(): number }) {
    this.#gauges = gauges;
  }

  /** Only a map entry on the path of a call; labels are built when somebody asks. */
  count(binding: string, operation: string): void {
    add(this.#calls, `${binding} ${operation}`);
  }

  fail(binding: string, operation: string): void {
    add(this.#failures, `${binding} ${operation}`);
  }

  collect(): Metric[] {
    const { openStores, tenants } = this.#gauges;
    return [
      metric(
        'counter',
        'turnpike_storage_calls_total',
        'Calls of KV, R2 and caches that were begun',
        labelled(this.#calls),
      ),
      metric(
        'counter',
        'turnpike_storage_failures_total',
        'Calls of KV, R2 and caches that failed for a reason of the host',
        labelled(this.#failures),
      ),
      metric('gauge', 'turnpike_storage_open_databases', 'Databases held open', openStores()),
      metric('gauge', 'turnpike_storage_tenants', 'Tenants whose sockets are served', tenants()),
    ];
  }
}

function add(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

function labelled(counts: Map<string, number>): Metric['values'] {
  return [...counts].map(([name, value]) => {
    const [binding = '', operation = ''] = name.split(' ');
    return { labels: { binding, operation }, value };
  });
}
