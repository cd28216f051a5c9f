/** Starts instances beside the first of a slug while it needs more than one core, and lets them go again (decision 23). */
import os from 'node:os';
import { isSpreadable } from '../bindings/durable-objects/classes.ts';
import type { InstanceSpec } from '../shared/contracts.ts';
import type { Mutex } from '../shared/mutex.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { InstanceProcess } from './instance-process.ts';
import type { InstanceStarts, SlugParts, StartOptions } from './instance-starts.ts';

/** Asked once: it is read from files of the machine's cgroups. */
const CORES = os.availableParallelism();

export interface MoreInstancesOptions extends StartOptions {
  preview?: string | undefined;
  /** Makes room for one more instance. @throws Problem overloaded */
  admit(): Promise<void>;
}

interface Parts extends Pick<SlugParts, 'instances' | 'notices' | 'reports'> {
  starts: InstanceStarts;
  /** Starts, replacements and closings of the slug. */
  turns: Mutex;
}

export class MoreInstances {
  readonly #options: MoreInstancesOptions;
  readonly #slug: Parts;

  constructor(options: MoreInstancesOptions, slug: Parts) {
    this.#options = options;
    this.#slug = slug;
  }

  /** Starts one, or lets one go, where that is due. Call several times a second. @param now ms of `performance.now()` */
  adjust(now: number, inFlight: number, idleCores: () => number): void {
    const { instances, reports, turns } = this.#slug;
    const { alive: first } = instances;
    if (!first || !turns.idle) return;
    const most = this.#most(first.spec);
    if (most === 1 && instances.serving.length === 1) return;
    const limits = { most, idleCores: this.#options.dependencies.config.idleCores };
    const change = instances.change(now, inFlight, idleCores(), limits);
    if (change === 'fewer') void instances.letGo();
    // An instance that passed a limit is not doubled: the second would pass it, too.
    if (change === 'more' && reports.record.pauseMs === 0 && !reports.record.exceededLately) void this.#startOne(first);
  }

  /** Back to one instance. */
  makeDo(): void {
    const { instances, turns } = this.#slug;
    while (turns.idle && instances.serving.length > 1) void instances.letGo();
  }

  /** Starts so many beside the first, as far as its deployment may have them; edges are not told. What fails is tried when it is needed. */
  async start(first: InstanceProcess, count: number): Promise<void> {
    const { dependencies, slug } = this.#options;
    try {
      for (let more = 0; more < Math.min(count, this.#most(first.spec) - 1); more++) {
        await this.#options.admit();
        await this.#slug.starts.start(first.spec, { beside: first });
      }
    } catch (error) {
      dependencies.log.warn({ err: error, slug }, 'an instance was not started beside another');
    }
  }

  async #startOne(first: InstanceProcess): Promise<void> {
    const { instances, notices, turns } = this.#slug;
    await turns.run(async () => {
      if (instances.alive !== first) return;
      const before = instances.serving;
      await this.start(first, 1);
      const added = instances.serving.filter((one) => !before.includes(one));
      // An edge that does not hear of it sends its requests to the others.
      await Promise.allSettled(added.map((one) => notices.inService(one)));
    });
  }

  #most({ bindings, limits }: InstanceSpec): number {
    const { dependencies, members, preview } = this.#options;
    if (preview !== undefined || !isSpreadable(bindings, members !== undefined)) return 1;
    const { instances } = { ...dependencies.config, ...limitsOf('runtime', limits) };
    return instances || (CORES > 2 ? CORES : 1);
  }
}
