/** The checksums of a value, taken while it passes. MD5 always, because it is the etag; others where they were given. */
import { createHash, type Hash } from 'node:crypto';
import type { KnownBytes } from '../blobs/backend.ts';
import { r2Errors } from './errors.ts';
import type { PutRequest } from './requests.ts';

const ALGORITHMS = [
  { field: 'md5', name: 'MD5', hash: 'md5', number: 0 },
  { field: 'sha1', name: 'SHA-1', hash: 'sha1', number: 1 },
  { field: 'sha256', name: 'SHA-256', hash: 'sha256', number: 2 },
  { field: 'sha384', name: 'SHA-384', hash: 'sha384', number: 3 },
  { field: 'sha512', name: 'SHA-512', hash: 'sha512', number: 4 },
] as const;

export type Given = Partial<Pick<PutRequest, 'md5' | 'sha1' | 'sha256' | 'sha384' | 'sha512'>>;

export class Digests {
  readonly #given: Given;
  readonly #hashes: { algorithm: (typeof ALGORITHMS)[number]; hash: Hash }[];

  constructor(given: Given) {
    this.#given = given;
    this.#hashes = ALGORITHMS.filter(({ field }) => field === 'md5' || given[field]).map((algorithm) => ({
      algorithm,
      hash: createHash(algorithm.hash),
    }));
  }

  /** The same bytes, seen on their way. */
  watch(bytes: KnownBytes): KnownBytes {
    if ('chunks' in bytes) {
      for (const chunk of bytes.chunks) this.#update(chunk);
      return bytes;
    }
    return { length: bytes.length, stream: this.#through(bytes.stream) };
  }

  /** After the last byte. Throws 10037 where a given checksum is another. */
  finish(): { md5: Buffer; checksums: string } {
    const members: string[] = [];
    let md5 = Buffer.alloc(0);
    for (const { algorithm, hash } of this.#hashes) {
      const actual = hash.digest();
      const given = this.#given[algorithm.field];
      if (given && !given.equals(actual)) throw r2Errors.badDigest(algorithm.name, given, actual);
      if (algorithm.field === 'md5') md5 = actual;
      members.push(`"${algorithm.number}":"${actual.toString('hex')}"`);
    }
    return { md5, checksums: members.join(',') };
  }

  async *#through(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of stream) {
      this.#update(chunk);
      yield chunk;
    }
  }

  #update(chunk: Buffer): void {
    for (const { hash } of this.#hashes) hash.update(chunk);
  }
}
