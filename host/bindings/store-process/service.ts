/**
 * The storage process's work: serves each tenant's stores on its own sockets, and answers the supervisor's calls
 * about tenants (StorageMethods in shared/contracts.ts).
 */
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Logger } from 'pino';
import { AdjustableClock } from '../../shared/clock.ts';
import type { StorageQuotas, StorageUsage, StoreSocket, TenantId } from '../../shared/contracts.ts';
import type { Metric } from '../../shared/metric.ts';
import { KeyedLock } from '../../shared/mutex.ts';
import { Problem } from '../../shared/problem.ts';
import { kindOfStore, objectPlace, STORE_ID, storesOf } from '../stores.ts';
import { Backup } from './backup.ts';
import type { ObjectBucket } from './blobs/backend.ts';
import { Checkpoints } from './checkpoints.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { MakeStoreKind, StoreKind } from './kind.ts';
import { CallServer, Gate } from './listener.ts';
import { Operations } from './metrics.ts';
import { type Lease, OpenStores, type Store } from './open-stores.ts';

/** Databases held open at once; each takes about 2 MB. */
const OPEN_STORES = 256;
/** How long calls under way may go on when a tenant is closed, ms. */
const CLOSE_GRACE_MS = 5_000;
const SWEEP_EVERY_MS = 30_000;
/** Of one kind and one tenant, with those that no binding leads to any more. */
const MOST_STORES = 64;

interface Tenant {
  gate: Gate;
  quotas: StorageQuotas;
  /** Socket path -> its server, and the name of the store. */
  servers: Map<string, { name: string; server: CallServer }>;
  /** By kind: the name of each store -> bytes that it counted for when last looked at. */
  stores: Map<string, Map<string, number | undefined>>;
}

