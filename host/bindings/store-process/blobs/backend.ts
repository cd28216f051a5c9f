/**
 * Where large values live: immutable byte sequences under names that are never used twice. Two implementations with
 * the same behaviour, disk.ts and s3.ts; blobs.ts gives names and decides when one may go.
 */
import type { Readable } from 'node:stream';

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
  /** A part of a blob; small parts on a disk come at once. Rejects, or errors the stream, when bytes are missing. */
  read(name: string, offset: number, length: number): Buffer | Promise<Readable>;
  /** A name that is not there is no error. */
  remove(name: string): Promise<void>;
  names(): AsyncIterable<string>;
  /** Removes every blob of the store. */
  destroy(): Promise<void>;
  close(): void;
}

/** A place for the blobs of all tenants that is not on this disk. */
export interface ObjectBucket {
  /** Rejects where it cannot be used. */
  prepare(): Promise<void>;
  /** The blobs of one store, over connections of its own; to be closed. */
  blobs(place: string): BlobBackend;
}
