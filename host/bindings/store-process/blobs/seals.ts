/**
 * Blobs on an S3 that is not believed: each piece has a tag behind it that is made with the blob's own key. The key is the
 * end of the blob's name, which is in the row of an index, and the S3 is told the name without it. So any part of a blob
 * can be read by itself, and what was not written under that name at that place is given to nobody.
 */
import { type CipherGCM, createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { pipeline, type Readable, Transform } from 'node:stream';
import type { BlobBackend, Bytes, KnownBytes } from './backend.ts';

export const PIECE_BYTES = 65_536;
const KEY_BYTES = 16;
export const TAG_BYTES = 16;
/** GMAC: it takes a quarter of the time of an MD5. Its nonce is the number of the piece, and a key is of one blob. */
const CIPHER = 'aes-128-gcm';
const NONCE_BYTES = 12;
/** Names without a key are of blobs without tags. */
const SEALED = /^(.+\.([0-9a-z]+))\.([0-9a-f]{32})$/;

interface Seal {
  /** As the S3 knows the blob. */
  name: string;
  /** Of the blob, without its tags. */
  bytes: number;
  key: Buffer;
}

/** @param id that no other blob of the store has @param bytes of the blob */
export function sealedName(id: string, bytes: number): string {
  return `${id}.${bytes.toString(36)}.${randomBytes(KEY_BYTES).toString('hex')}`;
}

export class SealedBlobs implements BlobBackend {
  readonly inlineBytes: number;
  readonly directBytes: number;
  readonly #backend: BlobBackend;

  constructor(backend: BlobBackend) {
    this.#backend = backend;
    this.inlineBytes = backend.inlineBytes;
    this.directBytes = backend.directBytes;
  }

  async write(name: string, bytes: Bytes): Promise<void> {
    const seal = sealOf(name);
    if (!seal) return this.#backend.write(name, bytes);
    if (bytes.length !== seal.bytes) throw new Error(`a blob of ${seal.bytes} bytes has ${bytes.length}`);
    await this.#backend.write(seal.name, withTags(bytes, seal.key));
  }

  read(name: string, offset: number, length: number, md5?: string): Buffer | Promise<Readable> {
    const seal = sealOf(name);
    return seal ? this.#read(seal, offset, length) : this.#backend.read(name, offset, length, md5);
  }

  remove(name: string): Promise<void> {
    return this.#backend.remove(sealOf(name)?.name ?? name);
  }

  names(): AsyncIterable<string> {
    return this.#backend.names();
  }

  destroy(): Promise<void> {
    return this.#backend.destroy();
  }

  close(): void {
    this.#backend.close();
  }

  async #read({ name, bytes, key }: Seal, offset: number, length: number): Promise<Readable> {
    if (offset + length > bytes) throw new Error(`a blob of ${bytes} bytes has no ${length} at ${offset}`);
    const first = Math.floor(offset / PIECE_BYTES);
    const end = Math.min(Math.ceil((offset + length) / PIECE_BYTES) * PIECE_BYTES, bytes);
    const from = first * (PIECE_BYTES + TAG_BYTES);
    const pieces = (await this.#backend.read(name, from, taggedBytes(end) - from)) as Readable;
    return withoutTags(pieces, key, first, offset % PIECE_BYTES, length);
  }
}

function sealOf(name: string): Seal | undefined {
  const [, outside, bytes = '', key = ''] = SEALED.exec(name) ?? [];
  return outside === undefined
    ? undefined
    : { name: outside, bytes: Number.parseInt(bytes, 36), key: Buffer.from(key, 'hex') };
}

/** What so many bytes of a blob take with their tags. */
function taggedBytes(bytes: number): number {
  return bytes + Math.ceil(bytes / PIECE_BYTES) * TAG_BYTES;
}

function withTags(bytes: KnownBytes, key: Buffer): KnownBytes {
  const length = taggedBytes(bytes.length);
  const tags = new Tags(key);
  if ('stream' in bytes) return { length, stream: tagged(bytes.stream, tags) };
  return { length, chunks: [...bytes.chunks.flatMap((chunk) => [...tags.behind(chunk)]), ...tags.last()] };
}

async function* tagged(stream: AsyncIterable<Buffer>, tags: Tags): AsyncGenerator<Buffer> {
  for await (const chunk of stream) yield* tags.behind(chunk);
  yield* tags.last();
}

/** Puts the tags behind the pieces of what comes, without a copy of it. */
class Tags {
  readonly #key: Buffer;
  #piece = 0;
  /** Of the piece that has begun. */
  #taken = 0;
  #cipher: CipherGCM | undefined;

  constructor(key: Buffer) {
    this.#key = key;
  }

  *behind(chunk: Buffer): Generator<Buffer> {
    for (let at = 0; at < chunk.length; ) {
      const part = chunk.subarray(at, at + PIECE_BYTES - this.#taken);
      this.#cipher ??= createCipheriv(CIPHER, this.#key, nonceOf(this.#piece));
      this.#cipher.setAAD(part);
      yield part;
      at += part.length;
      this.#taken += part.length;
      if (this.#taken === PIECE_BYTES) yield* this.last();
    }
  }

  *last(): Generator<Buffer> {
    if (!this.#cipher) return;
    this.#cipher.final();
    yield this.#cipher.getAuthTag();
    this.#cipher = undefined;
    this.#taken = 0;
    this.#piece++;
  }
}

/**
 * @param pieces with their tags, and nothing else
 * @param first number of the first of them
 * @param skip bytes of it that are not wanted
 * @returns so many bytes; it errs before the first that is another
 */
function withoutTags(pieces: Readable, key: Buffer, first: number, skip: number, length: number): Readable {
  let number = first;
  let [unwanted, wanted] = [skip, length];
  let waiting: Buffer[] = [];
  let size = 0;
  const opened = (piece: Buffer): Buffer => {
    const bytes = piece.subarray(0, Math.max(0, piece.length - TAG_BYTES));
    const decipher = createDecipheriv(CIPHER, key, nonceOf(number++), { authTagLength: TAG_BYTES });
    try {
      decipher.setAAD(bytes).setAuthTag(piece.subarray(bytes.length)).final();
    } catch {
      throw new Error('the S3 service answered something else than was kept there');
    }
    const given = bytes.subarray(unwanted, unwanted + wanted);
    unwanted = 0;
    wanted -= given.length;
    return given;
  };
  const check = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      waiting.push(chunk);
      size += chunk.length;
      if (size < PIECE_BYTES + TAG_BYTES) return done();
      let all = Buffer.concat(waiting);
      try {
        for (; all.length >= PIECE_BYTES + TAG_BYTES; all = all.subarray(PIECE_BYTES + TAG_BYTES))
          this.push(opened(all.subarray(0, PIECE_BYTES + TAG_BYTES)));
      } catch (error) {
        return done(error as Error);
      }
      waiting = all.length > 0 ? [all] : [];
      size = all.length;
      done();
    },
    flush(done) {
      try {
        if (size > 0) this.push(opened(Buffer.concat(waiting)));
        done(wanted === 0 ? null : new Error('the S3 service answered less than was kept there'));
      } catch (error) {
        done(error as Error);
      }
    },
  });
  // Errors are its reader's.
  pipeline(pieces, check, () => undefined);
  return check;
}

function nonceOf(piece: number): Buffer {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(piece);
  return nonce;
}
