/**
 * Checksums on a thread of their own. Each object has an MD5 as its etag, which takes 150 to 200 µs for 100 KiB: most
 * of what a put cost the event loop that serves all tenants. Bytes are gathered in memory that both threads see.
 */
import { hash } from 'node:crypto';
import { Worker } from 'node:worker_threads';

/** As `node:crypto` names them. */
export type HashAlgorithm = 'md5' | 'sha1' | 'sha256' | 'sha384' | 'sha512';

export interface HashJob {
  offset: number;
  length: number;
  algorithms: HashAlgorithm[];
}

/** The bytes of a value in one piece. They stay as they are until `release`. */
export interface Gathered {
  bytes: Buffer;
  /** In the order of the algorithms. */
  digests(algorithms: HashAlgorithm[]): Promise<Buffer[]>;
  release(): void;
}

const SLAB_BYTES = 128 * 1024;
/** Together 8 MiB; pages that were never used take no memory. */
const SLABS = 64;
/** Below it the way to the other thread costs more than the checksum. */
const WORTH_A_THREAD = 16 * 1024;

export class Hashing {
  readonly #memory = new SharedArrayBuffer(SLABS * SLAB_BYTES);
  /** The one used last is used next, so that few are ever touched. */
  readonly #free = Array.from({ length: SLABS }, (_, index) => (SLABS - 1 - index) * SLAB_BYTES);
  /** The thread answers in the order of the jobs. */
  readonly #jobs: ((digests: Buffer[]) => void)[] = [];
  #worker: Worker | undefined;

  gather(chunks: Buffer[], length: number): Gathered {
    const offset = length < WORTH_A_THREAD || length > SLAB_BYTES ? undefined : this.#free.pop();
    if (offset === undefined) {
      const bytes = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, length);
      return {
        bytes,
        digests: async (algorithms) => algorithms.map((algorithm) => hash(algorithm, bytes, 'buffer')),
        release: () => {},
      };
    }
    const bytes = Buffer.from(this.#memory, offset, length);
    let at = 0;
    for (const chunk of chunks) at += chunk.copy(bytes, at);
    return {
      bytes,
      digests: (algorithms) => this.#run({ offset, length, algorithms }),
      release: () => void this.#free.push(offset),
    };
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #run(job: HashJob): Promise<Buffer[]> {
    this.#worker ??= this.#start();
    this.#worker.postMessage(job);
    return new Promise((resolve) => this.#jobs.push(resolve));
  }

  #start(): Worker {
    const worker = new Worker(new URL('./hash-worker.ts', import.meta.url), {
      workerData: this.#memory,
    });
    worker.on('message', (digests: Uint8Array[]) =>
      this.#jobs.shift()?.(
        digests.map(({ buffer, byteOffset, byteLength }) => Buffer.from(buffer, byteOffset, byteLength)),
      ),
    );
    // Nothing in it can fail but the machine; an error ends the process, which the supervisor starts again.
    worker.on('error', (error) => {
      throw error;
    });
    worker.unref();
    return worker;
  }
}
