/** Affiliate and merchant feeds as CSV or TSV, with a header row; columns are named as in Google's feeds, or mapped. */
import { parse } from 'csv-parse/sync';
import { merchantItem } from './google-merchant.ts';
import type { FoundOffer, Source } from './source.ts';

const MOST_ROWS = 500_000;

export function parseCsv(text: string, source: Source, now = Date.now()): FoundOffer[] {
  const head = text.slice(0, text.indexOf('\n') < 0 ? text.length : text.indexOf('\n'));
  const delimiter = ['\t', ';', ','].find((candidate) => head.includes(candidate)) ?? ',';
  const rows = parse(text, {
    columns: (header: string[]) => header.map(columnName),
    bom: true,
    delimiter,
    relax_column_count: true,
    relax_quotes: true,
    skip_empty_lines: true,
    max_record_size: 131_072,
    to: MOST_ROWS,
  }) as Record<string, string>[];
  const columns = Object.entries(source.columns ?? {});
  return rows.flatMap((row) => {
    for (const [ours, theirs] of columns) {
      const value = row[columnName(theirs)];
      if (value !== undefined) row[ours] = value;
    }
    const offer = merchantItem(row, source, now);
    return offer ? [offer] : [];
  });
}

function columnName(name: string): string {
  return name.trim().toLowerCase().replace(/^g:/, '').replaceAll(' ', '_');
}
