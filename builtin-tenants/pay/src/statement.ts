/** An account's statement: every movement of its credit with the request that caused it, as rows and as CSV. */
import type { UsageLine } from './catalog.ts';
import type { Database } from './environment.ts';
import { formatUsd } from './money.ts';

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

const COLUMNS = ['id', 'at', 'kind', 'amount_usd', 'service', 'usage', 'request_id', 'memo'];

/** RFC 4180, with CRLF. */
export function statementCsv(lines: readonly StatementLine[]): string {
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
  return [COLUMNS, ...rows].map((row) => `${row.map(cell).join(',')}\r\n`).join('');
}

/** Quoted where it must be; text that a spreadsheet would run as a formula gets an apostrophe, numbers do not. */
function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
