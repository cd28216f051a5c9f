/** How an instance of a slug is started: its sandbox, the services of its tenant, its part in the cluster, its process. */
import path from 'node:path';
import { objectsOf } from '../bindings/durable-objects/classes.ts';
import { tenantUser } from '../sandbox/users.ts';
import type { InstancePlan, InstanceSpec } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { RuntimeDependencies } from './contract.ts';
import type { ProbedStart, ProbePlace } from './deploy/probe.ts';
import type { EdgeNotices } from './edge-notices.ts';
import { InstanceProcess, type InstanceProcessOptions } from './instance-process.ts';
import type { NewLogEntry } from './logs/log-entry.ts';
import type { Members } from './members.ts';
import type { LoadedInstance } from './next-instance.ts';
import {
  HARD_LIMIT,
  type PrewarmedSandbox,
  type PrewarmedSandboxOptions,
  startPrewarmedSandbox,
} from './prewarmed-sandbox.ts';
import { Services } from './services.ts';
import type { SlugInstances } from './slug-instances.ts';
import type { SlugObjects } from './slug-objects.ts';
import type { SlugReports } from './slug-reports.ts';
import type { SlugServices } from './slug-services.ts';
import type { Standby } from './standby.ts';

/** What one node has for all starts. */
export interface StartOptions {
  slug: string;
  dependencies: RuntimeDependencies;
  standby: Standby;
  /** Where the kernel keeps the limits. */
  cgroups: PrewarmedSandboxOptions['cgroups'];
  /** Set where objects are the cluster's. */
  members: Members | undefined;
  nextGeneration(): number;
}

/** What the instances of the slug have. */
export interface SlugParts {
  instances: SlugInstances;
  notices: EdgeNotices;
  objects: SlugObjects;
  reports: SlugReports;
  services: SlugServices;
}

/** Lines that code prints while it is probed, for the owner's log once it is in service. */
const MOST_SAID = 100;

export class InstanceStarts {
  readonly #options: StartOptions;
  readonly #slug: SlugParts;

  constructor(options: StartOptions, slug: SlugParts) {
    this.#options = options;
    this.#slug = slug;
  }

