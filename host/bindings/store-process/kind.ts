/** One kind of store that this process keeps for each tenant, such as KV: what the process has to know of it. */
import type { Logger } from 'pino';
import type { Clock } from '../../shared/clock.ts';
import type { ObjectBucket } from './blobs/backend.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { Gate, Handler } from './listener.ts';
import type { Operations } from './metrics.ts';
import type { Lease, Store } from './open-stores.ts';
import type { StoreTable } from './transfer.ts';

/** What all kinds share. */
export interface ProcessParts {
  /** Where objects live; undefined: in files below the root. */
  bucket: ObjectBucket | undefined;
  /** Where stores are that several nodes write; undefined: there is one node. */
  cluster: Cluster | undefined;
  clock: Clock;
  checkpoints: Checkpoints;
  log: Logger;
}

export interface HandlerOptions<S extends Store> {
  /** The tenant's store, open until `release`. */
  acquire(): Lease<S>;
  release(lease: Lease<S>): void;
  gate: Gate;
  operations: Operations;
  log: Logger;
}

export interface OpenedStore {
  tenant: string;
  /** As `storeName` makes it. */
  name: string;
  /** Among those of all tenants in a bucket. */
  place: string;
  /** With `<key>.db` in it. */
  folder: string;
  /** Bytes: of this store, or where they are shared of all the tenant's stores of the kind. */
  quota: () => number;
}

/** Made once per process: what it holds, such as a cache, is shared by all tenants. */
export interface StoreKind<S extends Store = Store> {
  /** Name of the limit that bounds it, among those of a deployment. */
  quota: string;
  /** Folder of its blobs, beside its database. */
  blobs: string;
  /** SQL that lists the names of all blobs, for backups; undefined: it is in none. */
  namedBlobs: string | undefined;
  /** What it keeps, as both engines have it; undefined: it has one engine. */
  tables?: StoreTable[];
  /** Its stores are in the cluster, not in folders of this machine. */
  isShared: boolean;
  /** Opens a store, which is created where there is none. */
  open(store: OpenedStore): S;
  /** Serves one tenant's store. */
  handler(options: HandlerOptions<S>): Handler;
  /** Usage figures of a store, as the owner's API reports them. */
  usage(totals: { bytes: number; items: number }): Record<string, number>;
  /** Removes what a store keeps outside of its folder. Can be repeated after a failure. */
  purge?(place: string): Promise<void>;
  close?(): Promise<void>;
}

export type MakeStoreKind = (parts: ProcessParts) => StoreKind;
