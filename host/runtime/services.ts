/**
 * The sockets that one deployment's instances may use, opened before the first of them starts and closed after the last
 * one ended. Identity is the socket: what a tenant was not given has no file in its folder.
 */
import { chmodSync, chownSync, existsSync, rmSync, symlinkSync } from 'node:fs';
import { readlink, rm } from 'node:fs/promises';
import path from 'node:path';
import { CACHE, usesCaches } from '../bindings/cache-api/caches.ts';
import { type Bound, boundBindings, distinctServices } from '../bindings/index.ts';
import type { BindingProcesses, ServedBinding } from '../bindings/server.ts';
import { storeName } from '../bindings/stores.ts';
import type { BindingSet, InstanceSpec, StorageQuotas, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { RuntimeDependencies } from './contract.ts';
import { NextInstance } from './next-instance.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import { folderOf } from './standby.ts';

export interface ServicesOptions {
  dependencies: RuntimeDependencies;
  spec: InstanceSpec;
  /** The sandbox of the first instance: the sockets go into its folder, for its user. */
  prewarmed: PrewarmedSandbox;
  onBindingDeath(detail: string): void;
}

/** Folders of static files at a time, where no more are in use: of the present version, and of earlier ones. */
const PLACED = 3;

export class Services {
  /** Folder of the sockets. */
  readonly folder: string;
  readonly next = new NextInstance();
  /** Folders of static files, the oldest first. */
  readonly #placed = new Set<string>();
  /** How many instances use each. */
  readonly #placedFor = new Map<string, number>();
  #placing: Promise<void> = Promise.resolve();
  #shownAt: string | undefined;
  readonly #options: ServicesOptions;
  /** Of the newest instance. */
  #spec: InstanceSpec;
  /** All that were opened, by their services. */
  readonly #bound = new Map<string, Bound>();
  /** One of them uses the Cache API. */
  #caches = false;
  /** Those that the storage process does not serve. */
  readonly #served = new Map<string, ServedBinding>();

  constructor(options: ServicesOptions) {
    this.#options = options;
    this.#spec = options.spec;
    this.folder = options.prewarmed.servicesFolder;
  }

  /** The user for whom the sockets are. */
  get uid(): number | undefined {
    return this.#options.prewarmed.uid;
  }

  /** A folder for one more instance on these services; never one of the sandbox's own, such as `s`. */
  listenFolder(generation: number): string {
    return path.join(folderOf(this.#options.prewarmed), `g${generation.toString(36)}`);
  }

  /** Processes of the bindings, beside the instance's own. */
  get processes(): BindingProcesses[] {
    return [...this.#served.values()].flatMap(({ processes }) => processes ?? []);
  }

  /**
   * Opens what the bindings of an instance need, beside what is open: while a deployment is being replaced, the old
   * instance still uses its own. Limits are the new one's from now on.
   */
  async open(spec: InstanceSpec): Promise<void> {
    this.#spec = spec;
    this.#caches ||= usesCaches(spec.bundle);
    for (const bound of distinctServices(boundBindings(spec.bindings))) {
      this.#prepare(bound);
      this.#bound.set(bound.service, bound);
    }
    await Promise.all([
      this.openStorage(),
      this.openEgress(),
      ...[...this.#served.values()].map((served) => served.open()),
    ]);
  }

  /** Makes the folder of an instance's static files. @returns `release` is called when that instance has ended */
  place(assets: InstanceSpec['assets']): { done: Promise<void>; release(): void } {
    if (!assets) return { done: Promise.resolve(), release: () => undefined };
    const { name } = assets;
    const count = (more: number) => this.#placedFor.set(name, (this.#placedFor.get(name) ?? 0) + more);
    count(1);
    // One after the other: what is removed may be wanted again.
    const done = this.#placing.then(async () => {
      if (!this.#placed.has(name)) await assets.place(path.join(this.folder, name));
      this.#placed.add(name);
      await this.#removeUnused();
    });
    this.#placing = done.catch(() => undefined);
    return { done, release: () => void count(-1) };
  }

  /** What ended instances had goes with the next but one. */
  async #removeUnused(): Promise<void> {
    const unused = [...this.#placed].filter((name) => !this.#placedFor.get(name));
    for (const name of unused.slice(0, Math.max(0, this.#placed.size - PLACED))) {
      this.#placed.delete(name);
      this.#placedFor.delete(name);
      await rm(path.join(this.folder, name), { recursive: true, force: true });
    }
  }

  /**
   * Makes `<run>/<slug>` lead to the sockets, whatever folder they are in: `kv.sock`, `r2.sock` and so on each serve that
   * tenant's binding over plain HTTP.
   */
  showAt(name: string): void {
    this.#shownAt = name;
    rmSync(name, { force: true, recursive: true });
    symlinkSync(this.folder, name);
  }

  /** Starts what these bindings have of their own ahead of the first call. */
  warm(bindings: BindingSet): void {
    for (const { service } of boundBindings(bindings)) this.#served.get(service)?.processes?.warm();
  }

  /** Again after the storage process was started anew. */
  async openStorage(): Promise<void> {
    const { dependencies } = this.#options;
    for (const { tenant, stores, quotas } of this.#spaces()) {
      await dependencies.storage.open({
        tenant,
        folder: this.folder,
        stores: stores.map(({ name, service }) => ({ name, socket: `${service}.sock` })),
        quotas,
      });
      this.#permit(...stores.map(({ service }) => service));
    }
  }

  /** Again after the egress process was started anew. */
  async openEgress(): Promise<void> {
    const { dependencies } = this.#options;
    const spec = this.#spec;
    const limits = { ...dependencies.config, ...limitsOf('runtime', spec.limits) };
    const { subrequests, egressBytesPerHour, egressTimeoutMs, databaseConnections } = limits;
    const databases = [...this.#bound.values()].flatMap(({ binding, name, service }) => {
      const secret = binding.connectionSecret?.(name);
      return secret === undefined ? [] : [{ service, secret }];
    });
    await dependencies.egress.open({
      tenant: spec.tenant,
      slug: spec.slug,
      socket: path.join(this.folder, 'egress.sock'),
      allow: spec.egressAllow,
      limits: { inFlight: subrequests, bytesPerHour: egressBytesPerHour, timeoutMs: egressTimeoutMs },
      databases: {
        sockets: databases.map(({ service, secret }) => ({
          socket: path.join(this.folder, `${service}.sock`),
          secret,
          url: spec.secrets[secret],
        })),
        connections: databaseConnections,
      },
    });
    this.#permit('egress', ...databases.map(({ service }) => service));
  }

  async close(): Promise<void> {
    const { dependencies, spec, prewarmed } = this.#options;
    const { tenant } = spec;
    // A process that is being restarted has forgotten the tenant anyway.
    await Promise.allSettled([
      this.next.close(),
      ...this.#spaces().map((space) => dependencies.storage.close({ tenant: space.tenant, folder: this.folder })),
      dependencies.egress.close({ tenant }),
      ...[...this.#served.values()].map((served) => served.close()),
    ]);
    // Those of the slug's next deployment may be there by now.
    if (this.#shownAt && (await readlink(this.#shownAt).catch(() => undefined)) === this.folder)
      rmSync(this.#shownAt, { force: true });
    for (const name of this.#placed) await rm(path.join(this.folder, name), { recursive: true, force: true });
    rmSync(folderOf(prewarmed), { recursive: true, force: true });
  }

  #quotas(): StorageQuotas {
    return { ...this.#options.dependencies.storeQuotas, ...limitsOf('storage', this.#spec.limits) };
  }

  /** Those that the storage process serves, by whose they are: the deployment's own, and those that its owner shares. */
  #spaces(): { tenant: TenantId; stores: { name: string; service: string }[]; quotas: StorageQuotas }[] {
    const all = [...this.#bound.values()]
      .filter(({ binding }) => binding.store)
      .map(({ binding, id, service, shared }) => ({ name: storeName(binding.key, id), service, shared }));
    if (this.#caches) all.push({ name: CACHE, service: CACHE, shared: false });
    const { tenant, sharedSpace } = this.#spec;
    const spaces = [{ tenant, stores: all.filter(({ shared }) => !shared), quotas: this.#quotas() }];
    if (sharedSpace !== undefined) {
      // Whichever of the owner's deployments opens it first, and whatever the operator set for that one.
      const quotas = this.#options.dependencies.storeQuotas;
      spaces.push({ tenant: sharedSpace, stores: all.filter(({ shared }) => shared), quotas });
    }
    return spaces.filter(({ stores }) => stores.length > 0);
  }

  /** @throws Problem start_failed where this host does not offer the binding */
  #prepare({ binding, name, id, service, settings }: Bound): void {
    if (binding.store || binding.connectionSecret || this.#served.has(service)) return;
    const { dependencies, spec, prewarmed, onBindingDeath } = this.#options;
    const server = dependencies.servers.get(binding.key);
    if (!server) {
      throw new Problem(
        'start_failed',
        `This deployment asks for ${name}, which this host does not offer; update it without that binding, or ask the operator.`,
      );
    }
    const served = server.serve({
      tenant: spec.tenant,
      slug: spec.slug,
      name,
      store: id,
      settings,
      service,
      servicesFolder: this.folder,
      socket: path.join(this.folder, `${service}.sock`),
      sandboxFolder: folderOf(prewarmed),
      clientUid: prewarmed.uid,
      quotas: () => this.#quotas(),
      permit: () => this.#permit(service),
      onDeath: onBindingDeath,
    });
    this.#served.set(service, served);
  }

  /** Connecting takes write permission on the socket, and the sockets are made by processes of another user. */
  #permit(...names: string[]): void {
    const { uid } = this;
    if (uid === undefined) return;
    for (const name of names) {
      const socket = path.join(this.folder, `${name}.sock`);
      if (!existsSync(socket)) continue;
      chmodSync(socket, 0o600);
      chownSync(socket, uid, uid);
    }
  }
}
