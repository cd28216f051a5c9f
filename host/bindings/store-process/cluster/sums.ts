/** An MD5 behind the bytes of a blob, for stores that keep none in their rows: what comes back in its place is no value. */
import { createHash } from 'node:crypto';
import { pipeline, type Readable, Transform } from 'node:stream';
import type { KnownBytes } from '../blobs/backend.ts';

/** Ends the names of blobs that have one: those of earlier versions have none. */
export const SUMMED = '.md5';
export const SUM_BYTES = 16;

export function withSum(bytes: KnownBytes): KnownBytes {
  const length = bytes.length + SUM_BYTES;
  if ('stream' in bytes) return { length, stream: summed(bytes.stream) };
  const digest = createHash('md5');
  for (const chunk of bytes.chunks) digest.update(chunk);
  return { length, chunks: [...bytes.chunks, digest.digest()] };
}

/** @param blob all of it @returns the bytes before the sum; it errs before its end where they are others */
export function checkedBySum(blob: Readable): Readable {
  const digest = createHash('md5');
  let last: Buffer = Buffer.alloc(0);
  const check = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const all = last.length > 0 ? Buffer.concat([last, chunk]) : chunk;
      const bytes = all.subarray(0, Math.max(0, all.length - SUM_BYTES));
      last = all.subarray(bytes.length);
      digest.update(bytes);
      done(null, bytes);
    },
    flush(done) {
      done(
        digest.digest().equals(last) ? null : new Error('the S3 service answered something else than was kept there'),
      );
    },
  });
  // Errors are its reader's.
  pipeline(blob, check, () => undefined);
  return check;
}

async function* summed(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const digest = createHash('md5');
  for await (const chunk of stream) {
    digest.update(chunk);
    yield chunk;
  }
  yield digest.digest();
}
