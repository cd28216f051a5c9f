/** What pages of the operator's console are made of: charts, and answers as text. */
import { describe, expect, it } from 'vitest';
import { chart } from '../../host/control/console/chart.ts';
import { json, milliseconds, usd } from '../../host/control/console/words.ts';

describe('charts', () => {
  const at = ['2026-11-25T10:00:00.000Z', '2026-11-25T10:01:00.000Z', '2026-11-25T10:02:00.000Z'];
  const draw = (values: (number | null)[], isWhole = false) =>
    String(
      chart({ id: 'x', title: 'A <b>title</b>', at, format: String, isWhole, series: [{ name: '"all"', values }] }),
    );

  it('have a title, a description and their numbers as a table, all escaped', () => {
    const svg = draw([1, 2, 3]);
    expect(svg).not.toContain('<b>');
    expect(svg).toContain('<title id="x-title">A &lt;b&gt;title&lt;/b&gt;</title>');
    expect(svg).toContain('&quot;all&quot;: 3 last, 3 at most');
    expect(svg.match(/<tr><td>2026-11-25 10:0\d<\/td><td class="number">\d<\/td><\/tr>/g)?.length).toBe(3);
    expect(svg).not.toMatch(/NaN|undefined|style=|onload/);
  });

  it('leave gaps where nothing is known, and draw one step alone, and nothing at all', () => {
    expect(draw([1, null, 3]).match(/class="line"/g)?.length).toBe(2);
    expect(draw([1, null, 3])).toContain('<td class="number">–</td>');
    expect(draw([0, 0, 0])).not.toMatch(/NaN|Infinity/);
    expect(draw([null, null, null])).toContain('Nothing is known');
    expect(draw([1, 1, 1], true).match(/text-anchor="end">1</g)?.length).toBe(1);
  });
});

describe('answers of any API', () => {
  it('are text, however they are nested', () => {
    const evil = '<script>alert(1)</script>';
    const text = String(
      json({ [evil]: [{ name: evil, more: [evil, { deep: { deeper: { deepest: evil } } }] }], n: 1 }),
    );
    expect(text).not.toContain('<script>');
    expect(text).toContain('&lt;script&gt;');
    expect(String(json([{ a: 1 }, { b: true }]))).toContain('<table');
    expect([json(null), json(true), json({}), json([])]).toEqual(['–', 'yes', 'none', 'none']);
  });

  it('have short numbers', () => {
    expect([milliseconds(0.25), milliseconds(12.3), milliseconds(1_500), milliseconds(60_000)]).toEqual([
      '0.3 ms',
      '12 ms',
      '1.5 s',
      '60 s',
    ]);
    expect([usd('0.2'), usd('1234567.5'), usd('3')]).toEqual(['$0.20', '$1,234,567.50', '$3.00']);
  });
});
