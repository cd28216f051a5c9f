import { describe, expect, it } from 'vitest';
import { parsePoints } from '../../../host/bindings/analytics/points.ts';
import { Recorder } from '../../../host/bindings/analytics/recorder.ts';
import type { DataPoint } from '../../../host/bindings/analytics/schema.ts';

const point = (index: string): DataPoint => ({ timestamp: 1, dataset: 'd', index, blobs: [], doubles: [] });

describe('a message of the binding', () => {
  it('has points of one dataset, with text that the database takes', () => {
    const text = JSON.stringify(['d', [['a\0', ['b', null], [1, null]]]]).replace('"b"', '"\\ud800"');
    expect(parsePoints(text, 5)).toEqual([
      { timestamp: 5, dataset: 'd', index: 'a\uFFFD', blobs: ['\uFFFD', null], doubles: [1, null] },
    ]);
    expect(parsePoints('["d",[]]', 5)).toEqual([]);
  });

  it.each([
    '',
    '{',
    'null',
    '[]',
    '["d"]',
    '["d",[[null,[],[]]],1]',
    '["sqlite_x",[]]',
    '["a b",[]]',
    '["d",[[1,[],[]]]]',
    '["d",[[null,[1],[]]]]',
    '["d",[[null,[],["1"]]]]',
    '["d",[[null,[],[1e400]]]]',
    JSON.stringify(['d', [[null, Array(21).fill('a'), []]]]),
    JSON.stringify(['d', [[null, [], Array(21).fill(1)]]]),
    JSON.stringify(['d', [['x'.repeat(16_001), [], []]]]),
    JSON.stringify(['d', Array(251).fill([null, [], []])]),
  ])('%.40s is none', (text) => {
    expect(parsePoints(text, 5)).toBeUndefined();
  });
});

describe('points on their way', () => {
  const recorder = (write: (points: readonly DataPoint[]) => Promise<void>) => {
    const lost: [number, string][] = [];
    const made = new Recorder({
      delayMs: 1_000_000,
      mostPoints: 3,
      mostBytes: 100,
      write,
      lost: (count, why) => lost.push([count, why]),
    });
    return { made, lost };
  };

  it('are written together, one write after the other, and what is too much is counted', async () => {
    const written: string[] = [];
    const { made, lost } = recorder(async (points) => {
      written.push(points.map(({ index }) => index).join(''));
    });
    for (const name of 'abcde') made.add(point(name), 1);
    expect(made.full).toBe(true);
    await Promise.all([made.flush(), made.flush()]);
    made.add(point('f'), 101);
    made.add(point('g'), 1);
    await made.flush();
    expect(written).toEqual(['abc', 'f']);
    expect(lost.map(([count]) => count)).toEqual([1, 1, 1]);
  });

  it('that cannot be written are lost, and the next are not', async () => {
    const { made, lost } = recorder(async ([first]) => {
      if (first?.index === 'a') throw new Error('no room');
    });
    made.add(point('a'), 1);
    await made.flush();
    made.add(point('b'), 1);
    await made.flush();
    expect(lost).toEqual([[1, 'no room']]);
  });
});
