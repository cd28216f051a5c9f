import { createHash, hash } from 'node:crypto';
import { beforeEach, expect, test, vi } from 'vitest';
import { HashQueue } from '../../../host/bindings/r2/hash-queue.ts';
import type { HashAlgorithm } from '../../../host/bindings/r2/hashing.ts';
import { RESERVED_BYTES } from '../../../host/bindings/r2/md5-lanes-module.ts';
import { sharedMemory } from '../../../host/bindings/r2/wasm-code.ts';

const hashOne = vi.fn((algorithm: HashAlgorithm, bytes: Buffer) => hash(algorithm, bytes, 'hex'));
beforeEach(() => void hashOne.mockClear());

const SLOT = 131_072 + 128;
const memory = sharedMemory(RESERVED_BYTES + 40 * SLOT);
const bytes = Buffer.from(memory.buffer);
const queue = new HashQueue(memory, hashOne);

const offsetOf = (id: number) => RESERVED_BYTES + id * SLOT;
const job = (id: number, length: number, algorithms: HashAlgorithm[] = ['md5']) => ({
  ...{ id, length, algorithms },
  offset: offsetOf(id),
});
const sum = (algorithm: HashAlgorithm, id: number, length: number) =>
  createHash(algorithm)
    .update(bytes.subarray(offsetOf(id), offsetOf(id) + length))
    .digest('hex');

for (let id = 0; id < 40; id++) bytes.fill(`value ${id}`, offsetOf(id), offsetOf(id) + 131_072);

test('MD5s come from the lanes, however many values wait', () => {
  queue.add(Array.from({ length: 40 }, (_, id) => job(id, 16_384 + 1000 * id)));
  const answers = [];
  while (queue.busy) answers.push(...queue.turn());
  answers.sort((one, other) => one.id - other.id);
  expect(answers).toEqual(
    Array.from({ length: 40 }, (_, id) => ({ id, digests: [sum('md5', id, 16_384 + 1000 * id)] })),
  );
  expect(hashOne).not.toHaveBeenCalled();
});

test('other checksums come along, in the order asked for', () => {
  queue.add([job(1, 20_000, ['md5', 'sha256']), job(2, 20_000, ['sha1']), job(3, 20_000, ['sha512', 'md5'])]);
  const answers = [];
  while (queue.busy) answers.push(...queue.turn());
  const digests = Object.fromEntries(answers.map((answer) => [answer.id, answer.digests]));
  expect(digests).toEqual({
    1: [sum('md5', 1, 20_000), sum('sha256', 1, 20_000)],
    2: [sum('sha1', 2, 20_000)],
    3: [sum('sha512', 3, 20_000), sum('md5', 3, 20_000)],
  });
  expect(hashOne.mock.calls.map(([algorithm]) => algorithm).sort()).toEqual(['sha1', 'sha256', 'sha512']);
});

test('a value that comes while others are at work is answered before they are, if it is shorter', () => {
  queue.add([job(4, 131_072), job(5, 131_072)]);
  expect(queue.turn()).toEqual([]);
  queue.add([job(6, 16_384)]);
  expect(queue.turn().map(({ id }) => id)).toEqual([6]);
  const rest = [];
  while (queue.busy) rest.push(...queue.turn());
  expect(rest.map(({ id }) => id)).toEqual([4, 5]);
});
