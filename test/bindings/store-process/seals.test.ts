/** Blobs with tags on an S3 that gives something else: whichever part is read, it is what was written, or an error. */
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import type { BlobBackend, KnownBytes } from '../../../host/bindings/store-process/blobs/backend.ts';
import { PIECE_BYTES, SealedBlobs, sealedName, TAG_BYTES } from '../../../host/bindings/store-process/blobs/seals.ts';

const VALUE = Buffer.alloc(3 * PIECE_BYTES + 1_000, 'a value that is kept, ');
const FRAME = PIECE_BYTES + TAG_BYTES;

/** An S3 with one blob, and what it has of it. */
class Kept {
  name = '';
  bytes = Buffer.alloc(0);
  /** Bytes of each chunk that it gives. */
  chunk = 10_000;
  readonly blobs = new SealedBlobs({
    write: async (name: string, given: KnownBytes) => {
      this.name = name;
      this.bytes = 'chunks' in given ? Buffer.concat(given.chunks) : await buffer(given.stream);
      expect(this.bytes).toHaveLength(given.length);
    },
    read: async (name: string, offset: number, length: number) => {
      expect(name).toBe(this.name);
      const part = this.bytes.subarray(offset, offset + length);
      expect(part).toHaveLength(length);
      return Readable.from(
        Array.from({ length: Math.ceil(length / this.chunk) }, (_, at) =>
          part.subarray(at * this.chunk, (at + 1) * this.chunk),
        ),
      );
    },
  } as unknown as BlobBackend);
}

async function keep(value: Buffer, of: 'chunks' | 'stream' = 'chunks'): Promise<{ s3: Kept; name: string }> {
  const s3 = new Kept();
  const name = sealedName('id', value.length);
  const parts = [value.subarray(0, 70_000), value.subarray(70_000, 70_003), value.subarray(70_003)];
  await s3.blobs.write(name, {
    length: value.length,
    ...(of === 'chunks' ? { chunks: parts } : { stream: Readable.from(parts) }),
  });
  return { s3, name };
}
const read = async (s3: Kept, name: string, offset: number, length: number) =>
  buffer((await s3.blobs.read(name, offset, length)) as Readable);

describe('blobs with tags', () => {
  test.each(['chunks', 'stream'] as const)('%s are read as they were, any part, in chunks of any size', async (of) => {
    const { s3, name } = await keep(VALUE, of);
    const marks = [
      0,
      1,
      PIECE_BYTES - 1,
      PIECE_BYTES,
      PIECE_BYTES + 1,
      2 * PIECE_BYTES,
      VALUE.length - 1,
      VALUE.length,
    ];
    for (s3.chunk of [999, FRAME, s3.bytes.length])
      for (const from of marks)
        for (const to of marks.filter((mark) => mark > from))
          expect((await read(s3, name, from, to - from)).equals(VALUE.subarray(from, to))).toBe(true);
  });

  test.each([1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES])('%i bytes are read as they were', async (bytes) => {
    const { s3, name } = await keep(VALUE.subarray(0, bytes));
    expect((await read(s3, name, 0, bytes)).equals(VALUE.subarray(0, bytes))).toBe(true);
  });

  test('the S3 does not learn the key', async () => {
    const { s3, name } = await keep(VALUE);
    expect(name.startsWith(`${s3.name}.`)).toBe(true);
    const key = name.slice(s3.name.length + 1);
    expect(key).toMatch(/^[0-9a-f]{32}$/);
    expect(s3.bytes.includes(Buffer.from(key, 'hex'))).toBe(false);
  });

  test('another byte, piece, order or blob in its place is an error, and nothing of it was read before', async () => {
    const { s3, name } = await keep(VALUE);
    const was = s3.bytes;
    const frames = [0, 1, 2, 3].map((at) => was.subarray(at * FRAME, (at + 1) * FRAME));
    const [first, second, third, last] = frames as [Buffer, Buffer, Buffer, Buffer];
    const another = (await keep(Buffer.alloc(VALUE.length, VALUE))).s3.bytes;
    for (const wrong of [
      Buffer.from(was).fill('x', 2 * FRAME - 1, 2 * FRAME),
      Buffer.from(was).fill('x', FRAME + 5, FRAME + 6),
      Buffer.concat([first, third, second, last]),
      Buffer.concat([first, first, third, last]),
      Buffer.concat([first, another.subarray(FRAME, 2 * FRAME), third, last]),
    ]) {
      s3.bytes = wrong;
      const seen: Buffer[] = [];
      const stream = (await s3.blobs.read(name, 0, VALUE.length)) as Readable;
      const reading = (async () => {
        for await (const piece of stream) seen.push(piece);
      })();
      await expect(reading).rejects.toThrow('something else');
      expect(Buffer.concat(seen).equals(VALUE.subarray(0, Buffer.concat(seen).length))).toBe(true);
      await expect(read(s3, name, PIECE_BYTES + 1, 1)).rejects.toThrow('something else');
      // What is whole is read.
      expect((await read(s3, name, 5, 7)).equals(VALUE.subarray(5, 12))).toBe(true);
    }
  });

  test('what is not of the blob is not asked for', async () => {
    const { s3, name } = await keep(VALUE);
    await expect(read(s3, name, VALUE.length - 1, 2)).rejects.toThrow('bytes has no');
    await expect(s3.blobs.write(name, { length: 1, chunks: [Buffer.alloc(1)] })).rejects.toThrow('has 1');
  });
});
