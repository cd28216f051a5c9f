/** How an instance of a slug is started: its sandbox, the services of its tenant, its part in the cluster, its process. */
import path from 'node:path';
import { objectsOf } from '../bindings/durable-objects/classes.ts';
import { tenantUser } from '../sandbox/users.ts';
import type { InstanceSpec } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { RuntimeDependencies } from './contract.ts';
import type { EdgeNotices } from './edge-notices.ts';
import { InstanceProcess } from './instance-process.ts';
import type { Members } from './members.ts';
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
    const { log } = dependencies;
    const config = { ...dependencies.config, ...limitsOf('runtime', spec.limits) };
    const tenant = spec.tenant;
    const generation = nextGeneration();
    reports.tenant = tenant;
    const { services, prewarmed } = await this.#slug.services
      .enter(tenant, async (known) => {
        const prewarmed = await this.#sandbox(spec, generation, known);
        prewarmed.cgroup?.allow(config.memoryBytes * HARD_LIMIT);
        const onBindingDeath = (text: string) => reports.log({ kind: 'platform', event: 'database-ended', text });
        return { services: known ?? new Services({ dependencies, spec, prewarmed, onBindingDeath }), prewarmed };
      })
      .catch(async (error) => {
        if (instances.none) await this.#slug.services.leave();
        throw error;
      });
    const placed = services.place(spec.assets);
    void prewarmed.process.ended.then(() => placed.release());
    const starting = Promise.all([this.#join(spec, generation, prewarmed), placed.done]).then(([member]) =>
      InstanceProcess.start({
        spec,
        generation,
        first: beside?.first,
        prewarmed,
        member,
        away: members !== undefined && !member && objects.isKept(spec),
        heapMb: config.heapMb,
        startTimeoutMs: config.startTimeoutMs,
        onLog: (entry) => reports.log(entry),
        onFailing: (instance, { reason, detail }) => void notices.failed(instance, reason, detail),
        onDiagnostic: (text) => log.debug({ tenant, slug, text }, 'workerd'),
      }),
    );
    try {
      services.showAt(path.join(dependencies.runFolder, slug));
      const [instance] = await Promise.all([starting, services.open(spec)]);
      instances.adopt(instance, aside);
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

  /** An update of what runs is being checked: the sandbox for it is made. */
  expectUpdate(): void {
    const services = this.#slug.services.current;
    const bindings = this.#slug.instances.current?.spec.bindings;
    if (!services || !bindings || objectsOf(bindings, this.#options.members !== undefined)) return;
    services.next.prepare(() => this.#beside(services, this.#options.nextGeneration(), { uid: services.uid }));
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
    const waiting = special.objects ? undefined : await known.next.take();
    return waiting ?? (await this.#beside(known, generation, special));
  }

  /** A sandbox for one more instance on the services. */
  #beside(
    known: Services,
    generation: number,
    special: Pick<PrewarmedSandboxOptions, 'uid' | 'objects'>,
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
