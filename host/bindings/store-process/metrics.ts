/** Counts of what the storage process did, for Prometheus. Labels never carry tenants, keys or sockets. */
import { Counter, Gauge, Registry } from 'prom-client';

export class Operations {
  readonly registry = new Registry();
  readonly #calls: Counter<'binding' | 'operation'>;
  readonly #failures: Counter<'binding' | 'operation'>;
  readonly #counts = new Map<string, number>();

  constructor(gauges: { openStores(): number; tenants(): number }) {
    const registers = [this.registry];
    this.#calls = new Counter({
      name: 'turnpike_storage_calls_total',
      help: 'Calls of KV, R2 and caches that were begun',
      labelNames: ['binding', 'operation'],
      registers,
    });
    this.#failures = new Counter({
      name: 'turnpike_storage_failures_total',
      help: 'Calls of KV, R2 and caches that failed for a reason of the host',
      labelNames: ['binding', 'operation'],
      registers,
    });
    new Gauge({
      name: 'turnpike_storage_open_databases',
      help: 'Databases held open',
      registers,
      collect() {
        this.set(gauges.openStores());
      },
    });
    new Gauge({
      name: 'turnpike_storage_tenants',
      help: 'Tenants whose sockets are served',
      registers,
      collect() {
        this.set(gauges.tenants());
      },
    });
  }

  /** Only a map entry on the path of a call; labels are built when somebody asks. */
  count(binding: string, operation: string): void {
    const name = `${binding} ${operation}`;
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
  }

  fail(binding: string, operation: string): void {
    this.#failures.inc({ binding, operation });
  }

  async collect(): Promise<unknown> {
    for (const [name, count] of this.#counts) {
      const [binding = '', operation = ''] = name.split(' ');
      this.#calls.inc({ binding, operation }, count);
    }
    this.#counts.clear();
    return this.registry.getMetricsAsJSON();
  }
}
