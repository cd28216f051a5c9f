/** The table that the bench prints and writes: rows of figures, ratios to peers, targets met or not. */

export interface Figure {
  subject: string;
  /** Printed cells by column, such as `{'req/s': '14,200', 'CPU µs': '52'}`. */
  cells: Record<string, string>;
}

export interface Target {
  /** `CPU ≤ 1.6 × bare workerd` */
  text: string;
  /** The measured value of what the target compares. */
  value: number;
  met: boolean;
}

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
    for (const { text, value, met } of row.targets)
      parts.push(`- ${met ? 'met' : '**not met**'}: ${text}; measured ${round(value)}`);
    for (const skipped of row.skipped) parts.push(`- skipped: ${skipped}`);
    if (row.note) parts.push(`- ${row.note}`);
    parts.push('');
  }
  return parts.join('\n');
}

/** Rows whose targets' values got worse by more than `share` since the earlier report. */
export function regressions(before: Report, now: Report, share = 0.15): string[] {
  return now.rows.flatMap((row) => {
    const old = before.rows.find(({ id }) => id === row.id);
    return row.targets.flatMap(({ text, value }) => {
      const was = old?.targets.find((target) => target.text === text)?.value;
      if (was === undefined || was === 0) return [];
      const smallerIsBetter = text.includes('≤');
      const worse = smallerIsBetter ? value > was * (1 + share) : value < was * (1 - share);
      return worse ? [`${row.title}: ${text}: was ${round(was)}, is ${round(value)}`] : [];
    });
  });
}

export function round(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
