/**
 * The storage process's work: serves each tenant's stores on its own sockets, and answers the supervisor's calls
 * about tenants (StorageMethods in shared/contracts.ts).
 */
import { existsSync, mkdirSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { AdjustableClock } from '../../shared/clock.ts';
import type { StorageQuotas, StorageUsage, TenantId } from '../../shared/contracts.ts';
import { KeyedLock } from '../../shared/mutex.ts';
import { Problem } from '../../shared/problem.ts';
import { Backup } from './backup.ts';
import type { ObjectBucket } from './blobs/backend.ts';
import { Checkpoints } from './checkpoints.ts';
import type { MakeStoreKind, StoreKind } from './kind.ts';
import { CallServer, Gate } from './listener.ts';
import { Operations } from './metrics.ts';
import { type Lease, OpenStores, type Store } from './open-stores.ts';

/** Databases held open at once; each takes about 2 MB. */
const OPEN_STORES = 256;
/** How long calls under way may go on when a tenant is closed, ms. */
const CLOSE_GRACE_MS = 5_000;
const SWEEP_EVERY_MS = 30_000;

interface Tenant {
  gate: Gate;
  quotas: StorageQuotas;
  /** Socket path -> its server. */
  servers: Map<string, CallServer>;
}

export interface ServiceOptions {
  /** Folder of all tenants' data. */
  root: string;
  /** By the key of their binding, which names a store's folder, files and socket. */
  kinds: ReadonlyMap<string, MakeStoreKind>;
  /** Where objects live; undefined: in files below the root. */
  bucket: ObjectBucket | undefined;
  clockOffsetMs: number;
  log: Logger;
  /** Stores held open at once. */
  openStores?: number;
}

export class StorageService {
  readonly #root: string;
  readonly #log: Logger;
  readonly #clock: AdjustableClock;
  readonly #bucket: ObjectBucket | undefined;
  readonly #stores: OpenStores;
  readonly #operations: Operations;
  readonly #kinds = new Map<string, StoreKind>();
  readonly #tenants = new Map<TenantId, Tenant>();
  readonly #backup: Backup;
  readonly #checkpoints: Checkpoints;
  readonly #sweeper: NodeJS.Timeout;
  /** Opening and closing of one tenant happen one after the other. */
  readonly #turns = new KeyedLock();

  constructor(options: ServiceOptions) {
    this.#root = options.root;
    this.#log = options.log;
    this.#checkpoints = new Checkpoints(options.log);
    this.#clock = new AdjustableClock(options.clockOffsetMs);
    this.#bucket = options.bucket;
    this.#stores = new OpenStores(options.openStores ?? OPEN_STORES);
    this.#operations = new Operations({
      openStores: () => this.#stores.size,
      tenants: () => this.#tenants.size,
    });
    mkdirSync(options.root, { recursive: true });
    const parts = { bucket: options.bucket, clock: this.#clock, checkpoints: this.#checkpoints, log: options.log };
    for (const [key, make] of options.kinds) this.#kinds.set(key, make(parts));
    this.#backup = new Backup(
      options.root,
      this.#kinds,
      (tenant, kind) => this.#stores.get(`${tenant}/${kind}`)?.blobs,
    );
    this.#sweeper = setInterval(() => void this.sweep(), SWEEP_EVERY_MS);
    this.#sweeper.unref();
    this.#clock.onStep(() => void this.sweep());
  }

  /** Checks what the service cannot work without. Throws a Problem that says what to change. */
  async prepare(): Promise<void> {
    try {
      await this.#bucket?.prepare();
    } catch (error) {
      throw new Problem(
        'invalid_config',
        `The S3 bucket of storage.s3 cannot be used: ${(error as Error).message}. Check endpoint, region, bucket and keys.`,
        { cause: error },
      );
    }
  }

  /** Serves `<folder>/<key>.sock` of each of these stores. Again with other quotas: they hold from then on. */
  open(call: { tenant: TenantId; folder: string; stores: string[]; quotas: StorageQuotas }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#turns.run(id, async () => {
      let tenant = this.#tenants.get(id);
      if (!tenant) {
        tenant = { gate: new Gate(call.quotas.requestsInFlight), quotas: call.quotas, servers: new Map() };
        this.#tenants.set(id, tenant);
      }
      tenant.quotas = call.quotas;
      tenant.gate.limit = call.quotas.requestsInFlight;
      for (const key of call.stores) await this.#serve(id, tenant, key, call.folder);
    });
  }

  /** Ends the sockets; the data stays. */
  close(call: { tenant: TenantId }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#turns.run(id, () => this.#close(id));
  }

  /** What the tenant keeps: bytes of keys, values and metadata, parts of open uploads included. */
  usage(call: { tenant: TenantId }): StorageUsage {
    const id = checkedTenant(call.tenant);
    const usages = [...this.#kinds].map(([key, kind]) => kind.usage(this.#totals(id, key)));
    return Object.assign({}, ...usages);
  }

  /** Removes everything of the tenant, on disk and on S3. Can be repeated after a failure. */
  purge(call: { tenant: TenantId }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#turns.run(id, () => this.#backup.without(id, () => this.#purge(id)));
  }

  /** Copies all tenants' stores while they work; the layout below `folder` is that below the root. */
  async backup(call: { folder: string }): Promise<{ tenants: number; bytes: number }> {
    return this.#backup.run(call.folder);
  }

  setClock(call: { offsetMs: number }): void {
    this.#clock.setOffset(call.offsetMs);
  }

  metrics(): Promise<unknown> {
    return this.#operations.collect();
  }

  /** Removes what has expired in the stores that are open; others are swept once they are used. */
  async sweep(): Promise<void> {
    for (const name of this.#stores.names()) {
      const store = this.#stores.get(name);
      if (!store) continue;
      const lease = this.#stores.acquire(name, () => store);
      try {
        while ((await store.sweep()) > 0);
      } catch (error) {
        this.#log.warn({ err: error }, 'expired entries could not be swept; tried again later');
      } finally {
        this.#stores.release(lease);
      }
    }
  }

  async stop(): Promise<void> {
    clearInterval(this.#sweeper);
    await Promise.all([...this.#tenants.keys()].map((tenant) => this.close({ tenant })));
    await this.#stores.closeAll();
    for (const kind of this.#kinds.values()) await kind.close?.();
    await this.#checkpoints.close();
  }

  async #purge(id: TenantId): Promise<void> {
    await this.#close(id);
    for (const [key, kind] of this.#kinds) {
      await kind.purge?.(id);
      await rm(this.#folder(id, key), { recursive: true, force: true });
    }
    // Other parts may keep something of the tenant beside these folders.
    await rmdir(join(this.#root, id)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTEMPTY') throw error;
    });
  }

  async #serve(id: TenantId, tenant: Tenant, key: string, folder: string): Promise<void> {
    const path = join(folder, `${key}.sock`);
    if (tenant.servers.has(path)) return;
    const log = this.#log.child({ tenant: id });
    const handler = this.#kind(key).handler({
      gate: tenant.gate,
      operations: this.#operations,
      log,
      acquire: () => this.#acquire(id, key),
      release: (lease) => this.#stores.release(lease),
    });
    const failed = (error: unknown) => log.error({ err: error }, 'a call could not be served');
    tenant.servers.set(path, await CallServer.listen(path, handler, failed));
  }

  async #close(id: TenantId): Promise<void> {
    const tenant = this.#tenants.get(id);
    this.#tenants.delete(id);
    if (tenant) await Promise.all([...tenant.servers.values()].map((server) => server.stop(CLOSE_GRACE_MS)));
    for (const key of this.#kinds.keys()) await this.#stores.close(`${id}/${key}`);
  }

  #kind(key: string): StoreKind {
    const kind = this.#kinds.get(key);
    if (!kind) throw new Problem('invalid_field', `There is no kind of store named ${key}.`);
    return kind;
  }

  #acquire(id: TenantId, key: string): Lease<Store> {
    return this.#stores.acquire(`${id}/${key}`, () => {
      const kind = this.#kind(key);
      const quota = () => this.#tenants.get(id)?.quotas[kind.quota] ?? 0;
      const store = kind.open(id, this.#folder(id, key), quota);
      if (this.#backup.isCopying(id, key)) store.blobs.pauseRemoval();
      return store;
    });
  }

  /** Totals of a store, without creating one. */
  #totals(id: TenantId, key: string): { bytes: number; items: number } {
    if (!existsSync(join(this.#folder(id, key), `${key}.db`))) return { bytes: 0, items: 0 };
    const lease = this.#acquire(id, key);
    try {
      const { bytes, items } = lease.store.totals;
      return { bytes, items };
    } finally {
      this.#stores.release(lease);
    }
  }

  #folder(id: TenantId, key: string): string {
    return join(this.#root, id, key);
  }
}

/** It becomes a path: nothing else may be in it. */
function checkedTenant(id: TenantId): TenantId {
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(id)) throw new Problem('invalid_field', 'A tenant id is not well-formed.');
  return id;
}
