/** The SQL API of data points, as Cloudflare has it: what is asked, and the form of what is answered. */
import { QueryFault, translate } from './sql.ts';

/** @returns SQL for SQLite @throws QueryFault, SyntaxError */
export function readQuery(text: string | undefined): string {
  const asked: unknown = text === undefined ? undefined : JSON.parse(text);
  const query = typeof asked === 'object' && asked !== null && 'query' in asked ? asked.query : undefined;
  if (typeof query !== 'string') throw new QueryFault('Send {"query": "SELECT …"}.');
  return translate(query);
}

export function shownResult({ columns, rows }: { columns: string[]; rows: unknown[][] }) {
  const meta = columns.map((name, at) => {
    const sample = rows.find((row) => row[at] !== null)?.[at];
    return { name, type: typeof sample === 'number' ? 'Float64' : 'String' };
  });
  const data = rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, row[at]])));
  return { meta, data, rows: rows.length };
}
