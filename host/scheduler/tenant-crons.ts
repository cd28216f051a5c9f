/**
 * Runs tenants' `scheduled()` handlers when their crons say so, a bounded number at a time: a thousand expressions
 * that all say "every minute" must not start a thousand instances at once.
 */
import type { Logger } from 'pino';
import type { CronRuns } from '../registry/cron-runs.ts';
import type { CronOutcome } from '../registry/schema/cron.ts';
import type { Clock } from '../shared/clock.ts';
import type { TenantId } from '../shared/contracts.ts';
import type { Scheduler } from './index.ts';

export interface TenantCronsParts {
  scheduler: Scheduler;
  history: CronRuns;
  clock: Clock;
  log: Logger;
  /** The runtime's `runScheduled`. */
  run(slug: string, cron: string, scheduledTimeMs: number): Promise<{ outcome: CronOutcome; error?: string }>;
  /** Runs at the same time over all tenants. Default 8. */
  atOnce?: number;
  /** Told of every finished run, for metrics. `lateMs`: how long after its time it started. */
  onRun?(run: { outcome: CronOutcome; lateMs: number; durationMs: number }): void;
}

interface Planned {
  slug: string;
  crons: string;
  cancel: (() => void)[];
}

export class TenantCrons {
  readonly #parts: TenantCronsParts;
  readonly #planned = new Map<TenantId, Planned>();
  readonly #turns = new Map<TenantId, Promise<void>>();
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(parts: TenantCronsParts) {
    this.#parts = parts;
    this.#free = parts.atOnce ?? 8;
  }

  /** Runs of tenants that wait for a free place, for metrics. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Call once at start, before `set`. */
  async recover(): Promise<void> {
    await this.#parts.history.interruptAll(this.#parts.clock.now());
  }

  /** Makes `crons` what the active deployment runs; an empty list ends it. Call for every deployment and change. */
  set(tenant: TenantId, slug: string, crons: string[]): Promise<void> {
    return this.#inTurn(tenant, async () => {
      const known = this.#planned.get(tenant);
      const text = JSON.stringify(crons);
      if (known?.slug === slug && known.crons === text) return;
      this.#cancel(tenant);
      const { history, clock, scheduler } = this.#parts;
      const since = await history.setTriggers(tenant, crons, clock.now());
      const cancel = crons.map((cron) =>
        scheduler.cron(cron, `cron of ${slug}: ${cron}`, (time) => this.#run(tenant, slug, cron, time), {
          lastRun: since.get(cron) ?? clock.now(),
        }),
      );
      if (crons.length > 0) this.#planned.set(tenant, { slug, crons: text, cancel });
    });
  }

  /** Nothing runs while the tenant is expired or gone; what was missed then is not made up for. */
  remove(tenant: TenantId): Promise<void> {
    return this.#inTurn(tenant, async () => {
      this.#cancel(tenant);
      await this.#parts.history.setTriggers(tenant, [], this.#parts.clock.now());
    });
  }

  #cancel(tenant: TenantId): void {
    for (const cancel of this.#planned.get(tenant)?.cancel ?? []) cancel();
    this.#planned.delete(tenant);
  }

  async #run(tenant: TenantId, slug: string, cron: string, scheduledAt: number): Promise<void> {
    const { history, clock, run, log, onRun } = this.#parts;
    await this.#place();
    try {
      if (this.#planned.get(tenant)?.slug !== slug) return;
      const startedAt = clock.now();
      const started = performance.now();
      const id = await history.begin(tenant, cron, scheduledAt, startedAt);
      const result = await run(slug, cron, scheduledAt).catch((error: unknown) => {
        log.error({ err: error, slug, cron }, 'a scheduled run could not be made');
        return { outcome: 'not_started' as const, error: 'The handler could not be started.' };
      });
      await history.finish(
        { id, tenant, cron, scheduledAt },
        { outcome: result.outcome, error: result.error },
        clock.now(),
      );
      onRun?.({
        outcome: result.outcome,
        lateMs: Math.max(0, startedAt - scheduledAt),
        durationMs: performance.now() - started,
      });
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  #place(): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }

  #inTurn(tenant: TenantId, work: () => Promise<void>): Promise<void> {
    const turn = (this.#turns.get(tenant) ?? Promise.resolve()).then(work, work);
    this.#turns.set(tenant, turn);
    const forget = () => {
      if (this.#turns.get(tenant) === turn) this.#turns.delete(tenant);
    };
    turn.then(forget, forget);
    return turn;
  }
}
