/**
 * The instances this edge sends requests to: which ones a slug has now, how many requests each has in flight, and
 * why it died. Starting one is control's work; callers that come at once share the wait.
 */

import { UpstreamPool } from '../http/client/pool.ts';
import type { ReadMemory } from '../http/message/blocks.ts';
import { answerField } from '../http/message/fields.ts';
import type { ControlForEdge, EdgeMethods, ServingInstance } from '../shared/contracts.ts';
import { PROBLEMS, Problem, type ProblemCode } from '../shared/problem.ts';
import { BulkLine, type BulkPace } from './bulk-pace.ts';

type Acquire = (slug: { slug: string }) => Promise<Awaited<ReturnType<ControlForEdge['acquire']>>>;

/** Callers of one slug that may wait for its start. */
const MAX_WAITING = 1_024;
/** How long a refusal to start answers further callers, ms: who hammers a handler that keeps failing costs control little. */
const REFUSAL_MS = 250;

export class Instance {
  readonly slug: string;
  readonly generation: number;
  /** The same for all that serve the same code. */
  readonly first: number;
  readonly pool: UpstreamPool;
  /** Its large answers, with those of the slug's earlier instances. */
  readonly bulk: BulkLine;
  inFlight = 0;
  /** Requests whose answer has not begun: who only sends or listens keeps nobody from its event loop. */
  waiting = 0;
  /** Since it was last reported. */
  bytesOut = 0;
  #failure: Problem | undefined;
  #idle: (() => void)[] = [];
  #deaths: ((problem: Problem) => void)[] = [];

  constructor({ slug, generation, first, socket }: ServingInstance, memory: ReadMemory, bulk: BulkLine) {
    this.slug = slug;
    this.generation = generation;
    this.first = first;
    this.bulk = bulk;
    this.pool = new UpstreamPool({ socketPath: socket, classify: answerField, memory, bulk });
  }

  enter(): void {
    this.inFlight += 1;
  }

  leave(): void {
    this.inFlight -= 1;
    if (this.inFlight === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Resolves when nothing is in flight, or after `timeoutMs`. */
  async idle(timeoutMs: number): Promise<void> {
    if (this.inFlight === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#idle.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  fail(problem: Problem): void {
    this.#failure = problem;
    for (const tell of this.#deaths.splice(0)) tell(problem);
  }

  /** What control said of its end, where it did. */
  get failure(): Problem | undefined {
    return this.#failure;
  }

  /** Why it died; control's word may come a moment after the broken connection. @returns undefined: not heard in time */
  whyDead(waitMs: number): Promise<Problem | undefined> {
    if (this.#failure) return Promise.resolve(this.#failure);
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), waitMs);
      this.#deaths.push((problem) => {
        clearTimeout(timer);
        resolve(problem);
      });
    });
  }
}

export class Instances {
  readonly #acquire: Acquire;
  readonly #memory: ReadMemory;
  readonly #pace: BulkPace;
  /** Those of a slug serve the same code. */
  readonly #current = new Map<string, Instance[]>();
  /** Counts choices among several. */
  #turn = 0;
  /** Retired ones with requests in flight, to find the reason when they die. */
  readonly #leaving = new Set<Instance>();
  readonly #starting = new Map<string, { instance: Promise<Instance>; waiting: number }>();
  readonly #refused = new Map<string, { problem: Problem; until: number }>();

  /** @param memory what the sockets of all instances read into @param pace of large answers */
  constructor(acquire: Acquire, memory: ReadMemory, pace: BulkPace) {
    this.#acquire = acquire;
    this.#memory = memory;
    this.#pace = pace;
  }

  /** Of several, the one with the fewest requests whose answer has not begun; in turn among equals. */
  current(slug: string): Instance | undefined {
    const serving = this.#current.get(slug);
    if (serving === undefined || serving.length === 1) return serving?.[0];
    const turn = this.#turn++ % serving.length;
    let best = serving[turn];
    for (let step = 1; best && best.waiting > 0 && step < serving.length; step++) {
      const one = serving[(turn + step) % serving.length];
      if (one && one.waiting < best.waiting) best = one;
    }
    return best;
  }

