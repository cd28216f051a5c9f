/**
 * All timed work of the host, on one clock that tests can move. A job never runs beside itself, and what was missed
 * while it ran, or while the host was down, is made up for once. A job runs in the context in which it was planned: under
 * the lease that it was planned under, or none.
 */
import { AsyncResource } from 'node:async_hooks';
import type { Logger } from 'pino';
import type { Clock } from '../shared/clock.ts';
import { CronExpression, dueOccurrence, nextOccurrence } from './cron-expression.ts';

export interface CronOptions {
  /** The occurrence that ran last, or the time from which on the expression counts, ms. Default: now. */
  lastRun?: number;
}

export interface Scheduler {
  /** Runs `work` once at `timeMs` (at once if that is past). Answers the function that cancels it. */
  at(timeMs: number, name: string, work: () => unknown): () => void;
  /** Runs `work` every `ms`, first after `ms`; late runs are not made up for. */
  every(ms: number, name: string, work: () => unknown): () => void;
  /**
   * Runs `work` at every occurrence, with the time it was scheduled for; of missed ones the last, once. Where it
   * answers `again`, it could not begin: the occurrence counts as missed, and is made up for a minute later.
   * @throws Problem invalid_field for a bad expression
   */
  cron(expression: string, name: string, work: (scheduledTime: number) => unknown, options?: CronOptions): () => void;
  /** Starts nothing any more, and answers when nothing runs. */
  stop(): Promise<void>;
}

/** When what could not begin is made up for, ms. */
const AGAIN_MS = 60_000;
/** Wakes at least this often, so that a system clock that was set is noticed: nothing announces that. */
const LONGEST_SLEEP_MS = 30_000;

interface Job {
  name: string;
  /** When to run next, clock ms; undefined: never again. */
  due: number | undefined;
  /** Runs what is due. */
  run(now: number): unknown;
  /** Sets `due` anew: after a run, and after the clock was stepped. */
  plan(now: number, ran: boolean): void;
  running: Promise<void> | undefined;
}

export function createScheduler({ clock, log }: { clock: Clock; log: Logger }): Scheduler {
  const jobs = new Set<Job>();
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let woken = clock.now();

  function wake(): void {
    const now = clock.now();
    // The system's clock was set back.
    if (now < woken) plan(now);
    woken = now;
    for (const job of jobs) {
      if (!stopped && job.running === undefined && job.due !== undefined && job.due <= now) start(job, now);
    }
    sleep();
  }

  function plan(now: number): void {
    for (const job of jobs) if (!job.running) job.plan(now, false);
  }

  function sleep(): void {
    clearTimeout(timer);
    if (stopped) return;
    let earliest = Number.POSITIVE_INFINITY;
    for (const { running, due } of jobs) if (!running && due !== undefined) earliest = Math.min(earliest, due);
    if (earliest === Number.POSITIVE_INFINITY && jobs.size === 0) return;
    const wait = Math.min(LONGEST_SLEEP_MS, Math.max(0, earliest - clock.now()));
    timer = setTimeout(wake, wait);
    timer.unref();
  }

  function start(job: Job, now: number): void {
    job.running = (async () => job.run(now))()
      .catch((error) => log.error({ err: error, job: job.name }, 'timed work failed'))
      .then(() => {
        job.running = undefined;
        job.plan(clock.now(), true);
        if (job.due === undefined) jobs.delete(job);
        if (!stopped) sleep();
      });
  }

  function add(job: Job): () => void {
    job.run = AsyncResource.bind(job.run.bind(job));
    jobs.add(job);
    sleep();
    return () => {
      jobs.delete(job);
      job.due = undefined;
    };
  }

  const unsubscribe = clock.onStep(() => {
    plan(clock.now());
    wake();
  });

  return {
    at(timeMs, name, work) {
      return add({
        name,
        due: timeMs,
        running: undefined,
        run: () => work(),
        plan(_now, ran) {
          if (ran) this.due = undefined;
        },
      });
    },
    every(ms, name, work) {
      return add({
        name,
        due: clock.now() + ms,
        running: undefined,
        run: () => work(),
        plan(now, ran) {
          // A clock set back must not silence the job until the old time comes again.
          if (this.due !== undefined) this.due = ran ? now + ms : Math.min(this.due, now + ms);
        },
      });
    },
    cron(text, name, work, { lastRun } = {}) {
      const expression = new CronExpression(text);
      let since = lastRun ?? clock.now();
      let againAt = 0;
      const job: Job = {
        name,
        due: undefined,
        running: undefined,
        async run(now) {
          const occurrence = dueOccurrence(expression, since, now);
          if (occurrence === undefined) return;
          const before = since;
          since = occurrence;
          if ((await work(occurrence)) !== 'again') return;
          since = before;
          againAt = clock.now() + AGAIN_MS;
        },
        plan(now) {
          if (!jobs.has(this)) return;
          const isDue = dueOccurrence(expression, since, now) !== undefined;
          // No longer than that: the clock may have been set back meanwhile.
          againAt = Math.min(againAt, now + AGAIN_MS);
          this.due = isDue ? Math.max(now, againAt) : nextOccurrence(expression, since, now);
          // A clock set far back starts over: what lies ahead of it has not happened yet.
          if (this.due !== undefined && this.due < since) since = now;
        },
      };
      const cancel = add(job);
      job.plan(clock.now(), false);
      sleep();
      return cancel;
    },
    async stop() {
      stopped = true;
      clearTimeout(timer);
      unsubscribe();
      await Promise.all([...jobs].map(({ running }) => running));
      jobs.clear();
    },
  };
}
