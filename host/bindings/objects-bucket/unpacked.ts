/** What gzip packed, unpacked piece by piece: so many bytes at a time as are asked for, and no more in all than are allowed. */
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';

export type Packed = Buffer | Readable;

/** At a time. */
const PIECE = 262_144;

export class Unpacked {
  readonly #pieces: AsyncIterator<Buffer>;
  readonly #most: number;
  readonly #end: () => void;
  #all = 0;
  /** What came and was not taken. */
  #left: Buffer = Buffer.alloc(0);

  /** @param most bytes in all */
  constructor(packed: Packed, most: number) {
    const unpack = createGunzip({ chunkSize: PIECE });
    // The caller of `take` gets the error, also where the stream ends too early.
    pipeline(Buffer.isBuffer(packed) ? Readable.from([packed]) : packed, unpack, () => undefined);
    this.#pieces = unpack[Symbol.asyncIterator]();
    this.#most = most;
    this.#end = () => unpack.destroy();
  }

  /** @returns undefined where nothing is left @throws Error where it ends before */
  async take(bytes: number): Promise<Buffer | undefined> {
    const taken: Buffer[] = [];
    let missing = bytes;
    while (missing > 0) {
      if (this.#left.length === 0) {
        const piece = await this.#next();
        if (!piece && missing === bytes) return undefined;
        if (!piece) throw new Error('it ends too early');
        this.#left = piece;
      }
      const part = this.#left.subarray(0, missing);
      this.#left = this.#left.subarray(part.length);
      taken.push(part);
      missing -= part.length;
    }
    return Buffer.concat(taken);
  }

  async *rest(): AsyncGenerator<Buffer> {
    if (this.#left.length > 0) yield this.#left;
    for (let piece = await this.#next(); piece; piece = await this.#next()) yield piece;
  }

  close(): void {
    this.#end();
  }

  async #next(): Promise<Buffer | undefined> {
    const { value, done } = await this.#pieces.next();
    if (done) return undefined;
    this.#all += value.length;
    if (this.#all > this.#most) throw new Error(`it has more than ${this.#most} bytes`);
    return value;
  }
}
