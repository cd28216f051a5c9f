/** What statements cost, from programs as EXPLAIN of libSQL 0.5.29 tells them. */
import { describe, expect, it } from 'vitest';
import { costOf, rowsRead, rowsWritten } from '../../../host/bindings/d1/cost.ts';
import { KNOWN } from '../../../host/bindings/d1/flow.ts';

type Row = [opcode: string, p1: number, p2: number, p3?: number, p5?: number];
const program = (...rows: Row[]) =>
  rows.map(([opcode, p1, p2, p3 = 0, p5 = 0], address) => [address, opcode, p1, p2, p3, null, p5]);
const run = (figures: Partial<Record<(typeof KNOWN)[number], number>>): number[] => {
  const { rows = 0, changes = 0 } = figures;
  return KNOWN.map((name) => ({ one: 1, some: rows + changes > 0 ? 1 : 0, ...figures })[name] ?? 0);
};

/** SELECT * FROM a, b */
const CROSS_JOIN = program(
  ['Init', 0, 11],
  ['OpenRead', 0, 2],
  ['OpenRead', 1, 3],
  ['Rewind', 0, 10],
  ['Rewind', 1, 10],
  ['Column', 0, 0, 1],
  ['Column', 1, 0, 2],
  ['ResultRow', 1, 2],
  ['Next', 1, 5, 0, 1],
  ['Next', 0, 4, 0, 1],
  ['Halt', 0, 0],
  ['Transaction', 0, 0],
  ['Goto', 0, 1],
);

describe('rows read', () => {
  it('of a join count each look at a table anew', () => {
    // 2 rows and, for each, 3 rows.
    expect(rowsRead(costOf(CROSS_JOIN), run({ rows: 6, scans: 5, steps: 6 + 2 + 6 * 4 + 2 + 1 }))).toBe(8);
    expect(rowsRead(costOf(CROSS_JOIN), run({ rows: 3, scans: 2, steps: 6 + 1 + 3 * 4 + 1 + 1 }))).toBe(4);
  });

  it('of a scan count the look at an empty table', () => {
    const scan = program(
      ['Init', 0, 7],
      ['OpenRead', 0, 2],
      ['Rewind', 0, 6],
      ['Column', 0, 0, 1],
      ['ResultRow', 1, 1],
      ['Next', 0, 3, 0, 1],
      ['Halt', 0, 0],
      ['Transaction', 0, 0],
      ['Goto', 0, 1],
    );
    expect(rowsRead(costOf(scan), run({}))).toBe(1);
    expect(rowsRead(costOf(scan), run({ rows: 3, scans: 2 }))).toBe(3);
  });

  it('need no counters where the program tells all', () => {
    const lookup = program(
      ['Init', 0, 7],
      ['OpenRead', 0, 2],
      ['Integer', 3, 1],
      ['SeekRowid', 0, 6, 1],
      ['Column', 0, 0, 2],
      ['ResultRow', 2, 1],
      ['Halt', 0, 0],
      ['Transaction', 0, 0],
      ['Goto', 0, 1],
    );
    expect(costOf(lookup).counters).toBe(false);
    expect(rowsRead(costOf(lookup), run({}))).toBe(1);
    expect(rowsRead(costOf(lookup), run({ rows: 1 }))).toBe(1);
  });

  it('of a program that is too large are what it answers and scans', () => {
    const large = program(...Array.from({ length: 301 }, (): Row => ['Integer', 1, 1]), ['Halt', 0, 0]);
    expect(rowsRead(costOf(large), run({ rows: 7, scans: 3 }))).toBe(7);
  });
});

it('rows written are those of tables and indexes, not of scratch tables', () => {
  const insert = program(
    ['Init', 0, 10],
    ['OpenEphemeral', 2, 1],
    ['OpenWrite', 0, 2],
    ['OpenWrite', 1, 3],
    ['NewRowid', 0, 1],
    ['MakeRecord', 2, 1, 3],
    ['Insert', 2, 3, 1, 0],
    ['IdxInsert', 1, 3, 4, 16],
    ['Insert', 0, 3, 1, 49],
    ['Halt', 0, 0],
    ['Transaction', 0, 1],
    ['Goto', 0, 1],
  );
  expect(rowsWritten(costOf(insert), run({ changes: 1 }))).toBe(2);
  expect(costOf(insert)).toMatchObject({ counters: false, brief: true });
});
