/** Values of middle size in one file: where they lie, what is used again, and what an opening knows of it. */
import { mkdtempSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { copyExtents, Extents, isExtent, PageMap } from '../../../host/bindings/store-process/blobs/extents.ts';

describe('the map of pages', () => {
  test('a thousand runs come and go, none over another, and the end is behind the last', () => {
    const map = new PageMap();
    const runs = new Map<number, number>();
    // xorshift: the same numbers each time
    let seed = 2_463_534_242;
    const random = (below: number) => {
      seed ^= seed << 13;
      seed ^= seed >>> 17;
      seed ^= seed << 5;
      return (seed >>> 0) % below;
    };
    let most = 0;
    for (let step = 0; step < 20_000; step++) {
      if (runs.size < 40 || (runs.size < 400 && random(2) === 0)) {
        const count = 4 + random(29);
        const page = map.take(count);
        for (const [other, length] of runs)
          if (page < other + length && other < page + count) throw new Error(`${page} lies over ${other}`);
        runs.set(page, count);
      } else {
        const [page, count] = [...runs][random(runs.size)] as [number, number];
        runs.delete(page);
        map.free(page, count);
      }
      const end = Math.max(0, ...[...runs].map(([page, count]) => page + count));
      expect(map.end).toBe(end);
      most = Math.max(most, end);
    }
    // 400 runs of 18 pages in the middle: what became free was used again.
    expect(most).toBeLessThan(2 * 400 * 18);
    for (const [page, count] of runs) map.free(page, count);
    expect(map.end).toBe(0);
  });

  test('an opening learns the runs in any order', () => {
    const map = new PageMap();
    map.use(500, 10);
    map.use(0, 4);
    map.use(20, 5);
    expect(map.end).toBe(510);
    expect(map.take(16)).toBe(4);
    expect(map.take(600)).toBe(510);
    expect(map.take(30)).toBe(25);
  });

  test('a full file grows, without a search for each value', () => {
    const map = new PageMap();
    expect([map.take(25), map.take(25), map.take(25)]).toEqual([0, 25, 50]);
    map.free(0, 25);
    expect(map.take(25)).toBe(0);
  });
});

describe('the file', () => {
  let folder: string;
  let path: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'extents-'));
    path = join(folder, 'r2.extents');
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const put = (extents: Extents, value: Buffer) => {
    const { name, descriptor, position } = extents.allocate(value.length);
    writeSync(descriptor, value, 0, value.length, position);
    return name;
  };
  const value = (index: number, length = 20_000 + index) => Buffer.alloc(length, `value ${index};`);

  test('is not there before the first value', async () => {
    const extents = new Extents(path, []);
    extents.close();
    expect(() => statSync(path)).toThrow('ENOENT');
  });

  test('keeps what was named, and gives back what was not', async () => {
    const first = new Extents(path, []);
    const names = Array.from({ length: 10 }, (_, index) => put(first, value(index)));
    await Promise.all([first.sync(), first.sync()]);
    expect(names.every(isExtent)).toBe(true);
    expect(new Set(names).size).toBe(10);
    first.close();

    // A stop left the others without a row.
    const kept = [names[1] as string, names[4] as string];
    const second = new Extents(path, kept);
    expect(second.read(kept[0] as string, 0, 20_001).equals(value(1))).toBe(true);
    expect(second.read(kept[1] as string, 10, 50).equals(value(4).subarray(10, 60))).toBe(true);
    // Five pages each: the file ends with the fifth value.
    expect(statSync(path).size).toBe(5 * 5 * 4_096);
    const again = Array.from({ length: 3 }, (_, index) => put(second, value(20 + index)));
    expect(statSync(path).size).toBeLessThanOrEqual(8 * 5 * 4_096);
    for (const [index, name] of again.entries())
      expect(second.read(name, 0, 20_020 + index).equals(value(20 + index))).toBe(true);
    expect(second.read(kept[0] as string, 0, 20_001).equals(value(1))).toBe(true);
    for (const name of [...kept, ...again]) second.free(name);
    second.close();
    expect(statSync(path).size).toBe(0);
  });

  test('that is too short says so', () => {
    const extents = new Extents(path, []);
    const name = put(extents, value(1));
    extents.free(name);
    extents.close();
    const reopened = new Extents(path, [name]);
    expect(() => reopened.read(name, 0, 20_001)).toThrow('shorter than its index says');
    reopened.close();
  });

  test('is copied by the names that a copy of the index holds', () => {
    const extents = new Extents(path, []);
    const names = Array.from({ length: 5 }, (_, index) => put(extents, value(index)));
    const target = join(folder, 'copy');
    expect(copyExtents(path, target, [names[1] as string, names[3] as string])).toBe(20_001 + 20_003);
    const copy = new Extents(target, [names[1] as string, names[3] as string]);
    expect(copy.read(names[3] as string, 0, 20_003).equals(value(3))).toBe(true);
    copy.close();
    extents.close();
  });

  test.each(['', '@', '@1', '@1.', '@1.x', '@-1.5', 'blob', '@1.2.3'])('has no value under the name %j', (name) => {
    expect(() => new Extents(path, [name])).toThrow('no name of an extent');
  });
});
