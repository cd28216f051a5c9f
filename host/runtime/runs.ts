/**
 * What uses the instance of a slug besides requests: crons, messages of queues, calls of other deployments. While one
 * goes on, the slug is not idle.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { QueueAnswer, QueueCall } from '../bindings/queues/call.ts';
import type { Visit } from '../bindings/services/directory.ts';
import { Problem } from '../shared/problem.ts';
import type { Activity } from './activity.ts';
import type { ScheduledResult } from './contract.ts';
import type { InstanceProcess } from './instance-process.ts';
import type { ScheduledAnswer } from './system-calls.ts';

/** How long to wait for the end of a process whose connection broke, ms. */
const EXIT_NOTICE_MS = 1_000;

export class Runs {
  readonly #activity: Activity;
  readonly #acquire: () => Promise<InstanceProcess>;

  /** @param acquire starts an instance where none runs. @throws Problem */
  constructor(activity: Activity, acquire: () => Promise<InstanceProcess>) {
    this.#activity = activity;
    this.#acquire = acquire;
  }

  /** For a call of another deployment. @throws Problem */
  async visit(): Promise<Visit> {
    // A start is in use until somebody is in it.
    const instance = await this.#activity.run(this.#acquire);
    return {
      entrySocket: (entrypoint) => instance.entrySocket(entrypoint),
      systemSocket: instance.systemSocket,
      leaving: instance.leaving,
      during: (work) => this.#activity.run(() => instance.occupy(work())),
    };
  }

  scheduled(cron: string, scheduledTimeMs: number): Promise<ScheduledResult> {
    return this.#activity.run(async () => {
      const startedAt = performance.now();
      const result = await this.#runOnce(cron, scheduledTimeMs);
      return { ...result, durationMs: Math.round(performance.now() - startedAt) };
    });
  }

  /** @throws Problem, or Error when the instance ends meanwhile */
  queue(binding: string, call: QueueCall): Promise<QueueAnswer> {
    return this.#activity.run(async () => (await this.#acquire()).callQueue(binding, call));
  }

  /** @throws Problem, or Error when the instance ends meanwhile */
  tail(from: string, events: Buffer): Promise<ScheduledAnswer> {
    return this.#activity.run(async () => (await this.#acquire()).tail(from, events));
  }

  async #runOnce(cron: string, scheduledTimeMs: number): Promise<Omit<ScheduledResult, 'durationMs'>> {
    let instance: InstanceProcess;
    try {
      instance = await this.#acquire();
    } catch (error) {
      return {
        outcome: error instanceof Problem && error.code === 'not_ready' ? 'interrupted' : 'not_started',
        error: error instanceof Problem ? error.message : 'The instance did not start.',
      };
    }
    const answer = await instance.scheduled(cron, scheduledTimeMs).catch(() => undefined);
    if (answer) return answer.outcome === 'ok' ? { outcome: 'ok' } : { outcome: 'exception', error: answer.error };
    // The connection breaks a moment before the process is known to be gone.
    const exit = await Promise.race([instance.ended, delay(EXIT_NOTICE_MS, undefined, { ref: false })]);
    if (exit?.reason === 'cpu_exceeded') return { outcome: 'exceeded_cpu', error: exit.detail };
    if (exit?.reason === 'memory_exceeded') return { outcome: 'exceeded_memory', error: exit.detail };
    if (exit?.reason === 'shutdown') return { outcome: 'interrupted', error: exit.detail };
    return { outcome: 'exception', error: exit?.detail ?? 'The run took too long.' };
  }
}
