/**
 * The sockets that one deployment's instances may use, opened before the first of them starts and closed after the last
 * one ended. Identity is the socket: what a tenant was not given has no file in its folder.
 */
import { chmodSync, chownSync, existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { Binding } from '../bindings/binding.ts';
import { BINDINGS, bindingSet, enabledBindings, NO_BINDINGS } from '../bindings/index.ts';
import type { BindingProcesses, ServedBinding } from '../bindings/server.ts';
import type { BindingSet, InstanceSpec } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { RuntimeDependencies } from './contract.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import { folderOf } from './standby.ts';

export interface ServicesOptions {
  dependencies: RuntimeDependencies;
  spec: InstanceSpec;
  /** The sandbox of the first instance: the sockets go into its folder, for its user. */
  prewarmed: PrewarmedSandbox;
  onBindingDeath(detail: string): void;
}

export class Services {
  /** Folder of the sockets. */
  readonly folder: string;
  readonly #options: ServicesOptions;
  #bindings: BindingSet = NO_BINDINGS;
  /** Bindings that the storage process does not serve, by key. */
  readonly #served = new Map<string, ServedBinding>();

  constructor(options: ServicesOptions) {
    this.#options = options;
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
   * Opens what these bindings need, beside what is open: while a deployment is being replaced, the old instance still
   * uses its own.
   */
  async open(bindings: BindingSet): Promise<void> {
    for (const binding of enabledBindings(bindings)) this.#prepare(binding);
    this.#bindings = bindingSet(
      Object.fromEntries(BINDINGS.map(({ key }) => [key, bindings[key] || this.#bindings[key]])),
    );
    await Promise.all([
      this.openStorage(),
      this.openEgress(),
      ...[...this.#served.values()].map((served) => served.open()),
    ]);
  }

  /** Starts what these bindings have of their own ahead of the first call. */
  warm(bindings: BindingSet): void {
    for (const [key, { processes }] of this.#served) if (bindings[key]) processes?.warm();
  }

  /** Again after the storage process was started anew. */
  async openStorage(): Promise<void> {
    const stores = this.#stores();
    if (stores.length === 0) return;
    const { dependencies, spec } = this.#options;
    await dependencies.storage.open({
      tenant: spec.tenant,
      folder: this.folder,
      stores,
      quotas: dependencies.storeQuotas,
    });
    this.#permit(...stores);
  }

  /** Again after the egress process was started anew. */
  async openEgress(): Promise<void> {
    const { dependencies, spec } = this.#options;
    const { subrequests, egressBytesPerHour, egressTimeoutMs } = dependencies.config;
    await dependencies.egress.open({
      tenant: spec.tenant,
      slug: spec.slug,
      socket: path.join(this.folder, 'egress.sock'),
      allow: spec.egressAllow,
      limits: { inFlight: subrequests, bytesPerHour: egressBytesPerHour, timeoutMs: egressTimeoutMs },
    });
    this.#permit('egress');
  }

  async close(): Promise<void> {
    const { dependencies, spec, prewarmed } = this.#options;
    const { tenant } = spec;
    // A process that is being restarted has forgotten the tenant anyway.
    await Promise.allSettled([
      this.#stores().length > 0 ? dependencies.storage.close({ tenant }) : undefined,
      dependencies.egress.close({ tenant }),
      ...[...this.#served.values()].map((served) => served.close()),
    ]);
    rmSync(folderOf(prewarmed), { recursive: true, force: true });
  }

  /** Keys of the bindings that the storage process serves. */
  #stores(): string[] {
    return enabledBindings(this.#bindings).flatMap(({ key, store }) => (store ? [key] : []));
  }

  /** @throws Problem start_failed where this host does not offer the binding */
  #prepare({ key, env, store }: Binding): void {
    if (store || this.#served.has(key)) return;
    const { dependencies, spec, prewarmed, onBindingDeath } = this.#options;
    const server = dependencies.servers.get(key);
    if (!server) {
      throw new Problem(
        'start_failed',
        `This deployment asks for ${env}, which this host does not offer; update it without that binding, or ask the operator.`,
      );
    }
    const served = server.serve({
      tenant: spec.tenant,
      slug: spec.slug,
      servicesFolder: this.folder,
      socket: path.join(this.folder, `${key}.sock`),
      sandboxFolder: folderOf(prewarmed),
      clientUid: prewarmed.uid,
      permit: () => this.#permit(key),
      onDeath: onBindingDeath,
    });
    this.#served.set(key, served);
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
