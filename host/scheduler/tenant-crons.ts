/**
 * Runs tenants' `scheduled()` handlers when their crons say so, a bounded number at a time: a thousand expressions
 * that all say "every minute" must not start a thousand instances at once. Owners take turns, and so do the slugs of one
 * owner, so a storm of one owner's crons makes nobody else late.
 */
import type { Logger } from 'pino';
import type { CronRuns } from '../registry/cron-runs.ts';
import { unfenced } from '../registry/fences.ts';
import type { CronOutcome } from '../registry/schema/cron.ts';
import type { Clock } from '../shared/clock.ts';
import type { TenantId } from '../shared/contracts.ts';
import { FairPlaces } from '../shared/fair-places.ts';
import { KeyedLock } from '../shared/mutex.ts';
import type { Scheduler } from './index.ts';

export interface TenantCronsDeps {
  scheduler: Scheduler;
  history: CronRuns;
  clock: Clock;
  log: Logger;
  /** The runtime's `runScheduled`. */
  run(slug: string, cron: string, scheduledTimeMs: number): Promise<{ outcome: CronOutcome; error?: string }>;
  /** Runs that start at the same time over all tenants. Default 8. */
  atOnce?: number;
  /** How long a run holds its place, ms: by then it waits for others, and the next may start. Default 5 s. */
  holdMs?: number;
  /** Told of every finished run, for metrics. `lateMs`: how long after its time it started. */
  onRun?(run: { outcome: CronOutcome; lateMs: number; durationMs: number }): void;
}

/** The owner of the crons. */
export interface CronOwner {
  tenant: TenantId;
  slug: string;
  owner: string;
  /** It comes with the host: places are kept for it. */
  builtin: boolean;
}

interface Planned {
  slug: string;
  /** By expression: ends it. */
  jobs: Map<string, () => void>;
}

const AT_ONCE = 8;
const HOLD_MS = 5_000;
/** Places that runs of one owner hold at the same time, with however many slugs: handlers that hang are not in others' way. */
const OF_ONE_OWNER = 2;
/** The part of the places that only built-in tenants get. */
const KEPT = 1 / 4;
const BUILTIN = 0;
const TENANTS = 1;

export class TenantCrons {
  readonly #deps: TenantCronsDeps;
  readonly #planned = new Map<TenantId, Planned>();
  readonly #turns = new KeyedLock();
  readonly #places: FairPlaces;

  constructor(deps: TenantCronsDeps) {
    this.#deps = deps;
    const { atOnce = AT_ONCE } = deps;
    this.#places = new FairPlaces(atOnce, [
      { places: atOnce, perParty: atOnce },
      { places: atOnce - Math.floor(atOnce * KEPT), perParty: OF_ONE_OWNER },
    ]);
  }

  /** Runs of tenants that wait for a free place, for metrics. */
  get waiting(): number {
    return this.#places.waiting;
  }

  /** Call at start before `set`, and each time that another node's runs are this one's to make. */
  async recover(): Promise<void> {
    this.forget();
    await this.#deps.history.interruptAll(this.#deps.clock.now());
  }

  /** Another node makes the runs from here on. */
  forget(): void {
    for (const tenant of [...this.#planned.keys()]) this.#cancel(tenant);
  }

  /** Makes `crons` what the active deployment runs; an empty list ends it. Call for every deployment and change. */
  set(whose: CronOwner, crons: string[]): Promise<void> {
    const { tenant, slug } = whose;
    return this.#turns.run(tenant, async () => {
      const known = this.#planned.get(tenant);
      const wanted = new Set(crons);
      if (known?.slug === slug && known.jobs.size === wanted.size && crons.every((cron) => known.jobs.has(cron)))
        return;
      if (known?.slug !== slug) this.#cancel(tenant);
      const { history, clock, scheduler } = this.#deps;
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
        const run = (time: number) => this.#run(whose, cron, time);
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
      await this.#deps.history.setTriggers(tenant, [], this.#deps.clock.now());
    });
  }

  #cancel(tenant: TenantId): void {
    for (const cancel of this.#planned.get(tenant)?.jobs.values() ?? []) cancel();
    this.#planned.delete(tenant);
  }

  async #run(whose: CronOwner, cron: string, scheduledAt: number): Promise<'again' | undefined> {
    const { history, clock, run, log, onRun, holdMs = HOLD_MS } = this.#deps;
    const { tenant, slug, owner, builtin } = whose;
    const leave = await this.#places.take({ lane: builtin ? BUILTIN : TENANTS, party: owner, member: tenant });
    const held = setTimeout(leave, holdMs).unref();
    try {
      const planned = this.#planned.get(tenant);
      if (planned?.slug !== slug || !planned.jobs.has(cron)) return undefined;
      const startedAt = clock.now();
      const started = performance.now();
      const id = await history.begin(tenant, cron, scheduledAt, startedAt).catch((error: unknown) => {
        // Where another node makes the runs by now, it makes this one, too.
        log.error({ err: error, slug, cron }, 'a scheduled run could not be noted: it is made in a minute');
      });
      if (id === undefined) return 'again';
      // What an instance does, and goes on doing, is no work of a lease.
      const result = await unfenced(() => run(slug, cron, scheduledAt)).catch((error: unknown) => {
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
}
