/** Backups in an S3 bucket: `<prefix><id>/...`, with the manifest uploaded last. */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import type { Client } from 'minio';
import {
  boundedRequests,
  type S3Connection,
  type Send,
  s3Client,
} from '../bindings/store-process/blobs/s3-transport.ts';
import { BACKUP_ID, type BackupStore, removeLeftovers } from './backup-store.ts';
import { readBounded, within } from './bounded.ts';
import { filesBelow } from './copying.ts';
import { LARGEST_MANIFEST, MANIFEST } from './layout.ts';

const REMOVE_AT_ONCE = 500;
/** An answer that is not whole by then does not come, ms. */
const ANSWER_MS = 60_000;
/** A list that has more pages by then has no end, ms. */
const LIST_MS = 300_000;

const SCRATCH = '.backup-';

export class S3Store implements BackupStore {
  /** For objects, which are long. */
  readonly #client: Client;
  /** For questions, whose answers are short. */
  readonly #asking: Client;
  readonly #asker: (stop?: AbortSignal) => Client;
  readonly #listMs: number;
  readonly #region: string;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #scratch: string;

  constructor(
    connection: S3Connection,
    bucket: string,
    prefix: string,
    scratch: string,
    { answerMs = ANSWER_MS, listMs = LIST_MS } = {},
  ) {
    this.#client = s3Client(connection);
    const send = boundedRequests(connection, answerMs);
    this.#asker = (stop) => {
      const request: Send = (...asked) => {
        stop?.throwIfAborted();
        return send(...asked);
      };
      return s3Client(connection, { transport: { request } as never });
    };
    this.#asking = this.#asker();
    this.#listMs = listMs;
    this.#region = connection.region;
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#scratch = scratch;
  }

  staging(id: string): string {
    return path.join(this.#scratch, `${SCRATCH}${id}`);
  }

  sweep(before: number): Promise<void> {
    return removeLeftovers(this.#scratch, [SCRATCH], before);
  }

  async publish(id: string, staging: string, manifest: string): Promise<void> {
    if (!(await this.#asking.bucketExists(this.#bucket))) await this.#asking.makeBucket(this.#bucket, this.#region);
    for (const file of await filesBelow(staging)) {
      await this.#client.fPutObject(this.#bucket, this.#name(id, file), path.join(staging, file));
    }
    const body = Buffer.from(manifest);
    await this.#client.putObject(this.#bucket, this.#name(id, MANIFEST), body, body.length);
    await rm(staging, { recursive: true, force: true });
  }

  async list(): Promise<string[]> {
    const complete: string[] = [];
    if (!(await this.#asking.bucketExists(this.#bucket))) return complete;
    for await (const item of this.#listed(this.#prefix, false)) {
      const { prefix } = item as { prefix?: string };
      const id = prefix?.slice(this.#prefix.length).replace(/\/$/, '') ?? '';
      if (!BACKUP_ID.test(id)) continue;
      const found = await this.#asking.statObject(this.#bucket, this.#name(id, MANIFEST)).catch(() => undefined);
      if (found !== undefined) complete.push(id);
    }
    return complete.sort();
  }

  async manifest(id: string): Promise<string> {
    return readBounded(await this.read(id, MANIFEST), LARGEST_MANIFEST);
  }

  read(id: string, file: string): Promise<Readable> {
    return within(this.#client.getObject(this.#bucket, this.#name(id, file)));
  }

  async remove(id: string): Promise<void> {
    // Without its manifest it is no backup any more, however far this gets.
    await this.#asking.removeObject(this.#bucket, this.#name(id, MANIFEST));
    let names: string[] = [];
    for await (const item of this.#listed(this.#name(id, ''), true)) {
      const { name } = item as { name?: string };
      if (name !== undefined) names.push(name);
      if (names.length < REMOVE_AT_ONCE) continue;
      await this.#asking.removeObjects(this.#bucket, names);
      names = [];
    }
    if (names.length > 0) await this.#asking.removeObjects(this.#bucket, names);
  }

  describe(id: string): string {
    return `s3://${this.#bucket}/${this.#prefix}${id}`;
  }

  /** @throws Error where the list has no end */
  async *#listed(prefix: string, recursive: boolean): AsyncGenerator<unknown> {
    // minio 8.0.7 goes on through empty pages after its stream was destroyed.
    const stop = new AbortController();
    const items = this.#asker(stop.signal).listObjectsV2(this.#bucket, prefix, recursive);
    const end = () => {
      stop.abort();
      items.destroy(new Error('the list of objects has no end'));
    };
    const timer = setTimeout(end, this.#listMs);
    try {
      yield* items;
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  #name(id: string, file: string): string {
    return `${this.#prefix}${id}/${file}`;
  }
}
