/**
 * The sockets that one deployment's instances may use, opened before the first of them starts and closed after the last
 * one ended. Identity is the socket: what a tenant was not given has no file in its folder.
 */
import { chmodSync, chownSync, existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { BindingSet, InstanceSpec } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { RuntimeDependencies } from './contract.ts';
import { OnDemandDatabase } from './on-demand-database.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import { folderOf } from './standby.ts';

export interface ServicesOptions {
  dependencies: RuntimeDependencies;
  spec: InstanceSpec;
  /** The sandbox of the first instance: the sockets go into its folder, for its user. */
  prewarmed: PrewarmedSandbox;
  databaseProgram: Promise<string>;
  onDatabaseDeath(detail: string): void;
}

export class Services {
  /** Folder of the sockets. */
  readonly folder: string;
  readonly #options: ServicesOptions;
  #bindings: BindingSet = { kv: false, d1: false, r2: false, payments: false };
  #database: OnDemandDatabase | undefined;

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

  get database(): OnDemandDatabase | undefined {
    return this.#database;
  }

  /**
   * Opens what these bindings need, beside what is open: while a deployment is being replaced, the old instance still
   * uses its own.
   */
  async open(bindings: BindingSet): Promise<void> {
    const { dependencies, spec } = this.#options;
    if (bindings.payments && !dependencies.payments) {
      throw new Problem(
        'start_failed',
        'This deployment needs the PAYMENTS binding, which this host does not offer; remove it from the bindings.',
      );
    }
    const wanted = {
      kv: bindings.kv || this.#bindings.kv,
      r2: bindings.r2 || this.#bindings.r2,
      d1: bindings.d1 || this.#bindings.d1,
      payments: bindings.payments || this.#bindings.payments,
    };
    const newDatabase = wanted.d1 && !this.#database;
    if (newDatabase) this.#database = this.#createDatabase();
    this.#bindings = wanted;
    await Promise.all([
      this.openStorage(),
      this.openEgress(),
      newDatabase ? this.#database?.open() : undefined,
      wanted.payments
        ? dependencies.payments
            ?.open({ tenant: spec.tenant, slug: spec.slug, socket: path.join(this.folder, 'payments.sock') })
            .then(() => this.#permit('payments'))
        : undefined,
    ]);
  }

  /** Again after the storage process was started anew. */
  async openStorage(): Promise<void> {
    const { kv, r2 } = this.#bindings;
    if (!kv && !r2) return;
    const { dependencies, spec } = this.#options;
    const { kvBytes, objectBytes, requestsInFlight } = dependencies.storageConfig;
    await dependencies.storage.open({
      tenant: spec.tenant,
      folder: this.folder,
      kv,
      r2,
      quotas: { kvBytes, objectBytes, requestsInFlight },
    });
    this.#permit('kv', 'r2');
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
    const { tenant, slug } = spec;
    const { kv, r2, payments } = this.#bindings;
    // A part that is being restarted has forgotten the tenant anyway.
    await Promise.allSettled([
      kv || r2 ? dependencies.storage.close({ tenant }) : undefined,
      dependencies.egress.close({ tenant }),
      payments ? dependencies.payments?.close({ tenant, slug }) : undefined,
      this.#database?.close(),
    ]);
    rmSync(folderOf(prewarmed), { recursive: true, force: true });
  }

  #createDatabase(): OnDemandDatabase {
    const { dependencies, spec, prewarmed, databaseProgram, onDatabaseDeath } = this.#options;
    return new OnDemandDatabase({
      tenant: spec.tenant,
      sandbox: dependencies.sandbox,
      storage: dependencies.storageConfig,
      program: databaseProgram,
      dataFolder: path.join(dependencies.tenantsFolder, spec.tenant, 'sql'),
      socketFolder: path.join(folderOf(prewarmed), 'q'),
      servicesFolder: this.folder,
      clientUid: prewarmed.uid,
      startTimeoutMs: dependencies.config.startTimeoutMs,
      log: dependencies.log,
      onDeath: onDatabaseDeath,
    });
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
