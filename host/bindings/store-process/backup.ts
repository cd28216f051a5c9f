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
import type { Blobs } from './blobs/blobs.ts';

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

const STORES = [
  {
    kind: 'kv',
    database: 'kv.db',
    blobs: 'values',
    named: 'SELECT blob FROM entries WHERE blob IS NOT NULL',
  },
  {
    kind: 'r2',
    database: 'r2.db',
    blobs: 'objects',
    named: "SELECT blob FROM objects WHERE blob IS NOT NULL UNION ALL SELECT blob FROM parts WHERE blob <> ''",
  },
] as const;

export class Backup {
  readonly #root: string;
  readonly #openBlobs: (tenant: TenantId, kind: 'kv' | 'r2') => Blobs | undefined;
  /** Stores whose blobs must not be removed now, although they may be opened meanwhile. */
  readonly #copying = new Map<string, Promise<unknown>>();
  /** Tenants that are being purged. */
  readonly #leftOut = new Set<TenantId>();

  /** @param openBlobs the blobs of a store that is open now */
  constructor(root: string, openBlobs: (tenant: TenantId, kind: 'kv' | 'r2') => Blobs | undefined) {
    this.#root = root;
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
        for (const store of STORES) bytes += await this.#copy(worker, entry.name, store, folder);
      }
    } finally {
      await worker.terminate();
    }
    return { tenants, bytes };
  }

  /** True while a store that is just being opened must not remove blobs. */
  isCopying(tenant: TenantId, kind: 'kv' | 'r2'): boolean {
    return this.#copying.has(`${tenant}/${kind}`);
  }

  /** Runs `work`, which removes the tenant's folders, while nothing in them is copied. */
  async without<T>(tenant: TenantId, work: () => Promise<T>): Promise<T> {
    this.#leftOut.add(tenant);
    try {
      for (const { kind } of STORES) await this.#copying.get(`${tenant}/${kind}`)?.catch(() => {});
      return await work();
    } finally {
      this.#leftOut.delete(tenant);
    }
  }

  async #copy(worker: Worker, tenant: TenantId, store: (typeof STORES)[number], folder: string): Promise<number> {
    const source = join(this.#root, tenant, store.kind);
    const database = join(source, store.database);
    if (this.#leftOut.has(tenant) || !existsSync(database)) return 0;
    const name = `${tenant}/${store.kind}`;
    const target = join(folder, tenant, store.kind);
    const paused = this.#openBlobs(tenant, store.kind);
    paused?.pauseRemoval();
    const copied = ask(worker, {
      database,
      target: join(target, store.database),
      named: store.named,
      blobs: join(source, store.blobs),
      blobsTarget: join(target, store.blobs),
      extents: join(source, `${store.kind}.extents`),
      extentsTarget: join(target, `${store.kind}.extents`),
    });
    this.#copying.set(name, copied);
    try {
      return await copied;
    } finally {
      this.#copying.delete(name);
      const resumed = paused ?? this.#openBlobs(tenant, store.kind);
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
