/**
 * Runs tenants' `scheduled()` handlers when their crons say so, a bounded number at a time: a thousand expressions
 * that all say "every minute" must not start a thousand instances at once.
 */
import type { Logger } from 'pino';
import type { CronRuns } from '../registry/cron-runs.ts';
import type { CronOutcome } from '../registry/schema/cron.ts';
import type { Clock } from '../shared/clock.ts';
import type { TenantId } from '../shared/contracts.ts';
import { KeyedLock } from '../shared/mutex.ts';
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
  /** How long a run holds its place, ms: by then it waits for others, and the next may start. Default 30 s. */
  holdMs?: number;
  /** Told of every finished run, for metrics. `lateMs`: how long after its time it started. */
  onRun?(run: { outcome: CronOutcome; lateMs: number; durationMs: number }): void;
}

interface Planned {
  slug: string;
  /** By expression: ends it. */
  jobs: Map<string, () => void>;
}

/** Places that runs of one tenant hold at the same time: a handler that hangs must not keep others from theirs. */
const OF_ONE_TENANT = 2;

export class TenantCrons {
  readonly #parts: TenantCronsParts;
  readonly #planned = new Map<TenantId, Planned>();
  readonly #turns = new KeyedLock();
  readonly #waiting: { tenant: TenantId; go: () => void }[] = [];
  readonly #held = new Map<TenantId, number>();
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
    return this.#turns.run(tenant, async () => {
      const known = this.#planned.get(tenant);
      const wanted = new Set(crons);
      if (known?.slug === slug && known.jobs.size === wanted.size && crons.every((cron) => known.jobs.has(cron)))
        return;
      if (known?.slug !== slug) this.#cancel(tenant);
      const { history, clock, scheduler } = this.#parts;
      const since = await history.setTriggers(tenant, crons, clock.now());
      // What stays is left alone: it may be running, and only its own job knows that.
      const jobs = this.#planned.get(tenant)?.jobs ?? new Map<string, () => void>();
      for (const [cron, cancel] of jobs) {
        if (wanted.has(cron)) continue;
        cancel();
        jobs.delete(cron);
      }
      for (const cron of wanted) {
        if (jobs.has(cron)) continue;
        const run = (time: number) => this.#run(tenant, slug, cron, time);
        const lastRun = since.get(cron) ?? clock.now();
        jobs.set(cron, scheduler.cron(cron, `cron of ${slug}: ${cron}`, run, { lastRun }));
      }
      if (jobs.size > 0) this.#planned.set(tenant, { slug, jobs });
      else this.#planned.delete(tenant);
    });
  }

  /** Nothing runs while the tenant is expired or gone; what was missed then is not made up for. */
  remove(tenant: TenantId): Promise<void> {
    return this.#turns.run(tenant, async () => {
      this.#cancel(tenant);
      await this.#parts.history.setTriggers(tenant, [], this.#parts.clock.now());
    });
  }

  #cancel(tenant: TenantId): void {
    for (const cancel of this.#planned.get(tenant)?.jobs.values() ?? []) cancel();
    this.#planned.delete(tenant);
  }

  async #run(tenant: TenantId, slug: string, cron: string, scheduledAt: number): Promise<'again' | undefined> {
    const { history, clock, run, log, onRun, holdMs = 30_000 } = this.#parts;
    const leave = await this.#place(tenant);
    const held = setTimeout(leave, holdMs).unref();
    try {
      const planned = this.#planned.get(tenant);
      if (planned?.slug !== slug || !planned.jobs.has(cron)) return undefined;
      const startedAt = clock.now();
      const started = performance.now();
      const id = await history.begin(tenant, cron, scheduledAt, startedAt).catch((error: unknown) => {
        log.error({ err: error, slug, cron }, 'a scheduled run could not be noted: it is made in a minute');
      });
      if (id === undefined) return 'again';
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
      return undefined;
    } finally {
      clearTimeout(held);
      leave();
    }
  }

  /** Waits for a place. @returns gives it back */
  async #place(tenant: TenantId): Promise<() => void> {
    if (this.#free === 0 || !this.#mayHold(tenant)) {
      await new Promise<void>((go) => {
        this.#waiting.push({ tenant, go });
      });
    } else {
      this.#take(tenant);
    }
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const held = (this.#held.get(tenant) ?? 0) - 1;
      if (held > 0) this.#held.set(tenant, held);
      else this.#held.delete(tenant);
      this.#free++;
      const next = this.#waiting.findIndex((one) => this.#mayHold(one.tenant));
      if (next < 0) return;
      const [{ tenant: whose, go }] = this.#waiting.splice(next, 1) as [{ tenant: TenantId; go: () => void }];
      this.#take(whose);
      go();
    };
  }

  #mayHold(tenant: TenantId): boolean {
    return (this.#held.get(tenant) ?? 0) < OF_ONE_TENANT;
  }

  #take(tenant: TenantId): void {
    this.#free--;
    this.#held.set(tenant, (this.#held.get(tenant) ?? 0) + 1);
  }
}
