/** The table that the bench prints and writes: rows of figures, ratios to peers, targets met or not. */

import { median } from './load.ts';

export interface Figure {
  subject: string;
  /** Printed cells by column, such as `{'req/s': '14,200', 'CPU µs': '52'}`. */
  cells: Record<string, string>;
}

export interface Target {
  /** `CPU ≤ 1.6 × bare workerd` */
  text: string;
  /** What the target compares: the median of the rounds. */
  value: number;
  /** Of the rounds, where there are several. */
  spread?: [least: number, most: number];
  /** `noise`: the median misses it, and a round meets it. */
  verdict: 'met' | 'noise' | 'missed';
}

/**
 * @param limit `≤ 1.6`, or `≥ 3 × Caddy`: relation and number first
 * @param values what was measured, one for each round
 */
export function judge(label: string, limit: `${'≤' | '≥'} ${string}`, values: number[]): Target {
  const bound = Number.parseFloat(limit.slice(2));
  const meets = (value: number) => (limit.startsWith('≤') ? value <= bound : value >= bound);
  const value = median(values);
  return {
    text: `${label} ${limit}`,
    value,
    ...(values.length > 1 ? { spread: [Math.min(...values), Math.max(...values)] as [number, number] } : {}),
    verdict: meets(value) ? 'met' : values.some(meets) ? 'noise' : 'missed',
  };
}

const VERDICTS = { met: 'met', noise: 'not met, within noise', missed: '**not met**' };

export interface RowResult {
  id: string;
  title: string;
  figures: Figure[];
  targets: Target[];
  skipped: string[];
  note?: string;
}

export interface Report {
  at: string;
  machine: string;
  rows: RowResult[];
}

export function markdown(report: Report): string {
  const parts = [`# Bench`, '', `${report.at}; ${report.machine}`, ''];
  for (const row of report.rows) {
    parts.push(`## ${row.title}`, '');
    const columns = [...new Set(row.figures.flatMap(({ cells }) => Object.keys(cells)))];
    if (row.figures.length > 0) {
      parts.push(`| | ${columns.join(' | ')} |`, `| --- |${columns.map(() => ' ---: |').join('')}`);
      for (const { subject, cells } of row.figures) {
        parts.push(`| ${subject} | ${columns.map((column) => cells[column] ?? '').join(' | ')} |`);
      }
      parts.push('');
    }
    for (const { text, value, spread, verdict } of row.targets) {
      const rounds = spread ? ` (${round(spread[0])} to ${round(spread[1])})` : '';
      parts.push(`- ${VERDICTS[verdict]}: ${text}; measured ${round(value)}${rounds}`);
    }
    for (const skipped of row.skipped) parts.push(`- skipped: ${skipped}`);
    if (row.note) parts.push(`- ${row.note}`);
    parts.push('');
  }
  return parts.join('\n');
}

/** Rows whose targets' values got worse by more than `share` since the earlier report, and by more than their rounds differ. */
export function regressions(before: Report, now: Report, share = 0.15): string[] {
  return now.rows.flatMap((row) => {
    const old = before.rows.find(({ id }) => id === row.id);
    return row.targets.flatMap(({ text, value, spread: [least, most] = [value, value] }) => {
      const earlier = old?.targets.find((target) => target.text === text);
      if (!earlier || earlier.value === 0) return [];
      const { value: was, spread: [wasLeast, wasMost] = [was, was] } = earlier;
      const smallerIsBetter = text.includes('≤');
      const worse = smallerIsBetter
        ? value > was * (1 + share) && least > wasMost
        : value < was * (1 - share) && most < wasLeast;
      return worse ? [`${row.title}: ${text}: was ${round(was)}, is ${round(value)}`] : [];
    });
  });
}

export function round(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