  /** For a request whose instance is lost. @throws Problem */
  async next(slug: string): Promise<Instance> {
    return this.current(slug) ?? (await this.start(slug));
  }

  /** Asks control for an instance. @throws Problem start_failed, crash_loop, overloaded, ... */
  async start(slug: string): Promise<Instance> {
    const refused = this.#refused.get(slug);
    if (refused && performance.now() < refused.until) throw refused.problem;
    let starting = this.#starting.get(slug);
    if (!starting) {
      this.#refused.delete(slug);
      const instance = this.#acquire({ slug }).then(({ socket, generation, first, beside = [] }) => {
        for (const one of [{ slug, socket, generation, first }, ...beside]) this.set(one);
        const current = this.current(slug);
        if (!current) throw new Problem('not_ready', `${slug} is being replaced; try again in a second.`);
        return current;
      });
      starting = { instance, waiting: 0 };
      this.#starting.set(slug, starting);
      instance.then(
        () => this.#starting.delete(slug),
        (reason: unknown) => {
          this.#starting.delete(slug);
          if (reason instanceof Problem && reason.code === 'crash_loop') {
            this.#refused.set(slug, { problem: reason, until: performance.now() + REFUSAL_MS });
          }
        },
      );
    }
    if (starting.waiting >= MAX_WAITING) {
      throw new Problem('overloaded', `Too many requests wait for ${slug} to start; try again in a second.`);
    }
    starting.waiting += 1;
    return await starting.instance;
  }

  /** What the slug's instances have answered since this was last asked, bytes by generation. */
  takeBytesOut(slug: string): Record<number, number> {
    const all = [...(this.#current.get(slug) ?? []), ...[...this.#leaving].filter((one) => one.slug === slug)];
    return Object.fromEntries(
      all.map((one) => {
        const { generation, bytesOut } = one;
        one.bytesOut = 0;
        return [generation, bytesOut];
      }),
    );
  }

  /** Something of the slug has changed, its code perhaps: what was said of it is void. */
  changed(slug: string): void {
    this.#refused.delete(slug);
  }

  set(instance: ServingInstance): void {
    const { slug, generation, first } = instance;
    const serving = this.#current.get(slug) ?? [];
    // Messages about an older one may come late.
    if (serving.some((one) => one.first > first || one.generation === generation)) return;
    this.#refused.delete(slug);
    const bulk = serving[0]?.bulk ?? new BulkLine(this.#pace);
    const beside = serving.filter((one) => one.first === first);
    for (const one of serving) if (one.first !== first) this.#leave(one);
    this.#current.set(slug, [...beside, new Instance(instance, this.#memory, bulk)]);
  }

  /** It does not answer any more; where it was the only one, the next request asks control. */
  lost(instance: Instance): void {
    const { slug } = instance;
    const left = this.#current.get(slug)?.filter((one) => one !== instance) ?? [];
    if (left.length > 0) this.#current.set(slug, left);
    else this.#current.delete(slug);
    this.#leave(instance);
  }

  async retire({ slug, generation, timeoutMs }: Parameters<EdgeMethods['retire']>[0]): Promise<{ inFlight: number }> {
    const instance = this.#find(slug, generation);
    if (!instance) return { inFlight: 0 };
    this.lost(instance);
    await instance.idle(timeoutMs);
    return { inFlight: instance.inFlight };
  }

  failed({ slug, generation, code, detail }: Parameters<EdgeMethods['failed']>[0]): void {
    const instance = this.#find(slug, generation);
    if (!instance) return;
    this.lost(instance);
    instance.fail(new Problem(code in PROBLEMS ? (code as ProblemCode) : 'upstream_failed', detail));
  }

  #find(slug: string, generation: number): Instance | undefined {
    const current = this.#current.get(slug)?.find((one) => one.generation === generation);
    if (current) return current;
    for (const instance of this.#leaving) {
      if (instance.slug === slug && instance.generation === generation) return instance;
    }
    return undefined;
  }

  #leave(instance: Instance): void {
    instance.pool.close();
    if (instance.inFlight === 0 || this.#leaving.has(instance)) return;
    this.#leaving.add(instance);
    void instance.idle(2 ** 31 - 1).then(() => this.#leaving.delete(instance));
  }
}
