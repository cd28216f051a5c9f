/**
 * Checksums on a thread of their own. Each object has an MD5 as its etag, which takes 150 to 200 µs for 100 KiB: most
 * of what a put cost the event loop that serves all tenants. Bytes are gathered in memory that both threads see, and
 * the thread computes the MD5s of several values at once: two take as long as one, eight as three. What it has at hand
 * it also writes, which takes 30 µs more.
 */
import { hash } from 'node:crypto';
import { Thread } from '../thread.ts';
import { PADDING_BYTES } from './md5-lanes.ts';
import { RESERVED_BYTES } from './md5-lanes-module.ts';
import { sharedMemory } from './wasm-code.ts';

/** As `node:crypto` names them. */
export type HashAlgorithm = 'md5' | 'sha1' | 'sha256' | 'sha384' | 'sha512';

/** A file, and where in it. */
export interface Target {
  descriptor: number;
  /** bytes */
  position: number;
}

export interface HashJob {
  offset: number;
  length: number;
  algorithms: HashAlgorithm[];
  /** Where the value is written as well, or undefined for nowhere. */
  target?: Target | undefined;
}

/** Digests in hex, which is the cheapest to send, in the order of the algorithms. */
export interface HashAnswer {
  digests: string[];
  /** Why the value could not be written. */
  error?: string;
}

/** The bytes of a value in one piece. They stay as they are until `release`. */
export interface Gathered {
  bytes: Buffer;
  /** The thread has them, and can write them. */
  onThread: boolean;
  /**
   * In the order of the algorithms.
   * @param target where the thread writes the value, which is not synced then; rejects where that fails
   */
  digests(algorithms: HashAlgorithm[], target?: Target): Promise<Buffer[]>;
  release(): void;
}

/** The largest value in a slab. */
const VALUE_BYTES = 128 * 1024;
/** The lanes write MD5's padding behind the value. */
const SLAB_BYTES = VALUE_BYTES + Math.ceil(PADDING_BYTES / 64) * 64;
/** Together 32 MiB; pages that were never used take no memory. */
const SLABS = 256;
/** Below it the way to the other thread costs more than the checksum. */
const WORTH_A_THREAD = 16 * 1024;

export class Hashing {
  readonly #memory = sharedMemory(RESERVED_BYTES + SLABS * SLAB_BYTES);
  /** The one used last is used next, so that few are ever touched. */
  readonly #free = Array.from({ length: SLABS }, (_, index) => RESERVED_BYTES + (SLABS - 1 - index) * SLAB_BYTES);
  readonly #thread = new Thread<HashJob, HashAnswer>(new URL('./hash-worker.ts', import.meta.url), this.#memory);

  gather(chunks: Buffer[], length: number): Gathered {
    const offset = length < WORTH_A_THREAD || length > VALUE_BYTES ? undefined : this.#free.pop();
    if (offset === undefined) {
      const bytes = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, length);
      return {
        bytes,
        onThread: false,
        digests: async (algorithms) => algorithms.map((algorithm) => hash(algorithm, bytes, 'buffer')),
        release: () => {},
      };
    }
    const bytes = Buffer.from(this.#memory.buffer, offset, length);
    let at = 0;
    for (const chunk of chunks) {
      // `copy` and `set` take 3.5 times as long: into shared memory they go word by word, in V8's own loop.
      bytes.fill(chunk, at, at + chunk.length);
      at += chunk.length;
    }
    return {
      bytes,
      onThread: true,
      digests: (algorithms, target) => this.#run({ offset, length, algorithms, target }),
      release: () => void this.#free.push(offset),
    };
  }

  close(): Promise<void> {
    return this.#thread.close();
  }

  async #run(job: HashJob): Promise<Buffer[]> {
    const { digests, error } = await this.#thread.ask(job);
    if (error !== undefined) throw new Error(`a value could not be written: ${error}`);
    return digests.map((digest) => Buffer.from(digest, 'hex'));
  }
}
