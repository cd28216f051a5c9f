/** What blobs in files of their own and extents of one file have in common. */
import { readSync } from 'node:fs';

/** Throws where the file is shorter than the index says. */
export function readExactly(descriptor: number, position: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length);
  for (let at = 0; at < length; ) {
    const count = readSync(descriptor, bytes, at, length - at, position + at);
    if (count === 0) throw new Error(`a blob is shorter than its index says: ${position + at} of ${position + length}`);
    at += count;
  }
  return bytes;
}
