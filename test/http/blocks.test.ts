/** Memory that goes round: no two holders ever share a block. */
import { afterEach, expect, test, vi } from 'vitest';
import { Blocks, type ReadBlock } from '../../host/http/message/blocks.ts';

afterEach(() => {
  vi.useRealTimers();
});

test('blocks do not overlap, and there is an end of them', () => {
  const blocks = new Blocks();
  const taken: ReadBlock[] = [];
  for (let block = blocks.take(); block; block = blocks.take()) taken.push(block);
  expect(taken).toHaveLength(512);
  taken.forEach((block, index) => {
    block.bytes.fill(index % 251);
  });
  expect(taken.every(({ bytes }, index) => bytes[0] === index % 251 && bytes.at(-1) === index % 251)).toBe(true);
  taken[7]?.release();
  expect(blocks.take()?.bytes).toBe(taken[7]?.bytes);
});

test('a block that somebody holds is not given to another', () => {
  const blocks = new Blocks();
  const block = blocks.take();
  block?.hold();
  block?.release();
  expect(blocks.take()?.bytes).not.toBe(block?.bytes);
  block?.release();
  expect(blocks.take()?.bytes).toBe(block?.bytes);
});

test('memory of a burst is given up after some seconds, but for the first of it', () => {
  vi.useFakeTimers();
  const blocks = new Blocks();
  const taken = Array.from({ length: 100 }, () => blocks.take());
  const memory = new Set(taken.map((block) => block?.bytes.buffer));
  expect(memory.size).toBe(4);
  for (const block of taken) block?.release();
  vi.advanceTimersByTime(10_000);
  const again = Array.from({ length: 100 }, () => blocks.take());
  const kept = new Set(again.map((block) => block?.bytes.buffer)).intersection(memory);
  expect(kept.size).toBe(1);
});
