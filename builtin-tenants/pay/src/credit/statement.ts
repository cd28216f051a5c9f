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

/** Newest first. @param before cursor of the page before */
export async function statement(
  db: Database,
  account: string,
  { limit, before }: { limit: number; before?: number | undefined },
): Promise<Statement> {
  const { results } = await db
    .prepare(
      `SELECT t.rowid AS position, t.id, t.at, t.kind, t.service, t.usage, t.request_id AS requestId, t.memo,
         coalesce((SELECT sum(e.amount) FROM ledger_entries e
           WHERE e.transaction_id = t.id AND e.account_id LIKE 'grant:%'), 0) AS change
       FROM ledger_transactions t WHERE t.account = ?1 AND t.rowid < ?2 ORDER BY t.rowid DESC LIMIT ?3`,
    )
    .bind(account, before ?? Number.MAX_SAFE_INTEGER, limit + 1)
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

/**
 * The whole statement as a download (RFC 4180, with CRLF), read page by page as it is taken: one account may have more
 * lines than fit into memory.
 * @param before as of `statement`
 */
export async function statementCsv(db: Database, account: string, before?: number): Promise<Response> {
  const read = (from: number | undefined) => statement(db, account, { limit: CSV_PAGE, before: from });
  // Before the answer begins: what fails here is still told as a problem.
  let page = await read(before);
  let head = csvRow(COLUMNS);
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      controller.enqueue(encoder.encode(head + csvRows(page.lines)));
      head = '';
      if (page.cursor === undefined) controller.close();
      else page = await read(Number(page.cursor));
    },
  });
  return new Response(body, {
    headers: {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="${account}.csv"`,
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
