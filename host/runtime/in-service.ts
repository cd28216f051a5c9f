/**
 * The instances of one slug that serve its present revision: the first, and those beside it while it needs more than one
 * core (decision 23). Those of the next revision stand aside until they take over. One that is let go gets nothing new, and
 * is watched as the others are until its last request ends.
 */
import { scheduleOf } from '../sandbox/process-tree.ts';
import { type Change, type CountLimits, InstanceCount } from './instance-count.ts';
import type { InstanceProcess } from './instance-process.ts';
import type { WatchedInstance } from './watched-instance.ts';

export class InService {
  #serving: WatchedInstance[] = [];
  #aside: WatchedInstance[] = [];
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

  /** Those that stand aside, and those that were let go, too. */
  get watched(): WatchedInstance[] {
    return [...this.#serving, ...this.#aside, ...this.#leaving];
  }

  /** One after the other. */
  next(): InstanceProcess | undefined {
    const alive = this.instances.filter((instance) => instance.alive);
    return alive[this.#turn++ % alive.length];
  }

  /** It goes to those of its revision. @param aside the first of another one serves nobody before `takeOver` */
  add(one: WatchedInstance, aside: boolean): void {
    const isBeside = ([first]: WatchedInstance[]): boolean => first?.instance.first === one.instance.first;
    if (isBeside(this.#serving)) this.#serving.push(one);
    else if (isBeside(this.#aside)) this.#aside.push(one);
    else {
      this.#aside = [one];
      if (!aside) this.takeOver();
    }
    this.#count.startAfresh();
  }

  /** Those that stand aside serve in place of the others, which are for the caller to end. */
  takeOver(): void {
    if (this.#aside.length === 0) return;
    this.#leaving.push(...this.#serving);
    this.#serving = this.#aside;
    this.#aside = [];
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
    this.#aside = this.#aside.filter((one) => one.instance !== instance);
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
