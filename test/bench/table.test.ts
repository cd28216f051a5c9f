import { expect, test } from 'vitest';
import { judge, markdown, type Report, regressions } from './table.ts';

const report = (...targets: Report['rows'][number]['targets']): Report => ({
  at: '2026-11-26T00:00:00.000Z',
  machine: 'middle kind',
  rows: [{ id: 'a', title: 'A', figures: [], targets, skipped: [] }],
});

test.each([
  ['≤ 1.6 × bare workerd', [1.5, 1.7, 1.4], 'met'],
  ['≤ 1.6 × bare workerd', [1.7, 1.5, 1.8], 'noise'],
  ['≤ 1.6', [1.7, 1.9, 1.8], 'missed'],
  ['≥ 3', [2.9, 3.1, 3.2], 'met'],
  ['≥ 3', [2.9, 3.1, 2.8], 'noise'],
  ['≥ 3', [2.9], 'missed'],
  ['≤ 0', [0], 'met'],
] as const)('%s of %j is %s', (limit, values, verdict) => {
  expect(judge('x', limit, [...values])).toMatchObject({ text: `x ${limit}`, verdict });
});

test('a target says what the rounds were', () => {
  const text = markdown(report(judge('CPU', '≤ 1.6', [1.7, 1.5, 1.8]), judge('failed', '≤ 0', [0])));
  expect(text).toContain('- not met, within noise: CPU ≤ 1.6; measured 1.70 (1.50 to 1.80)\n');
  expect(text).toContain('- met: failed ≤ 0; measured 0.00\n');
});

test('what got worse did so by more than the rounds differ', () => {
  const before = report(judge('rate', '≥ 1', [10, 12, 14]), judge('CPU', '≤ 9', [1, 2, 3]));
  expect(regressions(before, report(judge('rate', '≥ 1', [9, 9.5, 11]), judge('CPU', '≤ 9', [2.5, 3, 4])))).toEqual([]);
  expect(regressions(before, report(judge('rate', '≥ 1', [7, 8, 9]), judge('CPU', '≤ 9', [4, 5, 6])))).toEqual([
    'A: rate ≥ 1: was 12.0, is 8.00',
    'A: CPU ≤ 9: was 2.00, is 5.00',
  ]);
});
