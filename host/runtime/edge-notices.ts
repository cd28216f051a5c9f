/** What the edges are told of the instances of one slug. A notice that does not arrive never ends anything. */
import { setTimeout as delay } from 'node:timers/promises';
import type { ProblemCode } from '../shared/problem.ts';
import type { RuntimeDependencies } from './contract.ts';
import type { ExitReason } from './exit-reason.ts';
import type { InstanceProcess } from './instance-process.ts';

/** How long the edges may take to hear of a kill before it happens, ms. */
const TELL_MS = 100;
/** Reasons that count towards the back-off, and that callers in flight are told of. */
const FAILURES: Partial<Record<ExitReason, ProblemCode>> = {
  cpu_exceeded: 'cpu_exceeded',
  memory_exceeded: 'memory_exceeded',
  files_exceeded: 'overloaded',
  storage_exceeded: 'quota_exceeded',
  crashed: 'upstream_failed',
  start_failed: 'start_failed',
};

/** The instance ended by a fault of its own. */
export function isFailure(reason: ExitReason): boolean {
  return reason in FAILURES;
}

export class EdgeNotices {
  readonly #slug: string;
  readonly #edges: RuntimeDependencies['edges'];
  /** The instance whose failure the edges know. */
  #told: InstanceProcess | undefined;

  /** @param slug as the edges know it */
  constructor(slug: string, edges: RuntimeDependencies['edges']) {
    this.#slug = slug;
    this.#edges = edges;
  }

  /** Requests go to this instance from now on. @throws Error when an edge did not take it */
  async inService({ generation, first, socket }: InstanceProcess): Promise<void> {
    await this.#edges.setInstance({ slug: this.#slug, generation, first, socket });
  }

  /** Those who wait for its answer get the reason. Resolves when it was told, or took too long; tells a failure once. */
  async failed(instance: InstanceProcess, reason: ExitReason, detail: string): Promise<void> {
    const code = FAILURES[reason];
    if (code === undefined || instance === this.#told) return;
    this.#told = instance;
    const failure = { slug: this.#slug, generation: instance.generation, code, detail };
    const told = this.#edges.failed(failure).catch(() => undefined);
    await Promise.race([told, delay(TELL_MS, undefined, { ref: false })]);
  }

  /** It gets no more requests. @returns how many are under way in the end; undefined where an edge did not say */
  async retired({ generation }: InstanceProcess, timeoutMs: number): Promise<number | undefined> {
    const answer = await this.#edges.retire({ slug: this.#slug, generation, timeoutMs }).catch(() => undefined);
    return answer?.inFlight;
  }
}
