/**
 * Audio on disk while it is worked on: one folder per job, written with a byte limit and a digest, removed at the end.
 * Nothing of an upload is kept in memory.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { EngineFailure } from './failure.ts';

export interface SpooledAudio {
  /** Folder of this job: decoders write their results here too. */
  folder: string;
  path: string;
  bytes: number;
  /** Hexadecimal. */
  sha256: string;
  /** First bytes, for telling the container. */
  head: Uint8Array;
}

const HEAD_BYTES = 4096;

export class Spool {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** Removes what an earlier process left. */
  async open(): Promise<void> {
    await this.close();
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
  }

  async close(): Promise<void> {
    await rm(this.#root, { recursive: true, force: true });
  }

  /**
   * @param maxBytes one byte more is refused with `too_large`
   * @throws EngineFailure too_large, unsupported_audio (empty)
   */
  async receive(body: Readable, maxBytes: number, signal: AbortSignal): Promise<SpooledAudio> {
    const folder = join(this.#root, randomUUID());
    await mkdir(folder, { mode: 0o700 });
    try {
      const path = join(folder, 'input');
      const digest = createHash('sha256');
      let bytes = 0;
      const file = await open(path, 'w', 0o600);
      try {
        for await (const chunk of pieces(body, signal)) {
          bytes += chunk.length;
          if (bytes > maxBytes) throw new EngineFailure('too_large', `The audio is larger than ${maxBytes} bytes.`);
          digest.update(chunk);
          await file.writeFile(chunk);
        }
      } finally {
        await file.close();
      }
      if (bytes === 0)
        throw new EngineFailure('unsupported_audio', 'The audio is empty; send the bytes of a recording.');
      return { folder, path, bytes, sha256: digest.digest('hex'), head: await readHead(path) };
    } catch (error) {
      await this.remove(folder);
      throw error;
    }
  }

  async remove(folder: string): Promise<void> {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Leaves the stream open when its reader gives up: an answer has to go out on the same connection. */
async function* pieces(body: Readable, signal: AbortSignal): AsyncGenerator<Buffer> {
  const iterator = body.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const next = await unlessAborted(iterator.next(), signal);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // not awaited: it waits for the read that is under way
    void iterator.return?.();
  }
}

/** (`Promise.race` with one promise for all reads would keep each piece until the last.) */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  work.then(resolve, reject);
  const abort = () => reject(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  return await promise.finally(() => signal.removeEventListener('abort', abort));
}

async function readHead(path: string): Promise<Uint8Array> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(new Uint8Array(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
