/**
 * A month of an account's credit: what was there when it began, what came and went, and what was left when it ended.
 * Everything is summed from the entries of the ledger that changed spendable credit, so the three agree to the last
 * micro-USD, and the end of a month is the beginning of the next.
 */
import type { Database } from '../environment.ts';
import type { Lines } from './statement.ts';

/** `2026-11`, from its first millisecond to that of the next one, UTC. */
export interface Month {
  name: string;
  from: number;
  to: number;
}

/** micro-USD. */
export interface MonthSum {
  kind: string;
  /** Of credit that came, where from. */
  source: string | null;
  service: string | null;
  times: number;
  amount: number;
}

export interface MonthStatement {
  month: Month;
  /** micro-USD. */
  opening: number;
  closing: number;
  sums: MonthSum[];
  /** The very movements that were summed. */
  lines: Lines;
}

/** @returns undefined for what is no month */
export function readMonth(name: string | undefined): Month | undefined {
  if (name === undefined || !/^20\d\d-(?:0[1-9]|1[0-2])$/.test(name)) return undefined;
  const [year = 0, month = 0] = name.split('-').map(Number);
  return { name, from: Date.UTC(year, month - 1), to: Date.UTC(year, month) };
}

/** The month of a time, or one before or after it. */
export function monthAt(time: number, later = 0): Month {
  const date = new Date(time);
  const from = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
  const start = new Date(from);
  return {
    name: start.toISOString().slice(0, 7),
    from,
    to: Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1),
  };
}

const CHANGES = `FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id
  LEFT JOIN grants g ON t.kind = 'grant' AND e.account_id = 'grant:' || g.id
  WHERE t.account = ?1 AND e.account_id LIKE 'grant:%'`;

export async function monthStatement(db: Database, account: string, month: Month): Promise<MonthStatement> {
  const { from, to } = month;
  // One transaction: what is booked meanwhile is in all of the answers, or in none.
  const [opening, sums, last] = await db.batch<Record<string, unknown>>([
    db.prepare(`SELECT coalesce(sum(e.amount), 0) AS amount ${CHANGES} AND t.at < ?2`).bind(account, from),
    db
      .prepare(
        `SELECT t.kind, g.source, t.service, count(DISTINCT t.id) AS times, sum(e.amount) AS amount ${CHANGES}
         AND t.at >= ?2 AND t.at < ?3 GROUP BY t.kind, g.source, t.service ORDER BY t.kind, g.source, t.service`,
      )
      .bind(account, from, to),
    db.prepare('SELECT coalesce(max(rowid), 0) AS place FROM ledger_transactions WHERE account = ?1').bind(account),
  ]);
  const listed = (sums?.results ?? []) as unknown as MonthSum[];
  const before = Number(opening?.results[0]?.amount ?? 0);
  return {
    month,
    opening: before,
    closing: listed.reduce((sum, { amount }) => sum + amount, before),
    sums: listed,
    lines: { from, to, before: Number(last?.results[0]?.place ?? 0) + 1 },
  };
}
