/** An account's statement: every movement of its credit with the request that caused it, as rows and as CSV. */

import { formatUsd } from '../../../kit/usd.ts';
import type { UsageLine } from '../catalog.ts';
import type { Database } from '../environment.ts';

export interface StatementLine {
  id: string;
  at: string;
  kind: string;
  /** Change of spendable credit: negative for charges and holds. */
  amountUsd: string;
  service: string | null;
  usage: UsageLine[] | null;
  requestId: string | null;
  memo: string | null;
}

export interface Statement {
  lines: StatementLine[];
  /** Give it as `before` for older lines. */
  cursor?: string;
}

interface Row {
  position: number;
  id: string;
  at: number;
  kind: string;
  change: number;
  service: string | null;
  usage: string | null;
  requestId: string | null;
  memo: string | null;
}

/** Which movements. */
export interface Lines {
  /** Cursor of the page before. */
  before?: number | undefined;
  /** Business time, ms. */
  from?: number;
  /** The same, not among them. */
  to?: number;
}

/** Newest first. */
export async function statement(
  db: Database,
  account: string,
  { limit, before, from, to }: Lines & { limit: number },
): Promise<Statement> {
  const { results } = await db
    .prepare(
      `SELECT t.rowid AS position, t.id, t.at, t.kind, t.service, t.usage, t.request_id AS requestId, t.memo,
         coalesce((SELECT sum(e.amount) FROM ledger_entries e
           WHERE e.transaction_id = t.id AND e.account_id LIKE 'grant:%'), 0) AS change
       FROM ledger_transactions t WHERE t.account = ?1 AND t.rowid < ?2 AND t.at >= ?4 AND t.at < ?5 ORDER BY t.rowid DESC LIMIT ?3`,
    )
    .bind(account, before ?? Number.MAX_SAFE_INTEGER, limit + 1, from ?? 0, to ?? Number.MAX_SAFE_INTEGER)
    .all<Row>();
  const page = results.slice(0, limit);
  const last = page.at(-1);
  return {
    lines: page.map((row) => ({
      id: row.id,
      at: new Date(row.at).toISOString(),
      kind: row.kind,
      amountUsd: formatUsd(row.change),
      service: row.service,
      usage: row.usage === null ? null : (JSON.parse(row.usage) as UsageLine[]),
      requestId: row.requestId,
      memo: row.memo,
    })),
    ...(results.length > limit && last ? { cursor: String(last.position) } : {}),
  };
}

const CSV_PAGE = 1_000;
const COLUMNS = ['id', 'at', 'kind', 'amount_usd', 'service', 'usage', 'request_id', 'memo'];

/** A balance beside the movements, in micro-USD. */
export interface CsvBalance {
  at: number;
  kind: 'opening' | 'closing';
  amount: number;
}

/**
 * A statement as a download (RFC 4180, with CRLF), read page by page as it is taken: one account may have more lines
 * than fit into memory.
 * @param lines as of `statement` @param name of the file @param balances the row before the lines, and the one after
 */
export async function statementCsv(
  db: Database,
  account: string,
  lines: Lines = {},
  name = account,
  balances?: [first: CsvBalance, last: CsvBalance],
): Promise<Response> {
  const read = (before: number | undefined) => statement(db, account, { ...lines, limit: CSV_PAGE, before });
  const balance = (row: CsvBalance | undefined) =>
    row ? csvRow(['', new Date(row.at).toISOString(), row.kind, formatUsd(row.amount), '', '', '', '']) : '';
  // Before the answer begins: what fails here is still told as a problem.
  let page = await read(lines.before);
  let head = csvRow(COLUMNS) + balance(balances?.[0]);
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { cursor } = page;
      const foot = cursor === undefined ? balance(balances?.[1]) : '';
      controller.enqueue(encoder.encode(head + csvRows(page.lines) + foot));
      head = '';
      if (cursor === undefined) controller.close();
      else page = await read(Number(cursor));
    },
  });
  return new Response(body, {
    headers: {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="${name}.csv"`,
    },
  });
}

function csvRows(lines: readonly StatementLine[]): string {
  const rows = lines.map((line) => [
    line.id,
    line.at,
    line.kind,
    line.amountUsd,
    line.service ?? '',
    (line.usage ?? []).map(({ meterSlug, quantity }) => `${quantity} x ${meterSlug}`).join('; '),
    line.requestId ?? '',
    line.memo ?? '',
  ]);
  return rows.map(csvRow).join('');
}

function csvRow(row: readonly string[]): string {
  return `${row.map(cell).join(',')}\r\n`;
}

/** Quoted where it must be; text that a spreadsheet would run as a formula gets an apostrophe, numbers do not. */
function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
