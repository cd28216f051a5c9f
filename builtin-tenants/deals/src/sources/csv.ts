/** Affiliate and merchant feeds as CSV or TSV, with a header row; columns are named as in Google's feeds, or mapped. */
import { merchantItem } from './google-merchant.ts';
import { type FoundOffer, MOST_OFFERS, OFFERS_A_PIECE, type Source } from './source.ts';

const MOST_COLUMNS = 256;
/** Of one row, characters. */
const LONGEST_ROW = 131_072;

/**
 * A piece of the document at a time; nothing of it is kept.
 * @throws Error where a row is too long or too wide, or there are too many
 */
export function* parseCsv(text: string, source: Source, now = Date.now()): Generator<FoundOffer[]> {
  const [head = ''] = text.slice(0, LONGEST_ROW).split('\n', 1);
  const delimiter = ['\t', ';', ','].find((candidate) => head.includes(candidate)) ?? ',';
  const mapped = Object.entries(source.columns ?? {}).map(([ours, theirs]) => [ours, columnName(theirs)] as const);
  let header: string[] | undefined;
  let rows = 0;
  let piece: FoundOffer[] = [];
  for (const cells of readRows(text.replace(/^\ufeff/, ''), delimiter)) {
    if (header === undefined) {
      header = cells.map(columnName);
      continue;
    }
    if (++rows > MOST_OFFERS)
      throw new Error(`the document has more than ${MOST_OFFERS} rows; name its parts as sources`);
    // Names of columns are a stranger's.
    const row: Record<string, string> = Object.create(null);
    header.forEach((name, column) => {
      const cell = cells[column];
      if (cell !== undefined) row[name] = cell;
    });
    for (const [ours, theirs] of mapped) {
      const cell = row[theirs];
      if (cell !== undefined) row[ours] = cell;
    }
    const offer = merchantItem(row, source, now);
    if (offer) piece.push(offer);
    if (rows % OFFERS_A_PIECE !== 0) continue;
    yield piece;
    piece = [];
  }
  yield piece;
}

/**
 * RFC 4180, leniently: a quote counts at the start of a cell only, and what follows its end belongs to the cell. Not
 * csv-parse: it reads step by step with Node's streams only, which workerd does not have here.
 */
function* readRows(text: string, delimiter: string): Generator<string[]> {
  let cells: string[] = [];
  let start = 0;
  for (let at = 0; at < text.length; ) {
    let cell = '';
    if (text[at] === '"') {
      for (at++; ; ) {
        const end = text.indexOf('"', at);
        if (end < 0) throw new Error('the document ends within quotes');
        cell += text.slice(at, end);
        at = end + 1;
        if (text[at] !== '"') break;
        cell += '"';
        at++;
        if (at - start > LONGEST_ROW) throw tooLong();
      }
    }
    const from = at;
    while (at < text.length && text[at] !== delimiter && text[at] !== '\n') at++;
    cell += text.slice(from, text[at] === '\n' && text[at - 1] === '\r' && at > from ? at - 1 : at);
    if (at - start > LONGEST_ROW) throw tooLong();
    if (cells.push(cell) > MOST_COLUMNS) throw new Error(`a row has more than ${MOST_COLUMNS} columns`);
    const isLast = text[at] !== delimiter;
    at++;
    if (!isLast && at < text.length) continue;
    if (!isLast) cells.push('');
    if (cells.length > 1 || cells[0] !== '') yield cells;
    cells = [];
    start = at;
  }
}

function tooLong(): Error {
  return new Error(`a row is longer than ${LONGEST_ROW} characters`);
}

function columnName(name: string): string {
  return name.trim().toLowerCase().replace(/^g:/, '').replaceAll(' ', '_');
}
