/**
 * The storage process's work: serves each tenant's KV and R2 on its own sockets, and answers the supervisor's calls
 * about tenants (StorageMethods in shared/contracts.ts).
 */
import { existsSync, mkdirSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { AdjustableClock } from '../../shared/clock.ts';
import type { StorageQuotas, StorageUsage, TenantId } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { kvHandler } from '../kv/protocol.ts';
import { type Entry, KvStore } from '../kv/store.ts';
import { Hashing } from '../r2/hashing.ts';
import type { ObjectRow } from '../r2/objects.ts';
import { r2Handler } from '../r2/protocol.ts';
import { R2Store } from '../r2/store.ts';
import { Backup } from './backup.ts';
import type { BlobBackend, ObjectBucket } from './blobs/backend.ts';
import { DiskBlobs } from './blobs/disk.ts';
import { ByteCache } from './cache.ts';
import { Checkpoints } from './checkpoints.ts';
import { CallServer, Gate } from './listener.ts';
import { Operations } from './metrics.ts';
import { type Lease, OpenStores, type Store } from './open-stores.ts';

/** Databases held open at once; each takes about 2 MB. */
const OPEN_STORES = 256;
/** How long calls under way may go on when a tenant is closed, ms. */
const CLOSE_GRACE_MS = 5_000;
const SWEEP_EVERY_MS = 30_000;
/** Memory for values that are read often, shared by all tenants. */
const KV_CACHE_BYTES = 32 * 1024 * 1024;
const ROW_CACHE_BYTES = 8 * 1024 * 1024;
const OBJECT_CACHE_BYTES = 32 * 1024 * 1024;

interface Tenant {
  gate: Gate;
  quotas: StorageQuotas;
  /** Socket path -> its server. */
  servers: Map<string, CallServer>;
}

type Kind = 'kv' | 'r2';

export interface ServiceOptions {
  /** Folder of all tenants' data. */
  root: string;
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
  readonly #tenants = new Map<TenantId, Tenant>();
  readonly #backup: Backup;
  readonly #entries = new ByteCache<Entry>(KV_CACHE_BYTES);
  readonly #objectRows = new ByteCache<ObjectRow>(ROW_CACHE_BYTES);
  readonly #objectBytes = new ByteCache<Buffer>(OBJECT_CACHE_BYTES);
  readonly #hashing = new Hashing();
  readonly #checkpoints: Checkpoints;
  readonly #sweeper: NodeJS.Timeout;
  /** Opening and closing of one tenant happen one after the other. */
  readonly #turns = new Map<TenantId, Promise<unknown>>();

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
    this.#backup = new Backup(options.root, (tenant, kind) => this.#stores.get(`${tenant}/${kind}`)?.blobs);
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

  /** Serves `<folder>/kv.sock` and `<folder>/r2.sock`, those asked for. Again with other quotas: they hold from then on. */
  open(call: { tenant: TenantId; folder: string; kv: boolean; r2: boolean; quotas: StorageQuotas }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#inTurn(id, async () => {
      let tenant = this.#tenants.get(id);
      if (!tenant) {
        tenant = { gate: new Gate(call.quotas.requestsInFlight), quotas: call.quotas, servers: new Map() };
        this.#tenants.set(id, tenant);
      }
      tenant.quotas = call.quotas;
      tenant.gate.limit = call.quotas.requestsInFlight;
      for (const kind of ['kv', 'r2'] as const) if (call[kind]) await this.#serve(id, tenant, kind, call.folder);
    });
  }

  /** Ends the sockets; the data stays. */
  close(call: { tenant: TenantId }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#inTurn(id, () => this.#close(id));
  }

  /** What the tenant keeps: bytes of keys, values and metadata, parts of open uploads included. */
  usage(call: { tenant: TenantId }): StorageUsage {
    const id = checkedTenant(call.tenant);
    const kv = this.#totals(id, 'kv', () => this.#acquireKv(id));
    const r2 = this.#totals(id, 'r2', () => this.#acquireR2(id));
    return { kvBytes: kv.bytes, kvKeys: kv.items, objectBytes: r2.bytes, objects: r2.items };
  }

  /** Removes everything of the tenant, on disk and on S3. Can be repeated after a failure. */
  purge(call: { tenant: TenantId }): Promise<void> {
    const id = checkedTenant(call.tenant);
    return this.#inTurn(id, () => this.#backup.without(id, () => this.#purge(id)));
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
    await this.#hashing.close();
    await this.#checkpoints.close();
  }

  async #purge(id: TenantId): Promise<void> {
    await this.#close(id);
    const blobs = this.#bucket?.blobs(id);
    await blobs?.destroy().finally(() => blobs.close());
    for (const kind of ['kv', 'r2'] as const) await rm(this.#folder(id, kind), { recursive: true, force: true });
    // Other parts may keep something of the tenant beside these folders.
    await rmdir(join(this.#root, id)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTEMPTY') throw error;
    });
  }

  async #serve(id: TenantId, tenant: Tenant, kind: Kind, folder: string): Promise<void> {
    const path = join(folder, `${kind}.sock`);
    if (tenant.servers.has(path)) return;
    const { gate } = tenant;
    const shared = { gate, operations: this.#operations, log: this.#log.child({ tenant: id }) };
    const release = (lease: Lease<Store>) => this.#stores.release(lease);
    const handler =
      kind === 'kv'
        ? kvHandler({ ...shared, acquire: () => this.#acquireKv(id), release })
        : r2Handler({ ...shared, acquire: () => this.#acquireR2(id), release });
    const failed = (error: unknown) => shared.log.error({ err: error }, 'a call could not be served');
    tenant.servers.set(path, await CallServer.listen(path, handler, failed));
  }

  async #close(id: TenantId): Promise<void> {
    const tenant = this.#tenants.get(id);
    this.#tenants.delete(id);
    if (tenant) await Promise.all([...tenant.servers.values()].map((server) => server.stop(CLOSE_GRACE_MS)));
    for (const kind of ['kv', 'r2'] as const) await this.#stores.close(`${id}/${kind}`);
  }

  #acquireKv(id: TenantId): Lease<KvStore> {
    return this.#stores.acquire(`${id}/kv`, () => {
      const store = new KvStore({
        folder: this.#folder(id, 'kv'),
        quota: () => this.#tenants.get(id)?.quotas.kvBytes ?? 0,
        clock: this.#clock,
        cache: this.#entries,
        checkpoints: this.#checkpoints,
        log: this.#log,
      });
      if (this.#backup.isCopying(id, 'kv')) store.blobs.pauseRemoval();
      return store;
    });
  }

  #acquireR2(id: TenantId): Lease<R2Store> {
    return this.#stores.acquire(`${id}/r2`, () => {
      const store = new R2Store({
        folder: this.#folder(id, 'r2'),
        backend: this.#objects(id),
        quota: () => this.#tenants.get(id)?.quotas.objectBytes ?? 0,
        clock: this.#clock,
        rows: this.#objectRows,
        cache: this.#objectBytes,
        hashing: this.#hashing,
        checkpoints: this.#checkpoints,
        log: this.#log,
      });
      if (this.#backup.isCopying(id, 'r2')) store.blobs.pauseRemoval();
      return store;
    });
  }

  /** Totals of a store, without creating one. */
  #totals(id: TenantId, kind: Kind, acquire: () => Lease<KvStore | R2Store>): { bytes: number; items: number } {
    if (!existsSync(join(this.#folder(id, kind), `${kind}.db`))) return { bytes: 0, items: 0 };
    const lease = acquire();
    try {
      const { bytes, items } = lease.store.totals;
      return { bytes, items };
    } finally {
      this.#stores.release(lease);
    }
  }

  #objects(id: TenantId): BlobBackend {
    return this.#bucket?.blobs(id) ?? new DiskBlobs(join(this.#folder(id, 'r2'), 'objects'));
  }

  #folder(id: TenantId, kind: Kind): string {
    return join(this.#root, id, kind);
  }

  #inTurn<T>(id: TenantId, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(id) ?? Promise.resolve();
    const turn = before.then(work, work);
    const settled = turn
      .catch(() => {})
      .finally(() => {
        if (this.#turns.get(id) === settled) this.#turns.delete(id);
      });
    this.#turns.set(id, settled);
    return turn;
  }
}

/** It becomes a path: nothing else may be in it. */
function checkedTenant(id: TenantId): TenantId {
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(id)) throw new Problem('invalid_field', 'A tenant id is not well-formed.');
  return id;
}