export interface ServiceOptions {
  /** Folder of all tenants' data. */
  root: string;
  /** By the key of their binding, which names a store's folder, files and socket. */
  kinds: ReadonlyMap<string, MakeStoreKind>;
  /** Where objects live; undefined: in files below the root. */
  bucket: ObjectBucket | undefined;
  /** Where stores are that several nodes write. */
  cluster?: Cluster | undefined;
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
  readonly #cluster: Cluster | undefined;
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
    this.#cluster = options.cluster;
    this.#stores = new OpenStores(options.openStores ?? OPEN_STORES);
    this.#operations = new Operations({
      openStores: () => this.#stores.size,
      tenants: () => this.#tenants.size,
    });
    mkdirSync(options.root, { recursive: true });
    const { bucket, cluster, log } = options;
    const parts = { bucket, cluster, clock: this.#clock, checkpoints: this.#checkpoints, log };
    for (const [key, make] of options.kinds) this.#kinds.set(key, make(parts));
    this.#backup = new Backup(
      options.root,
      this.#kinds,
      (tenant, name) => this.#stores.get(`${tenant}/${name}`)?.blobs,
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
    try {
      await this.#cluster?.prepare();
    } catch (error) {
      throw new Problem(
        'invalid_config',
        `The PostgreSQL of the cluster cannot be used: ${(error as Error).message}. Check its address, user and rights.`,
        { cause: error },
      );
    }
  }

  /** Serves these stores on sockets in the folder. Again with other quotas: they hold from then on. */
  open(call: { tenant: TenantId; folder: string; stores: StoreSocket[]; quotas: StorageQuotas }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#turns.run(id, async () => {
      let tenant = this.#tenants.get(id);
      if (!tenant) {
        tenant = {
          gate: new Gate(call.quotas.requestsInFlight),
          quotas: call.quotas,
          servers: new Map(),
          stores: new Map([...this.#kinds.keys()].map((key) => [key, new Map()])),
        };
        this.#tenants.set(id, tenant);
      }
      tenant.quotas = call.quotas;
      tenant.gate.limit = call.quotas.requestsInFlight;
      // Those that no binding leads to any more count, too.
      for (const name of [...(await this.#names(id)), ...call.stores.map(({ name }) => name)]) this.#note(tenant, name);
      for (const { name, socket } of call.stores) await this.#serve(id, tenant, name, join(call.folder, socket));
    });
  }

  /** Ends the sockets, or those in one folder; the data stays. */
  close(call: { tenant: TenantId; folder?: string }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#turns.run(id, async () => {
      const { folder } = call;
      if (folder !== undefined) await this.#end(id, (path) => dirname(path) === resolve(folder));
      // Others may use what they share with whom that folder was.
      if (folder === undefined || !this.#tenants.get(id)?.servers.size) await this.#close(id);
    });
  }

  /** What the tenant keeps: bytes of keys, values and metadata, parts of open uploads included. */
  async usage(call: { tenant: TenantId }): Promise<StorageUsage> {
    const id = checkedTenant(call.tenant);
    const usages = [...this.#kinds].map(async ([key, kind]) => {
      const totals = kind.isShared
        ? await this.#shared.stores(id, key)
        : this.#namesOnDisk(id, key).map((name) => this.#totals(id, name));
      const sum = (figure: 'bytes' | 'items') => totals.reduce((all, one) => all + one[figure], 0);
      return kind.usage({ bytes: sum('bytes'), items: sum('items') });
    });
    return Object.assign({}, ...(await Promise.all(usages)));
  }

  /** Removes everything of the tenant, or these stores, on disk and on S3. Can be repeated after a failure. */
  purge(call: { tenant: TenantId; stores?: string[] }): Promise<void> {
    const id = checkedTenant(call.tenant);
    const { stores } = call;
    return this.#turns.run(id, async () => {
      if (!stores) return this.#backup.without(`${id}/`, () => this.#purge(id));
      const served = new Set([...(this.#tenants.get(id)?.servers.values() ?? [])].map(({ name }) => name));
      // Somebody came to share it a moment ago, and what is written there must not be lost.
      const inUse = stores.find((name) => served.has(name));
      if (inUse !== undefined) throw new Problem('conflict', `The store ${inUse} is in use.`);
      for (const name of stores) await this.#backup.without(`${id}/${name}/`, () => this.#purgeStore(id, name));
      return this.#removeFolder(id);
    });
  }

  /** Copies all tenants' stores while they work; the layout below `folder` is that below the root. */
  async backup(call: { folder: string }): Promise<{ tenants: number; bytes: number }> {
    if (this.#cluster)
      throw new Problem(
        'conflict',
        'KV and R2 of a cluster are in its PostgreSQL and its bucket, of which no node makes copies: back up the database first, then the bucket.',
      );
    return this.#backup.run(call.folder);
  }

  setClock(call: { offsetMs: number }): void {
    this.#clock.setOffset(call.offsetMs);
  }

  metrics(): Metric[] {
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
    await this.#cluster?.collect();
  }

  async stop(): Promise<void> {
    clearInterval(this.#sweeper);
    await Promise.all([...this.#tenants.keys()].map((tenant) => this.close({ tenant })));
    await this.#stores.closeAll();
    for (const kind of this.#kinds.values()) await kind.close?.();
    await this.#cluster?.close();
    await this.#checkpoints.close();
  }

  async #purge(id: TenantId): Promise<void> {
    await this.#close(id);
    // Those of the usual names also where there is no folder: a purge before may have come to its removal only.
    for (const name of new Set([...this.#kinds.keys(), ...(await this.#names(id))])) await this.#purgeStore(id, name);
    await this.#removeFolder(id);
  }

  async #purgeStore(id: TenantId, name: string): Promise<void> {
    const kind = this.#kind(name);
    await this.#stores.close(`${id}/${name}`);
    if (kind.isShared) await this.#shared.purge(id, name);
    else await kind.purge?.(objectPlace(id, name));
    await rm(this.#folder(id, name), { recursive: true, force: true });
    this.#tenants.get(id)?.stores.get(kindOfStore(name))?.delete(name);
  }

  /** Other parts may keep something of the tenant beside the stores' folders. */
  async #removeFolder(id: TenantId): Promise<void> {
    await rmdir(join(this.#root, id)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTEMPTY') throw error;
    });
  }

  async #serve(id: TenantId, tenant: Tenant, name: string, path: string): Promise<void> {
    if (tenant.servers.has(path)) return;
    const log = this.#log.child({ tenant: id });
    const handler = this.#kind(name).handler({
      gate: tenant.gate,
      operations: this.#operations,
      log,
      acquire: () => this.#acquire(id, name),
      release: (lease) => this.#stores.release(lease),
    });
    const failed = (error: unknown) => log.error({ err: error }, 'a call could not be served');
    tenant.servers.set(path, { name, server: await CallServer.listen(path, handler, failed) });
  }

  async #close(id: TenantId): Promise<void> {
    await this.#end(id, () => true);
    this.#tenants.delete(id);
    const open = this.#stores.names().filter((store) => store.startsWith(`${id}/`));
    for (const store of open) await this.#stores.close(store);
  }

  /** @param which by the path of their sockets */
  async #end(id: TenantId, which: (path: string) => boolean): Promise<void> {
    const servers = this.#tenants.get(id)?.servers;
    const ended = [...(servers ?? [])].filter(([path]) => which(path));
    for (const [path] of ended) servers?.delete(path);
    await Promise.all(ended.map(([, { server }]) => server.stop(CLOSE_GRACE_MS)));
  }

  #kind(name: string): StoreKind {
    const [key = '', ...id] = name.split('.');
    const kind = this.#kinds.get(key);
    if (!kind || (id.length > 0 && !STORE_ID.test(id.join('.'))))
      throw new Problem('invalid_field', `There is no kind of store named ${name}.`);
    return kind;
  }

  /** @throws Problem invalid_field where it would be one store too many */
  #note(tenant: Tenant, name: string): void {
    const stores = tenant.stores.get(kindOfStore(name));
    if (!stores || stores.has(name)) return;
    if (stores.size >= MOST_STORES) {
      const some = [...stores.keys()].slice(0, 5).join(', ');
      throw new Problem(
        'invalid_field',
        `A deployment has at most ${MOST_STORES} stores of a kind, and this one has them. Give the id of one: ${some}, …`,
      );
    }
    stores.set(name, undefined);
  }

  /** Of the tenant's stores, wherever they are. */
  async #names(id: TenantId): Promise<string[]> {
    const names: string[] = [];
    for (const [key, kind] of this.#kinds) {
      if (kind.isShared) names.push(...(await this.#shared.stores(id, key)).map(({ name }) => name));
      else names.push(...this.#namesOnDisk(id, key));
    }
    return names;
  }

  #namesOnDisk(id: TenantId, key: string): string[] {
    const folder = join(this.#root, id);
    return existsSync(folder) ? storesOf(key, readdirSync(folder)) : [];
  }

  get #shared(): Cluster {
    if (!this.#cluster) throw new Error('there is no cluster');
    return this.#cluster;
  }

  #acquire(id: TenantId, name: string): Lease<Store> {
    return this.#stores.acquire(`${id}/${name}`, () => {
      const kind = this.#kind(name);
      const store = kind.open({
        tenant: id,
        name,
        place: objectPlace(id, name),
        folder: this.#folder(id, name),
        quota: () => this.#quota(id, name, kind),
      });
      if (this.#backup.isCopying(id, name)) store.blobs.pauseRemoval();
      return store;
    });
  }

  /** What the tenant's other stores of the kind leave of the quota for this one, bytes. */
  #quota(id: TenantId, name: string, kind: StoreKind): number {
    const tenant = this.#tenants.get(id);
    if (!tenant) return 0;
    let left = tenant.quotas[kind.quota] ?? 0;
    if (kind.isShared) return left;
    const stores = tenant.stores.get(kindOfStore(name));
    if (!stores || stores.size <= 1) return left;
    for (const [other, known] of stores) {
      const open = this.#stores.get(`${id}/${other}`);
      const charged = open?.totals.charged ?? known ?? this.#totals(id, other).charged;
      if (charged !== known) stores.set(other, charged);
      if (other !== name) left -= charged;
    }
    return Math.max(0, left);
  }

  /** Totals of a store, without creating one. */
  #totals(id: TenantId, name: string): { bytes: number; items: number; charged: number } {
    if (!existsSync(join(this.#folder(id, name), `${kindOfStore(name)}.db`))) return { bytes: 0, items: 0, charged: 0 };
    const lease = this.#acquire(id, name);
    try {
      const { bytes, items, charged } = lease.store.totals;
      return { bytes, items, charged };
    } finally {
      this.#stores.release(lease);
    }
  }

  #folder(id: TenantId, name: string): string {
    return join(this.#root, id, name);
  }
}

/** It becomes a path: nothing else may be in it. */
function checkedTenant(id: TenantId): TenantId {
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(id)) throw new Problem('invalid_field', 'A tenant id is not well-formed.');
  return id;
}
