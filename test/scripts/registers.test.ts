/** The soak's judge of registers: what one copy could have shown, and what it could not. */
import { expect, test } from 'vitest';
import { contradiction, type Operation } from '../soak/registers.ts';

const write = (value: number, begin: number, end: number): Operation => ({ kind: 'write', value, begin, end });
const read = (value: number | undefined, begin: number, end: number): Operation => ({
  ...{ kind: 'read', value, begin, end },
});
const NEVER = Number.POSITIVE_INFINITY;

test.each<[string, Operation[]]>([
  ['nothing', [read(undefined, 0, 1)]],
  ['one after the other', [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)]],
  ['reads beside a write see either', [write(1, 0, 1), write(2, 2, 9), read(2, 3, 4), read(2, 5, 6)]],
  ['reads beside a write, the old one first', [write(1, 0, 1), write(2, 2, 9), read(1, 3, 4), read(2, 5, 6)]],
  ['writes at once, in any order', [write(1, 0, 9), write(2, 0, 9), read(2, 1, 2), read(1, 3, 4)]],
  ['not acknowledged, and never seen', [write(1, 0, 1), write(2, 2, NEVER), read(1, 8, 9)]],
  ['not acknowledged, and seen late', [write(1, 0, 1), write(2, 2, NEVER), read(1, 3, 4), read(2, 90, 91)]],
])('right: %s', (_, operations) => {
  expect(contradiction(operations)).toBeUndefined();
});

test.each<[string, Operation[]]>([
  ['lost', [write(1, 0, 1), read(undefined, 2, 3)]],
  ['too old', [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)]],
  ['from nowhere', [read(7, 0, 1)]],
  ['from the future', [read(1, 0, 1), write(1, 2, 3)]],
  ['there, gone, and there again', [write(1, 0, 1), write(2, 2, 9), read(2, 3, 4), read(1, 5, 6)]],
  ['not acknowledged, seen, and gone', [write(1, 0, 1), write(2, 2, NEVER), read(2, 3, 4), read(1, 5, 6)]],
  [
    'two readers that do not agree',
    [write(1, 0, 9), write(2, 0, 9), ...[1, 2, 1].map((v, i) => read(v, 2 * i + 1, 2 * i + 2))],
  ],
])('wrong: %s', (_, operations) => {
  expect(contradiction(operations)).toBeDefined();
});
