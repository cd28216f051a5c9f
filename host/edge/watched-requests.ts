/** Requests of the slugs that somebody watches, told one by one; bounded, whatever callers send. */
import type { SeenRequest } from '../shared/contracts.ts';
import type { ProxiedRequest } from './proxied-request.ts';

const REPORT_MS = 100;
/** A report has no more; those after that are left out. */
const MOST_REPORTED = 100;
const LONGEST_PATH = 2_048;

export class WatchedRequests {
  readonly #report: (requests: SeenRequest[]) => void;
  #slugs: ReadonlySet<string> = new Set();
  #seen: SeenRequest[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(report: (requests: SeenRequest[]) => void) {
    this.#report = report;
  }

  watch(slugs: readonly string[]): void {
    this.#slugs = new Set(slugs);
  }

  finished({ slug, place, exchange, status, startedAt }: ProxiedRequest): void {
    // Hardly ever: nothing else may be done for a request that nobody watches.
    if (this.#slugs.size === 0 || slug === undefined || !this.#slugs.has(slug)) return;
    if (this.#seen.length >= MOST_REPORTED) return;
    const { method, target } = exchange.head;
    const path = target.slice(place.prefix.length, place.prefix.length + LONGEST_PATH);
    const ms = Math.round(performance.now() - startedAt);
    this.#seen.push({ slug, method, path: path.startsWith('/') ? path : `/${path}`, status, ms });
    this.#timer ??= setTimeout(() => this.#tell(), REPORT_MS).unref();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #tell(): void {
    this.#timer = undefined;
    this.#report(this.#seen.splice(0));
  }
}
