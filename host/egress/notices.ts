/** Collects what owners should know of their outbound traffic, so that a loop of refusals is one line and not many. */
import type { EgressNotice, TenantId } from '../shared/contracts.ts';

/** Different notices kept for a tenant between two reports; the rest is only counted by the counters. */
const MOST = 200;
const REPORT_EVERY_MS = 1_000;

export class Notices {
  readonly #report: (notices: EgressNotice[]) => void;
  /** Apart, so that one tenant's flood does not silence another's. */
  #pending = new Map<TenantId, Map<string, EgressNotice>>();
  #timer: NodeJS.Timeout | undefined;

  constructor(report: (notices: EgressNotice[]) => void) {
    this.#report = report;
  }

  add(notice: Omit<EgressNotice, 'count'>): void {
    const { tenant, code, target } = notice;
    let own = this.#pending.get(tenant);
    if (!own) {
      own = new Map();
      this.#pending.set(tenant, own);
    }
    const key = `${code} ${target}`;
    const known = own.get(key);
    if (known) known.count++;
    else if (own.size < MOST) own.set(key, { ...notice, count: 1 });
    this.#timer ??= setTimeout(() => this.flush(), REPORT_EVERY_MS).unref();
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.size === 0) return;
    this.#report([...this.#pending.values()].flatMap((own) => [...own.values()]));
    this.#pending = new Map();
  }
}
