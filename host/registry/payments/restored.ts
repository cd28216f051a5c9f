/**
 * Books that came back from a backup: since when money may have moved that is not in them, and what of that the chain knew.
 * A setting, which whoever restores writes before the host starts.
 */
import type { Client, Transaction } from '@libsql/client/sqlite3';
import type { Database } from '../index.ts';
import { readSetting, savedSetting } from '../settings.ts';
import type { Statement } from './books.ts';

const NAME = 'payments-restored';

/** A transaction that moved money of the host's wallets, and that the books did not have. */
export interface Unknown {
  asset: string;
  hash: string;
  /** What the collecting wallet got by it, less what it gave. */
  net: string;
  /** What it sent from wallets of the host, as far as nothing is known to be paid by it. */
  sent: { from: string; to: string; left: string }[];
}

export interface RestoredBooks {
  /** Real time of the backup, ms: no later. */
  since: number;
  /** The ledger's newest line in the backup; 0: none. */
  line: number;
  /** Once the chain was asked. */
  asked?: {
    /** Business time, ms. What was paid before may have been paid out, or given back, by those. */
    at: number;
    unknown: Unknown[];
    /** Outgoing rows of which the operator has said that they are to be sent. */
    resolved: string[];
  };
}

/**
 * In the transaction, or on the database, that nobody serves from yet. Again: as of the earlier backup.
 * @param since undefined: no node has run since it was marked before
 */
export async function markRestored(
  on: Pick<Client | Transaction, 'execute'>,
  since: number | undefined,
): Promise<void> {
  const { rows } = await on.execute(
    `SELECT value, 0 AS line FROM settings WHERE name = '${NAME}' UNION ALL SELECT NULL, coalesce(max(id), 0) FROM ledger`,
  );
  const [text] = rows.flatMap(({ value }) => (value === null ? [] : [String(value)]));
  const before = text === undefined ? undefined : (JSON.parse(text) as RestoredBooks);
  const line = Math.max(...rows.map(({ line }) => Number(line)));
  const times = [since, before?.since].filter((time) => time !== undefined);
  const kept: RestoredBooks = {
    since: times.length > 0 ? Math.min(...times) : 0,
    line: Math.min(line, before?.line ?? line),
  };
  await on.execute({
    sql: `INSERT INTO settings (name, value) VALUES ('${NAME}', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
    args: [JSON.stringify(kept)],
  });
}

export async function readRestored(db: Database): Promise<RestoredBooks | undefined> {
  const text = await readSetting(db, NAME);
  return text === undefined ? undefined : (JSON.parse(text) as RestoredBooks);
}

/** @returns the statement that keeps it */
export function savedRestored(db: Database, books: RestoredBooks): Statement {
  return savedSetting(db, NAME, JSON.stringify(books));
}
