/** Counts each slug's traffic and reports it about once a second. */
import type { EdgeTraffic } from '../shared/contracts.ts';

export class Traffic {
  readonly #slugs = new Map<string, EdgeTraffic>();
  /** Reported with requests in flight: their end is reported too. */
  readonly #busy = new Set<string>();

  of(slug: string): EdgeTraffic {
    let traffic = this.#slugs.get(slug);
    if (!traffic) {
      traffic = { slug, requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 };
      this.#slugs.set(slug, traffic);
    }
    return traffic;
  }

  /** What happened since the last report, for slugs with traffic, or with requests in flight now or at the last report. */
  report(): EdgeTraffic[] {
    const report: EdgeTraffic[] = [];
    for (const [slug, traffic] of this.#slugs) {
      const quiet = traffic.requests === 0 && traffic.bytesIn === 0 && traffic.bytesOut === 0 && traffic.errors === 0;
      const busy = this.#busy.delete(slug);
      if (traffic.inFlight > 0) this.#busy.add(slug);
      else if (quiet && !busy) {
        this.#slugs.delete(slug);
        continue;
      }
      report.push({ ...traffic });
      traffic.requests = 0;
      traffic.errors = 0;
      traffic.bytesIn = 0;
      traffic.bytesOut = 0;
    }
    return report;
  }
}
