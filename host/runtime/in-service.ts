/**
 * The instances of one slug that serve its present revision: the first, and those beside it while it needs more than one
 * core (decision 23). One that is let go gets nothing new, and is watched as the others are until its last request ends.
 */
import { scheduleOf } from '../sandbox/process-tree.ts';
import { type Change, type CountLimits, InstanceCount } from './instance-count.ts';
import type { InstanceProcess } from './instance-process.ts';
import type { WatchedInstance } from './watched-instance.ts';

export class InService {
  #serving: WatchedInstance[] = [];
  #leaving: WatchedInstance[] = [];
  readonly #count = new InstanceCount();
  #turn = 0;

  get first(): WatchedInstance | undefined {
    return this.#serving[0];
  }

  /** All that get requests, the oldest first. */
  get instances(): InstanceProcess[] {
    return this.#serving.map(({ instance }) => instance);
  }

  /** Those that were let go, too. */
  get watched(): WatchedInstance[] {
    return [...this.#serving, ...this.#leaving];
  }

  /** One after the other. */
  next(): InstanceProcess | undefined {
    const alive = this.instances.filter((instance) => instance.alive);
    return alive[this.#turn++ % alive.length];
  }

  /** It serves beside those of the same revision, or in place of others, which are for the caller to end. */
  add(one: WatchedInstance): void {
    const isBeside = this.first?.instance.first === one.instance.first;
    this.#serving = isBeside ? [...this.#serving, one] : [one];
    this.#count.startAfresh();
  }

  /** The youngest of several gets nothing new from now on. */
  letGo(): InstanceProcess | undefined {
    const one = this.#serving.length > 1 ? this.#serving.pop() : undefined;
    if (one) this.#leaving.push(one);
    this.#count.startAfresh();
    return one?.instance;
  }

  /** It is not watched any more. @returns whether it was */
  remove(instance: InstanceProcess): boolean {
    const before = this.watched.length;
    this.#serving = this.#serving.filter((one) => one.instance !== instance);
    this.#leaving = this.#leaving.filter((one) => one.instance !== instance);
    this.#count.startAfresh();
    return this.watched.length < before;
  }

  /** @param at ms @param inFlight requests and runs @param idleCores of the machine */
  change(at: number, inFlight: number, idleCores: number, limits: CountLimits): Change {
    const load = { count: this.#serving.length, ranMs: 0, waitedMs: 0, inFlight };
    for (const { pid } of this.instances) {
      const schedule = pid === undefined ? undefined : scheduleOf(pid);
      load.ranMs += schedule?.ranMs ?? 0;
      load.waitedMs += schedule?.waitedMs ?? 0;
    }
    return this.#count.sample(at, load, idleCores, limits);
  }
}
