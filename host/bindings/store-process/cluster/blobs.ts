/**
 * Blobs of a store that several nodes write. What may have to be removed is written down before it can be left behind:
 * a blob is doomed from before its first byte, the transaction that names it takes it off that list, and the one that
 * takes its last name away puts it back. So whatever ends a node, nothing named is removed and nothing else stays.
 */
import { randomBytes } from 'node:crypto';
import { open, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { BlobBackend, Bytes, KnownBytes, StoreBlobs } from '../blobs/backend.ts';
import { sealedName } from '../blobs/seals.ts';
import type { Work } from '../work.ts';
import type { Pools } from './pools.ts';

/** Longest time in which a blob is written and named; it is refused a name then. */
const NAMED_WITHIN = "interval '1 day'";
/** Longest time for which other nodes may read what no row names any more. */
const READ_WITHIN = "interval '1 hour'";

const DOOM = `INSERT INTO doomed (store, name, due) VALUES ($1, $2, now() + ${NAMED_WITHIN})`;
/** Fails, and with it the transaction, where the blob was removed, or is about to be. */
const NAME = `WITH named AS (DELETE FROM doomed WHERE store = $1 AND name = $2 AND NOT claimed RETURNING 1)
  SELECT 1 / count(*) FROM named`;
const UNNAME = `INSERT INTO doomed (store, name, due)
  SELECT $1, unnest(string_to_array($2, ' ')), now() + ${READ_WITHIN}`;
const HASTEN = 'UPDATE doomed SET due = now() WHERE store = $1 AND name = $2';

export interface ClusterBlobsOptions {
  pools: Pools;
  store: string;
  backend: BlobBackend;
  /** Folder for bytes of unknown length, on their way to S3. */
  spool: string;
  log: Logger;
}

export class ClusterBlobs implements StoreBlobs {
  readonly #options: ClusterBlobsOptions;
  /** Writes, reads and statements under way. */
  #using = 0;

  constructor(options: ClusterBlobsOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#using > 0;
  }

  async write(bytes: Bytes): Promise<string> {
    const { pools, store, backend } = this.#options;
    this.#using++;
    try {
      const known = bytes.length === undefined ? await this.#spooled(bytes.stream) : bytes;
      const name = sealedName(`${Date.now().toString(36)}${randomBytes(10).toString('hex')}`, known.length);
      try {
        await pools.write(DOOM, [store, name]);
        await backend.write(name, known);
        return name;
      } catch (error) {
        this.abandon(name);
        throw error;
      }
    } finally {
      this.#using--;
    }
  }

  isDirect(): boolean {
    return false;
  }

  async read(name: string, offset: number, length: number): Promise<Readable> {
    this.#using++;
    try {
      const stream = (await this.#options.backend.read(name, offset, length)) as Readable;
      return stream.once('close', () => this.#using--);
    } catch (error) {
      this.#using--;
      throw error;
    }
  }

  /** Others would not know of it: a blob stays long enough. */
  hold(): void {}
  release(): void {}

  *change(named: string | null, unnamed: string[]): Work<void> {
    if (named !== null) yield { text: NAME, parameters: [named], answers: false };
    if (unnamed.length > 0) yield { text: UNNAME, parameters: [unnamed.join(' ')], answers: false };
  }

  /** The transaction has said so. */
  drop(): void {}

  /** What was named after all, by a COMMIT whose answer was lost, is doomed no more. */
  abandon(name: string): void {
    const { pools, store, log } = this.#options;
    this.#using++;
    pools
      .write(HASTEN, [store, name])
      .catch((error) => log.warn({ err: error }, 'a blob without a name is removed later, not now'))
      .finally(() => this.#using--);
  }

  /** Copies of the tables and of the bucket are the operator's. */
  pauseRemoval(): void {}
  resumeRemoval(): void {}
  stop(): void {}
  settle(): void {}

  close(): void {
    this.#options.backend.close();
  }

  /** S3 has to know the length first. The file has no name by the time it has bytes: nothing is left of it. */
  async #spooled(bytes: AsyncIterable<Buffer>): Promise<KnownBytes> {
    const file = path.join(this.#options.spool, `.incoming-${randomBytes(16).toString('hex')}`);
    const handle = await open(file, 'wx+', 0o600);
    try {
      await unlink(file);
      let length = 0;
      for await (const chunk of bytes) {
        await handle.writeFile(chunk);
        length += chunk.length;
      }
      return { length, stream: handle.createReadStream({ start: 0 }) };
    } catch (error) {
      await handle.close();
      throw error;
    }
  }
}
