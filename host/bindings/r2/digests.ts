/** The checksums of a value, taken while it passes. MD5 always, because it is the etag; others where they were given. */
import { createHash } from 'node:crypto';
import type { KnownBytes } from '../store-process/blobs/backend.ts';
import { r2Errors } from './errors.ts';
import type { Gathered, Target } from './hashing.ts';
import type { PutRequest } from './requests.ts';

const ALGORITHMS = [
  { field: 'md5', name: 'MD5', hash: 'md5', number: 0 },
  { field: 'sha1', name: 'SHA-1', hash: 'sha1', number: 1 },
  { field: 'sha256', name: 'SHA-256', hash: 'sha256', number: 2 },
  { field: 'sha384', name: 'SHA-384', hash: 'sha384', number: 3 },
  { field: 'sha512', name: 'SHA-512', hash: 'sha512', number: 4 },
] as const;

type Algorithm = (typeof ALGORITHMS)[number];

export type Given = Partial<Pick<PutRequest, 'md5' | 'sha1' | 'sha256' | 'sha384' | 'sha512'>>;

/** `checksums`: JSON members by R2's numbers. */
export interface Sums {
  md5: Buffer;
  checksums: string;
}

export class Digests {
  readonly #given: Given;
  readonly #wanted: readonly Algorithm[];

  constructor(given: Given) {
    this.#given = given;
    this.#wanted = ALGORITHMS.filter(({ field }) => field === 'md5' || given[field]);
  }

  /** Checks bytes that are all there, and has them written to a target. Throws 10037 where a given checksum is another. */
  async check(gathered: Gathered, target?: Target): Promise<Sums> {
    return this.#compare(
      await gathered.digests(
        this.#wanted.map(({ hash }) => hash),
        target,
      ),
    );
  }

  /** The same bytes, seen on their way; `finish` after the last one. Throws 10037 where a given checksum is another. */
  watch(bytes: KnownBytes): { bytes: KnownBytes; finish(): Sums } {
    const hashes = this.#wanted.map(({ hash }) => createHash(hash));
    const update = (chunk: Buffer) => {
      for (const one of hashes) one.update(chunk);
    };
    const finish = () => this.#compare(hashes.map((one) => one.digest()));
    if ('chunks' in bytes) {
      for (const chunk of bytes.chunks) update(chunk);
      return { bytes, finish };
    }
    return { bytes: { length: bytes.length, stream: through(bytes.stream, update) }, finish };
  }

  #compare(actual: Buffer[]): Sums {
    let md5 = Buffer.alloc(0);
    const members = this.#wanted.map(({ field, name, number }, index) => {
      const digest = actual[index] as Buffer<ArrayBuffer>;
      const given = this.#given[field];
      if (given && !given.equals(digest)) throw r2Errors.badDigest(name, given, digest);
      if (field === 'md5') md5 = digest;
      return `"${number}":"${digest.toString('hex')}"`;
    });
    return { md5, checksums: members.join(',') };
  }
}

async function* through(stream: AsyncIterable<Buffer>, update: (chunk: Buffer) => void): AsyncGenerator<Buffer> {
  for await (const chunk of stream) {
    update(chunk);
    yield chunk;
  }
}