  /**
   * Starts an instance beside whatever runs, and takes it into service.
   * @param beside which it serves; without one in place of all @param aside not before it is told to take over
   * @throws Problem
   */
  async start(
    spec: InstanceSpec,
    { beside, aside = false }: { beside?: InstanceProcess; aside?: boolean } = {},
  ): Promise<InstanceProcess> {
    const { slug, dependencies, members, nextGeneration } = this.#options;
    const { instances, notices, objects, reports } = this.#slug;
    const { tenant } = spec;
    const generation = nextGeneration();
    reports.tenant = tenant;
    const { services, prewarmed, loaded } = await this.#slug.services
      .enter(tenant, async (known) => {
        const loaded = aside ? known?.next.takeLoaded(spec, instances.all) : undefined;
        if (known && loaded) return { services: known, prewarmed: loaded.sandbox, loaded };
        const prewarmed = await this.#sandbox(spec, generation, known);
        prewarmed.cgroup?.allow(this.#config(spec).memoryBytes * HARD_LIMIT);
        const onBindingDeath = (text: string) => reports.log({ kind: 'platform', event: 'database-ended', text });
        return { services: known ?? new Services({ dependencies, spec, prewarmed, onBindingDeath }), prewarmed };
      })
      .catch(async (error) => {
        if (instances.none) await this.#slug.services.leave();
        throw error;
      });
    const start = async () => {
      const placed = placeFiles(services, spec.assets, prewarmed);
      const [member] = await Promise.all([this.#join(spec, generation, prewarmed), placed]);
      return await InstanceProcess.start({
        spec,
        generation,
        first: beside?.first,
        prewarmed,
        member,
        away: members !== undefined && !member && objects.isKept(spec),
        ...this.#settings(spec),
        onLog: (entry) => reports.log(entry),
        onFailing: (instance, { reason, detail }) => void notices.failed(instance, reason, detail),
      });
    };
    const starting = loaded ? Promise.resolve(loaded.instance) : start();
    try {
      services.showAt(path.join(dependencies.runFolder, slug));
      const [instance] = await Promise.all([starting, services.open(spec)]);
      instances.adopt(instance, aside);
      loaded?.adopted();
      if (this.#slug.services.processesUsed) services.warm(spec.bindings);
      return instance;
    } catch (error) {
      void starting.then((instance) => instance.kill('start_failed', 'A service did not open.')).catch(() => undefined);
      if (instances.none) await this.#slug.services.leave();
      if (error instanceof Problem && (error.code === 'start_failed' || error.code === 'memory_exceeded')) {
        reports.failed(error.code, error.message, 0);
        reports.emit({ type: 'start_failed', slug, tenant, detail: error.message });
      }
      throw error;
    }
  }

  /**
   * An update of what runs is being checked: the sandbox for it is made.
   * @param planned what it will be
   * @returns where to probe its code, so that the instance that was probed takes over; undefined where that cannot be
   */
  expectUpdate(planned: InstancePlan): ProbePlace | undefined {
    const { slug, dependencies, nextGeneration } = this.#options;
    const { current } = this.#slug.instances;
    const services = this.#slug.services.current;
    if (!services || current?.spec.tenant !== planned.tenant) return undefined;
    if (this.#hasObjects(current.spec) || this.#hasObjects(planned)) return undefined;
    const { compatibilityFlags, bundle } = current.spec;
    // Static files take an option that allows experimental flags, too.
    const judging = !planned.assets;
    // A trace of the probe is nobody's, and which other entrypoints there are is known only after it.
    const isInPlace =
      Object.keys(planned.bindings.tails || {}).length === 0 &&
      (bundle.entrypoints ?? []).length === 0 &&
      (judging || planned.compatibilityFlags.every((flag) => compatibilityFlags.includes(flag)));
    const keeper = isInPlace ? this.#slug.services.keepOpen() : undefined;
    const wanted = judging && keeper !== undefined;
    const make = () => this.#beside(services, nextGeneration(), { uid: services.uid, judging: wanted });
    services.next.prepare(make);
    if (!keeper) return undefined;
    let loaded: LoadedInstance | undefined;
    return {
      start: async ({ bundle }, probed) => {
        const sandbox = (await services.next.takeSandbox(wanted)) ?? (await make());
        await placeFiles(services, planned.assets, sandbox);
        loaded = await this.#load({ ...planned, bundle }, sandbox, probed);
        return loaded.instance;
      },
      end: (accepted, unwatch) => {
        if (loaded && accepted) services.next.keepLoaded(watchedUntilAdopted(loaded, unwatch));
        else void loaded?.instance.kill('stopped', 'The probe is over.');
        keeper().catch((error) => dependencies.log.warn({ err: error, slug }, 'services were not closed'));
      },
    };
  }

  /** Starts an instance that is not in service yet. Edges and the owner's log hear of it only when it is adopted. */
  async #load(spec: InstanceSpec, sandbox: PrewarmedSandbox, probed: ProbedStart): Promise<LoadedInstance> {
    const { notices, reports } = this.#slug;
    const said: NewLogEntry[] = [];
    let inService = false;
    sandbox.cgroup?.allow(this.#config(spec).memoryBytes * HARD_LIMIT);
    const instance = await InstanceProcess.start({
      ...probed,
      spec,
      generation: this.#options.nextGeneration(),
      prewarmed: sandbox,
      ...this.#settings(spec),
      onLog: (entry) => {
        if (inService) reports.log(entry);
        else if (said.length < MOST_SAID) said.push(entry);
      },
      onFailing: (instance, { reason, detail }) => {
        if (inService) void notices.failed(instance, reason, detail);
      },
    });
    const adopted = () => {
      inService = true;
      for (const entry of said.splice(0)) reports.log(entry);
    };
    return { instance, sandbox, adopted };
  }

  #config({ limits }: InstanceSpec) {
    return { ...this.#options.dependencies.config, ...limitsOf('runtime', limits) };
  }

  #settings(spec: InstanceSpec): Pick<InstanceProcessOptions, 'heapMb' | 'startTimeoutMs' | 'onDiagnostic'> {
    const { slug, dependencies } = this.#options;
    const { heapMb, startTimeoutMs } = this.#config(spec);
    const onDiagnostic = (text: string) => dependencies.log.debug({ tenant: spec.tenant, slug, text }, 'workerd');
    return { heapMb, startTimeoutMs, onDiagnostic };
  }

  #hasObjects({ bindings }: Pick<InstanceSpec, 'bindings'>): boolean {
    return objectsOf(bindings, this.#options.members !== undefined) !== undefined;
  }

  /** Makes an instance whose objects are the cluster's a member of it. */
  async #join(spec: InstanceSpec, generation: number, prewarmed: PrewarmedSandbox) {
    const { members } = this.#options;
    if (!members || prewarmed.inside.objects === undefined) return undefined;
    try {
      return await members.join(spec.tenant, generation, this.#slug.objects.part(spec), prewarmed);
    } catch (error) {
      prewarmed.process.kill();
      await prewarmed.process.ended;
      throw error;
    }
  }

  /** @throws Problem quota_exceeded */
  async #sandbox(spec: InstanceSpec, generation: number, known: Services | undefined): Promise<PrewarmedSandbox> {
    const { standby } = this.#options;
    const { objects, instances } = this.#slug;
    const uid = known ? known.uid : tenantUser(spec.tenant);
    const special = { uid, objects: await objects.open(spec, uid, generation, instances.draining) };
    if (!known) return special.objects ? await standby.make(special) : await standby.take();
    const waiting = special.objects ? undefined : await known.next.takeSandbox(false);
    return waiting ?? (await this.#beside(known, generation, special));
  }

  /** A sandbox for one more instance on the services. */
  #beside(
    known: Services,
    generation: number,
    special: Pick<PrewarmedSandboxOptions, 'uid' | 'objects' | 'judging'>,
  ): Promise<PrewarmedSandbox> {
    const { dependencies, cgroups } = this.#options;
    return startPrewarmedSandbox({
      ...special,
      sandbox: dependencies.sandbox,
      listenFolder: known.listenFolder(generation),
      servicesFolder: known.folder,
      cgroups,
    });
  }
}

/** The limits of a probe hold until the instance is in service, where other limits do. */
function watchedUntilAdopted(loaded: LoadedInstance, unwatch: () => void): LoadedInstance {
  const adopted = () => {
    unwatch();
    loaded.adopted();
  };
  return { ...loaded, adopted };
}

/** Makes the folder of static files, for as long as the sandbox is there. It ends where that cannot be made. */
async function placeFiles(services: Services, assets: InstanceSpec['assets'], { process }: PrewarmedSandbox) {
  const placed = services.place(assets);
  void process.ended.then(() => placed.release());
  try {
    await placed.done;
  } catch (error) {
    process.kill();
    await process.ended;
    throw error;
  }
}
