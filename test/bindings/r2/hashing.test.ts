import { createHash } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { Hashing } from '../../../host/bindings/r2/hashing.ts';

const hashing = new Hashing();
afterAll(() => hashing.close());

const sums = (bytes: Buffer) =>
  (['md5', 'sha256'] as const).map((algorithm) => createHash(algorithm).update(bytes).digest('hex'));

test.each([0, 1, 16_383, 16_384, 102_400, 131_072, 131_073])(
  '%i bytes in pieces have their checksums',
  async (length) => {
    const whole = Buffer.alloc(length, 'abc');
    const chunks = [whole.subarray(0, length >> 1), whole.subarray(length >> 1)];
    const gathered = hashing.gather(chunks, length);
    expect(gathered.bytes.equals(whole)).toBe(true);
    const digests = await gathered.digests(['md5', 'sha256']);
    expect(digests.map((digest) => digest.toString('hex'))).toEqual(sums(whole));
    gathered.release();
  },
);

test('many values at once have each their own', async () => {
  const values = Array.from({ length: 300 }, (_, index) => Buffer.alloc(20_000 + index, index));
  const all = values.map((value) => hashing.gather([value], value.length));
  const digests = await Promise.all(all.map((one) => one.digests(['md5', 'sha256'])));
  for (const [index, value] of values.entries()) {
    expect(all[index]?.bytes.equals(value)).toBe(true);
    expect(digests[index]?.map((digest) => digest.toString('hex'))).toEqual(sums(value));
  }
  for (const one of all) one.release();
});

test('values are written where they are wanted, and a failure is told', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'hashing-'));
  const path = join(folder, 'values');
  const descriptor = openSync(path, 'w+');
  const values = Array.from({ length: 20 }, (_, index) => Buffer.alloc(20_000 + index, index));
  await Promise.all(
    values.map(async (value, index) => {
      const gathered = hashing.gather([value], value.length);
      const [digest] = await gathered.digests(['md5'], { descriptor, position: index * 32_768 });
      gathered.release();
      expect(digest?.toString('hex')).toBe(sums(value)[0]);
    }),
  );
  const written = readFileSync(path);
  for (const [index, value] of values.entries())
    expect(written.subarray(index * 32_768, index * 32_768 + value.length).equals(value)).toBe(true);
  closeSync(descriptor);

  const readOnly = openSync(path, 'r');
  const gathered = hashing.gather(values.slice(0, 1), 20_000);
  await expect(gathered.digests(['md5'], { descriptor: readOnly, position: 0 })).rejects.toThrow('EBADF');
  gathered.release();
  closeSync(readOnly);
  rmSync(folder, { recursive: true });
});
