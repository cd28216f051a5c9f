/** What is told of the instances of one slug: to its owner by the log, to the host by events, to callers by its record. */
import type { TenantId } from '../shared/contracts.ts';
import type { RuntimeDependencies, RuntimeEvent } from './contract.ts';
import type { ExitReason } from './exit-reason.ts';
import type { NewLogEntry } from './logs/log-entry.ts';
import { TrackRecord } from './track-record.ts';

export class SlugReports {
  readonly record = new TrackRecord();
  /** Whose instances they are, since the first start. */
  tenant: TenantId | undefined;
  readonly #slug: string;
  readonly #preview: string | undefined;
  readonly #dependencies: RuntimeDependencies;

  constructor(slug: string, preview: string | undefined, dependencies: RuntimeDependencies) {
    this.#slug = slug;
    this.#preview = preview;
    this.#dependencies = dependencies;
  }

  /** A line for the owner. */
  log(entry: NewLogEntry): void {
    const { logs, log } = this.#dependencies;
    if (this.tenant === undefined) return;
    const text = this.#preview === undefined ? entry.text : `[${this.#preview}] ${entry.text}`;
    logs
      .append(this.tenant, { ...entry, text })
      .catch((error) => log.warn({ err: error }, "a tenant's log cannot be written"));
  }

  emit(event: RuntimeEvent): void {
    this.#dependencies.onEvent?.(event);
  }

  /** CPU time that has not been told before, ms. */
  used(cpuMs: number, tenant = this.tenant): void {
    if (cpuMs > 0 && tenant !== undefined) this.emit({ type: 'used', slug: this.#slug, tenant, cpuMs });
  }

  /** An instance ended, and nobody is to blame. */
  stopped(reason: ExitReason, detail: string): void {
    this.record.stopped({ reason, detail, at: this.#dependencies.clock.now() });
    this.log({ kind: 'platform', event: 'stopped', text: detail });
  }

  /** @param ranMs how long the instance lived before it failed; 0 when it did not start */
  failed(reason: ExitReason, detail: string, ranMs: number): void {
    this.record.failed({ reason, detail, at: this.#dependencies.clock.now() }, ranMs);
    const { pauseMs } = this.record;
    const next = pauseMs > 0 ? ` It is started again in ${Math.ceil(pauseMs / 1_000)} s at the earliest.` : '';
    this.log({ kind: 'platform', event: 'killed', text: `${reason}: ${detail}${next}` });
  }
}
