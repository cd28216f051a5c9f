/**
 * Copies of all stores while they work. A worker thread copies each index as of one moment and then links the blobs it
 * names; meanwhile no blob of that store is removed, so the copy is whole. The layout is that of the root, so that a
 * restore is a copy back.
 */

import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { TenantId } from '../../shared/contracts.ts';
import { kindOfStore, storesOf } from '../stores.ts';
import type { StoreBlobs } from './blobs/backend.ts';
import type { StoreKind } from './kind.ts';

/** What the worker copies: one store. */
export interface CopyJob {
  database: string;
  target: string;
  /** SQL that lists the names of all blobs. */
  named: string;
  /** Folder of blobs. It may not be there, or come while the index is copied. */
  blobs: string;
  blobsTarget: string;
  /** File of extents, likewise. */
  extents: string;
  extentsTarget: string;
}

export type CopyReply = { bytes: number } | { error: string };

export class Backup {
  readonly #root: string;
  readonly #kinds: ReadonlyMap<string, StoreKind>;
  readonly #openBlobs: (tenant: TenantId, name: string) => StoreBlobs | undefined;
  /** Stores whose blobs must not be removed now, although they may be opened meanwhile. */
  readonly #copying = new Map<string, Promise<unknown>>();
  /** What is being purged: `<tenant>/`, or `<tenant>/<store>/`. */
  readonly #leftOut = new Set<string>();

  /**
   * @param kinds by key
   * @param openBlobs the blobs of a store that is open now
   */
  constructor(
    root: string,
    kinds: ReadonlyMap<string, StoreKind>,
    openBlobs: (tenant: TenantId, name: string) => StoreBlobs | undefined,
  ) {
    this.#root = root;
    this.#kinds = kinds;
    this.#openBlobs = openBlobs;
  }

  async run(folder: string): Promise<{ tenants: number; bytes: number }> {
    const worker = new Worker(new URL('./copy-worker.ts', import.meta.url));
    let bytes = 0;
    let tenants = 0;
    try {
      for (const entry of await readdir(this.#root, { withFileTypes: true })) {
        if (!entry.isDirectory()) continue;
        tenants++;
        const names = await readdir(join(this.#root, entry.name));
        for (const [key, kind] of this.#kinds)
          for (const name of storesOf(key, names)) bytes += await this.#copy(worker, entry.name, name, kind, folder);
      }
    } finally {
      await worker.terminate();
    }
    return { tenants, bytes };
  }

  /** True while a store that is just being opened must not remove blobs. */
  isCopying(tenant: TenantId, name: string): boolean {
    return this.#copying.has(`${tenant}/${name}`);
  }

  /**
   * Runs `work`, which removes these folders, while nothing in them is copied.
   * @param place `<tenant>/`, or `<tenant>/<store>/`
   */
  async without<T>(place: string, work: () => Promise<T>): Promise<T> {
    this.#leftOut.add(place);
    try {
      const copying = [...this.#copying].filter(([store]) => `${store}/`.startsWith(place));
      for (const [, copied] of copying) await copied.catch(() => {});
      return await work();
    } finally {
      this.#leftOut.delete(place);
    }
  }

  async #copy(worker: Worker, tenant: TenantId, name: string, kind: StoreKind, folder: string): Promise<number> {
    const key = kindOfStore(name);
    const source = join(this.#root, tenant, name);
    const database = join(source, `${key}.db`);
    const isLeftOut = [...this.#leftOut].some((place) => `${tenant}/${name}/`.startsWith(place));
    if (kind.namedBlobs === undefined || isLeftOut || !existsSync(database)) return 0;
    const target = join(folder, tenant, name);
    const paused = this.#openBlobs(tenant, name);
    paused?.pauseRemoval();
    const copied = ask(worker, {
      database,
      target: join(target, `${key}.db`),
      named: kind.namedBlobs,
      blobs: join(source, kind.blobs),
      blobsTarget: join(target, kind.blobs),
      extents: join(source, `${key}.extents`),
      extentsTarget: join(target, `${key}.extents`),
    });
    this.#copying.set(`${tenant}/${name}`, copied);
    try {
      return await copied;
    } finally {
      this.#copying.delete(`${tenant}/${name}`);
      const resumed = paused ?? this.#openBlobs(tenant, name);
      resumed?.resumeRemoval();
    }
  }
}

function ask(worker: Worker, job: CopyJob): Promise<number> {
  return new Promise((resolve, reject) => {
    const done = () => {
      worker.off('message', onMessage);
      worker.off('error', onError);
    };
    const onMessage = (reply: CopyReply) => {
      done();
      if ('error' in reply) reject(new Error(reply.error));
      else resolve(reply.bytes);
    };
    const onError = (error: Error) => {
      done();
      reject(error);
    };
    worker.on('message', onMessage);
    worker.on('error', onError);
    worker.postMessage(job);
  });
}
