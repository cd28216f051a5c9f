/**
 * Blobs as files of one folder: written whole, synced, and named in the index only afterwards. A file that no index
 * row names is therefore garbage, whatever stopped the process.
 */
import { close, closeSync, createReadStream, fdatasync, fsync, openSync, unlinkSync, writevSync } from 'node:fs';
import { type FileHandle, open, opendir, rm, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { SharedSync } from '../../../shared/shared-sync.ts';
import { makeFolder } from '../folders.ts';
import type { BlobBackend, Bytes } from './backend.ts';
import { readExactly } from './files.ts';

const dataSync = promisify(fdatasync);

/** Up to here a read is one synchronous call: with the bytes in the page cache that is cheaper than a thread's turn. */
const DIRECT_READ = 256 * 1024;
/** Bytes gathered for one write. With a tenant's cap of calls this bounds what its uploads hold in memory. */
const WRITE_STEP = 256 * 1024;

/**
 * A file of its own costs two syncs and a folder entry; a row of the index shares one sync with others, and so does an
 * extent, which is written once where the row's bytes go to the log and then to their place. Larger values are files,
 * so that nobody has to find hundreds of pages in a row for them.
 */
const INLINE = 128 * 1024;

export class DiskBlobs implements BlobBackend {
  readonly inlineBytes = INLINE;
  readonly directBytes = DIRECT_READ;
  readonly #folder: string;
  readonly #names: FolderSync;

  constructor(folder: string) {
    makeFolder(folder);
    this.#folder = folder;
    this.#names = new FolderSync(folder);
  }

  async write(name: string, bytes: Bytes): Promise<void> {
    const path = join(this.#folder, name);
    if ('chunks' in bytes) await writeAtOnce(path, bytes.chunks);
    else await writeStream(path, bytes);
    await this.#names.sync();
  }

  read(name: string, offset: number, length: number): Buffer | Promise<Readable> {
    const path = join(this.#folder, name);
    if (length <= DIRECT_READ) return readAtOnce(path, offset, length);
    return Promise.resolve(
      createReadStream(path, { start: offset, end: offset + length - 1, highWaterMark: 256 * 1024 }),
    );
  }

  async remove(name: string): Promise<void> {
    await unlink(join(this.#folder, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
  }

  async *names(): AsyncIterable<string> {
    for await (const entry of await opendir(this.#folder)) yield entry.name;
  }

  async destroy(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  close(): void {
    this.#names.close();
  }
}

async function writeAtOnce(path: string, chunks: Buffer[]): Promise<void> {
  const descriptor = openSync(path, 'wx');
  try {
    writeAll(descriptor, chunks);
    await dataSync(descriptor);
  } catch (error) {
    unlinkSync(path);
    throw error;
  } finally {
    closeSync(descriptor);
  }
}

function writeAll(descriptor: number, chunks: Buffer[]): void {
  const total = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  let written = total === 0 ? 0 : writevSync(descriptor, chunks);
  if (written === total) return;
  const rest = Buffer.concat(chunks);
  while (written < total) written += writevSync(descriptor, [rest.subarray(written)]);
}

async function writeStream(path: string, bytes: Extract<Bytes, { stream: unknown }>): Promise<void> {
  const file = await open(path, 'wx');
  try {
    let pending: Buffer[] = [];
    let size = 0;
    let total = 0;
    for await (const chunk of bytes.stream) {
      pending.push(chunk);
      size += chunk.length;
      if (size < WRITE_STEP) continue;
      await writeStep(file, pending, size);
      total += size;
      pending = [];
      size = 0;
    }
    if (size > 0) await writeStep(file, pending, size);
    total += size;
    if (bytes.length !== undefined && total !== bytes.length)
      throw new Error(`expected ${bytes.length} bytes, got ${total}`);
    await file.datasync();
  } catch (error) {
    await unlink(path).catch(() => {});
    throw error;
  } finally {
    await file.close();
  }
}

async function writeStep(file: FileHandle, chunks: Buffer[], size: number): Promise<void> {
  const { bytesWritten } = await file.writev(chunks);
  if (bytesWritten === size) return;
  const rest = Buffer.concat(chunks).subarray(bytesWritten);
  for (let at = 0; at < rest.length; ) at += (await file.write(rest, at)).bytesWritten;
}

function readAtOnce(path: string, offset: number, length: number): Buffer {
  const descriptor = openSync(path, 'r');
  try {
    return readExactly(descriptor, offset, length);
  } finally {
    closeSync(descriptor);
  }
}

/** One sync of the folder for all names written since the last one began. */
class FolderSync {
  readonly #descriptor: number;
  readonly #shared: SharedSync;
  #closed = false;

  constructor(folder: string) {
    this.#descriptor = openSync(folder, 'r');
    this.#shared = new SharedSync((done) => fsync(this.#descriptor, done));
  }

  sync(): Promise<void> {
    return this.#shared.sync();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#shared.running) this.#shared.idle = () => close(this.#descriptor);
    else close(this.#descriptor);
  }
}
