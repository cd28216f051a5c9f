import { appendFileSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Journal } from '../../host/local-network/journal.ts';

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turnpike-journal-'));
  path = join(folder, 'journal.jsonl');
});
afterEach(() => rmSync(folder, { recursive: true }));

test('gives back what was appended, in order, and not what was refused', () => {
  const journal = new Journal(path);
  journal.append({ raw: '0x01', at: 1 });
  const second = journal.append({ raw: '0x02', at: 2 });
  journal.append({ raw: '0x03', at: 3 });
  journal.refuse(second);
  journal.close();
  expect(new Journal(path).read()).toEqual([
    { raw: '0x01', at: 1 },
    { raw: '0x03', at: 3 },
  ]);
});

test('a torn line is left out, and what comes after it is not', () => {
  const first = new Journal(path);
  first.append({ raw: '0x01', at: 1 });
  first.close();
  appendFileSync(path, '\n{"number":1,"raw":"0x0');
  const second = new Journal(path);
  const number = second.append({ raw: '0x03', at: 3 });
  expect(second.read().map(({ raw }) => raw)).toEqual(['0x01', '0x03']);
  second.refuse(number);
  expect(second.read().map(({ raw }) => raw)).toEqual(['0x01']);
});

test('is empty after clear, and readable by its owner only', () => {
  const journal = new Journal(path);
  journal.append({ raw: '0x01', at: 1 });
  journal.clear();
  expect(journal.read()).toEqual([]);
  journal.append({ raw: '0x02', at: 2 });
  expect(journal.read()).toHaveLength(1);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test('the next process overwrites nothing of the one before, whatever numbers that had come to', () => {
  const first = new Journal(path);
  for (let at = 0; at < 3; at++) first.append({ raw: '0x00', at });
  first.clear();
  for (let at = 3; at < 8; at++) first.append({ raw: `0x0${at}` as `0x${string}`, at });
  first.close();
  const second = new Journal(path);
  for (let at = 8; at < 10; at++) second.append({ raw: `0x0${at}` as `0x${string}`, at });
  second.refuse(second.append({ raw: '0x0f', at: 10 }));
  expect(second.read().map(({ at }) => at)).toEqual([3, 4, 5, 6, 7, 8, 9]);
});
