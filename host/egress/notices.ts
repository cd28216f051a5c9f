/** Collects what owners should know of their outbound traffic, so that a loop of refusals is one line and not many. */
import type { EgressNotice } from '../shared/contracts.ts';

/** Different notices kept between two reports; the rest is only counted by the counters. */
const MOST = 200;
const REPORT_EVERY_MS = 1_000;

export class Notices {
  readonly #report: (notices: EgressNotice[]) => void;
  #pending = new Map<string, EgressNotice>();
  #timer: NodeJS.Timeout | undefined;

  constructor(report: (notices: EgressNotice[]) => void) {
    this.#report = report;
  }

  add(notice: Omit<EgressNotice, 'count'>): void {
    const key = `${notice.tenant} ${notice.code} ${notice.target}`;
    const known = this.#pending.get(key);
    if (known) known.count++;
    else if (this.#pending.size < MOST) this.#pending.set(key, { ...notice, count: 1 });
    this.#timer ??= setTimeout(() => this.flush(), REPORT_EVERY_MS).unref();
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.size === 0) return;
    this.#report([...this.#pending.values()]);
    this.#pending = new Map();
  }
}
