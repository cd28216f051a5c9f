/** Checksums behind the bytes of blobs: what is read is what was written, or the reader hears of it before the end. */
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { checkedBySum, withSum } from '../../../host/bindings/store-process/cluster/sums.ts';

const VALUE = Buffer.from('a value that is kept '.repeat(5_000));

async function kept(of: 'chunks' | 'stream'): Promise<Buffer> {
  const parts = [VALUE.subarray(0, 70_000), VALUE.subarray(70_000)];
  const known = withSum({
    length: VALUE.length,
    ...(of === 'chunks' ? { chunks: parts } : { stream: Readable.from(parts) }),
  });
  const bytes = 'chunks' in known ? Buffer.concat(known.chunks) : await buffer(known.stream);
  expect(bytes).toHaveLength(known.length);
  return bytes;
}
/** In pieces of so many bytes. */
const read = (bytes: Buffer, piece: number) =>
  buffer(
    checkedBySum(
      Readable.from(
        Array.from({ length: Math.ceil(bytes.length / piece) }, (_, at) =>
          bytes.subarray(at * piece, (at + 1) * piece),
        ),
      ),
    ),
  );

describe('blobs with a sum', () => {
  test.each(['chunks', 'stream'] as const)('%s are read as they were, in pieces of any size', async (of) => {
    const bytes = await kept(of);
    for (const piece of [7, 16, 65_536, bytes.length]) expect((await read(bytes, piece)).equals(VALUE)).toBe(true);
  });

  test('another byte, another value, and a shorter one are errors', async () => {
    const bytes = await kept('chunks');
    const other = Buffer.from(bytes).fill('x', 50_000, 50_001);
    for (const wrong of [other, Buffer.alloc(bytes.length, 'x'), bytes.subarray(1), bytes.subarray(0, 10)])
      await expect(read(wrong, 65_536)).rejects.toThrow('something else');
  });
});
