/**
 * Where large values live: immutable byte sequences under names that are never used twice. Two implementations with
 * the same behaviour, disk.ts and s3.ts; blobs.ts gives names and decides when one may go.
 */
import type { Readable } from 'node:stream';
import type { Work } from '../work.ts';

/** Bytes on their way in, with their exact length: small ones at hand, large ones as they arrive. */
export type KnownBytes = { length: number; chunks: Buffer[] } | { length: number; stream: AsyncIterable<Buffer> };

/** Bytes whose length may show only at their end. */
export type Bytes = KnownBytes | { length: undefined; stream: AsyncIterable<Buffer> };

export interface BlobBackend {
  /** Values up to here are better kept in the index, or in extents, than as blobs. */
  readonly inlineBytes: number;
  /** Reads up to here answer a buffer at once; 0 where every read is a stream. */
  readonly directBytes: number;
  /** Resolves once the bytes survive power loss. On an error nothing is left under the name, or it will be collected. */
  write(name: string, bytes: Bytes): Promise<void>;
  /**
   * A part of a blob; small parts on a disk come at once. Rejects, or errors the stream, when bytes are missing.
   * @param md5 of the part, hexadecimal, where it is known: what comes from elsewhere errs before its end otherwise
   */
  read(name: string, offset: number, length: number, md5?: string): Buffer | Promise<Readable>;
  /** A name that is not there is no error. */
  remove(name: string): Promise<void>;
  names(): AsyncIterable<string>;
  /** Removes every blob of the store. */
  destroy(): Promise<void>;
  close(): void;
}

export interface SharedFile {
  name: string;
  size: number;
  /** By the clock of where it is, ms since the epoch. */
  changedAt: number;
}

/** Files by names that say what is in them, which any node may write at any time. */
export interface SharedFiles extends Pick<BlobBackend, 'write' | 'remove' | 'close'> {
  /**
   * All of a file; undefined where it is not there. An S3 that is too slow with it is given up: starts wait for it.
   * @throws Error where it has more than so many bytes
   */
  whole<T>(
    name: string,
    mostBytes: number,
    take: (bytes: Readable, size: number) => Promise<T>,
  ): Promise<T | undefined>;
  stat(name: string): Promise<SharedFile | undefined>;
  /** @param below in front of the names */
  entries(below?: string): AsyncIterable<SharedFile>;
  destroy(below?: string): Promise<void>;
}

/** A place for the blobs of all tenants that is not on this disk. */
export interface ObjectBucket {
  /** Rejects where it cannot be used. */
  prepare(): Promise<void>;
  /** The blobs of one store, over connections of its own; to be closed. */
  blobs(place: string): BlobBackend;
}

/** The blobs of one store, between its index and where the bytes are. */
export interface StoreBlobs {
  /** True while bytes or removals are under way. */
  readonly busy: boolean;
  /** Stores bytes and answers their name once they are safe. Name it in the index, or `abandon` it. */
  write(bytes: Bytes): Promise<string>;
  /** Does a read of so many bytes answer a buffer at once? */
  isDirect(name: string, length: number): boolean;
  /** Small parts of local blobs come as a buffer; anything else as a stream. A blob stays while it is read. */
  read(name: string, offset: number, length: number, md5?: string): Buffer | Promise<Readable>;
  /** Keeps a blob readable although its row may go meanwhile. */
  hold(name: string): void;
  release(name: string): void;
  /** A part of the transaction that names a blob, or takes away the rows that named others. */
  change(named: string | null, unnamed: string[]): Work<void>;
  /** Call it once the rows that named these blobs are gone for good. Returns at once. */
  drop(names: string[]): void;
  /** A blob that was written and could not be named. Returns at once. */
  abandon(name: string): void;
  /** Nothing is removed until `resumeRemoval`: for copies of the index and its blobs. */
  pauseRemoval(): void;
  resumeRemoval(): void;
  /** Ends what can be done later. */
  stop(): void;
  /** To be done as the last write of the database. */
  settle(): void;
  close(): void;
}
