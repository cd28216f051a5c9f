/**
 * Static files that are open: small ones whole in memory, within a budget that what slow callers still wait for counts
 * in, too; others as descriptors that all their callers share.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import type { Block, FileBytes } from '../../http/message/blocks.ts';

/** Of an edge. */
const MAX_BYTES = 64 * 1_048_576;
/** The largest file that is kept in memory. */
const LARGEST_KEPT = 2 * 1_048_576;
/** Files in memory of this size and more stay open, too: their bytes can be sent from the file. */
const SENT_FROM_FILE = 65_536;
/** What a file takes beside its bytes. */
const FILE_BYTES = 512;
/** Sweeps after which a file that nobody asked for goes: half a minute. */
const KEPT_SWEEPS = 60;

export class OpenFile implements Block {
  readonly size: number;
  /** All of it; undefined: read from `handle`. */
  readonly bytes: Buffer | undefined;
  /** undefined: small, and in memory */
  readonly handle: FileHandle | undefined;
  holders = 0;
  usedAt = 0;

  constructor(size: number, bytes: Buffer | undefined, handle: FileHandle | undefined) {
    this.size = size;
    this.bytes = bytes;
    this.handle = handle;
  }

  hold(): void {
    this.holders += 1;
  }

  release(): void {
    this.holders -= 1;
    if (this.holders === 0 && this.bytes === undefined) this.close();
  }

  inFile(piece: Buffer): FileBytes | undefined {
    if (!this.handle || !this.bytes) return undefined;
    return { descriptor: this.handle.fd, at: piece.byteOffset - this.bytes.byteOffset };
  }

  /** Nobody holds it any more. */
  close(): void {
    void this.handle?.close().catch(() => {});
  }
}

export class KeptFiles {
  /** In memory, the one used last at the end. */
  readonly #kept = new Map<string, OpenFile>();
  readonly #opening = new Map<string, Promise<OpenFile | undefined>>();
  #bytes = 0;
  #sweeps = 0;

  /** A file in memory. Hold it at once. */
  kept(place: string): OpenFile | undefined {
    const file = this.#kept.get(place);
    if (file && file.usedAt !== this.#sweeps) {
      file.usedAt = this.#sweeps;
      this.#kept.delete(place);
      this.#kept.set(place, file);
    }
    return file;
  }

  /**
   * Opens a file that is not in memory. Requests that arrive while it is opened share one open file.
   * @returns held for the caller, who releases it; undefined: it is not there
   */
  async open(place: string): Promise<OpenFile | undefined> {
    let opening = this.#opening.get(place);
    if (!opening) {
      opening = this.#open(place);
      this.#opening.set(place, opening);
      // For the time in which nobody holds it yet.
      void opening.then((file) => {
        this.#opening.delete(place);
        setImmediate(() => file?.release());
      });
    }
    const file = await opening;
    file?.hold();
    return file;
  }

  /** Called about twice a second. */
  sweep(): void {
    this.#sweeps += 1;
    for (const [place, file] of this.#kept) {
      if (this.#sweeps - file.usedAt <= KEPT_SWEEPS) break;
      if (file.holders === 0) this.#forget(place, file);
    }
  }

  async #open(place: string): Promise<OpenFile | undefined> {
    let handle: FileHandle | undefined;
    let took = 0;
    try {
      handle = await open(place, constants.O_RDONLY | constants.O_NOFOLLOW);
      const stats = await handle.stat();
      if (!stats.isFile()) throw new Error('It is no file.');
      const { size } = stats;
      let file: OpenFile;
      if (size <= LARGEST_KEPT && this.#makeRoom(size + FILE_BYTES)) {
        took = size + FILE_BYTES;
        this.#bytes += took;
        const bytes = Buffer.allocUnsafeSlow(size);
        for (let at = 0; at < size; ) {
          const { bytesRead } = await handle.read(bytes, at, size - at, at);
          if (bytesRead === 0) throw new Error('The file is shorter than it was.');
          at += bytesRead;
        }
        if (size < SENT_FROM_FILE) await handle.close();
        file = new OpenFile(size, bytes, size < SENT_FROM_FILE ? undefined : handle);
        this.#kept.set(place, file);
      } else file = new OpenFile(size, undefined, handle);
      file.usedAt = this.#sweeps;
      file.hold();
      return file;
    } catch {
      this.#bytes -= took;
      await handle?.close().catch(() => {});
      return undefined;
    }
  }

  #makeRoom(bytes: number): boolean {
    if (this.#bytes + bytes <= MAX_BYTES) return true;
    for (const [place, file] of this.#kept) {
      if (file.holders > 0) continue;
      this.#forget(place, file);
      if (this.#bytes + bytes <= MAX_BYTES) return true;
    }
    return false;
  }

  #forget(place: string, file: OpenFile): void {
    this.#kept.delete(place);
    this.#bytes -= file.size + FILE_BYTES;
    file.close();
  }
}
