import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Md5Lanes, PADDING_BYTES } from '../../../host/bindings/r2/md5-lanes.ts';
import { MOST_LANES, RESERVED_BYTES } from '../../../host/bindings/r2/md5-lanes-module.ts';
import { sharedMemory } from '../../../host/bindings/r2/wasm-code.ts';

// Nothing of md5-lanes.ts knows `node:crypto`, so what comes from it was computed by its own instructions.

const LONGEST = 131_072;
const SLOT = LONGEST + PADDING_BYTES;
const memory = sharedMemory(RESERVED_BYTES + MOST_LANES * SLOT);
const bytes = Buffer.from(memory.buffer);
const lanes = new Md5Lanes(memory);

/** MD5s of values of which `atOnce` are at work at a time; others follow as soon as some have ended. */
function md5s(values: Buffer[], atOnce: number): string[] {
  const digests: string[] = [];
  const free = Array.from({ length: atOnce }, (_, index) => RESERVED_BYTES + index * SLOT);
  let next = 0;
  while (next < values.length || lanes.busy > 0) {
    while (next < values.length && free.length > 0) {
      const [index, value, offset] = [next++, values[next - 1]!, free.pop()!];
      value.copy(bytes, offset);
      lanes.add(offset, value.length, (digest) => {
        digests[index] = digest.toString('hex');
        free.push(offset);
      });
    }
    lanes.run();
  }
  return digests;
}

const expected = (values: Buffer[]) => values.map((value) => createHash('md5').update(value).digest('hex'));

/** The same numbers each time (Park and Miller). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 48_271) % 0x7fffffff;
    return state % below;
  };
}

function made(length: number, random: (below: number) => number): Buffer {
  return Buffer.from(Array.from({ length }, () => random(256)));
}

test.each([1, 5, 12])("the values of RFC 1321's test suite, %i at once", (atOnce) => {
  const suite = {
    '': 'd41d8cd98f00b204e9800998ecf8427e',
    a: '0cc175b9c0f1b6a831c399e269772661',
    abc: '900150983cd24fb0d6963f7d28e17f72',
    'message digest': 'f96b697d7cb7938d525a2f31aaf161d0',
    abcdefghijklmnopqrstuvwxyz: 'c3fcd3d76192e4007dfb496cca67e13b',
    ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789: 'd174ab98d277d9f5a5611c2c9f419d9f',
    '12345678901234567890123456789012345678901234567890123456789012345678901234567890':
      '57edf4a22be3c955ac49da2e2107b67a',
  };
  const values = Object.keys(suite).map((text) => Buffer.from(text));
  expect(md5s(values, atOnce)).toEqual(Object.values(suite));
});

test.each(Array.from({ length: MOST_LANES }, (_, index) => index + 1))(
  'every length to 200 bytes, %i at once',
  (atOnce) => {
    const random = numbers(atOnce);
    const values = Array.from({ length: 201 }, (_, length) => made(length, random));
    expect(md5s(values, atOnce)).toEqual(expected(values));
  },
);

test.each(Array.from({ length: MOST_LANES }, (_, index) => index + 1))('long and short ones, %i at once', (atOnce) => {
  const random = numbers(100 + atOnce);
  const lengths = [
    LONGEST,
    0,
    1,
    55,
    56,
    63,
    64,
    65,
    119,
    120,
    32_767,
    32_768,
    32_769,
    65_536 - 9,
    65_536 - 8,
    102_400,
  ];
  const more = Array.from({ length: 20 }, () => random(LONGEST + 1));
  const source = made(2 * LONGEST, random);
  const values = [...lengths, ...more].map((length) => {
    const start = random(LONGEST);
    return source.subarray(start, start + length);
  });
  expect(md5s(values, atOnce)).toEqual(expected(values));
});

test('a value that comes later ends before a longer one that came first', () => {
  const ended: string[] = [];
  lanes.add(RESERVED_BYTES, LONGEST, () => ended.push('long'));
  lanes.run();
  expect(ended).toEqual([]);
  lanes.add(RESERVED_BYTES + SLOT, 1000, () => ended.push('short'));
  lanes.run();
  expect(ended).toEqual(['short']);
  while (lanes.busy > 0) lanes.run();
  expect(ended).toEqual(['short', 'long']);
  expect(lanes.room).toBe(MOST_LANES);
});
