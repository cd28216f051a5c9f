/** What the ledger writes: the statements of a transaction, which the seal at its end refuses unless they balance. */

import { newId } from '../accounts/tokens.ts';
import type { Database, Statement } from '../environment.ts';

export interface Booking {
  kind: string;
  /** Unique for ever. */
  key: string;
  account: string;
  /** micro-USD. */
  amount: number;
  service: string | null;
  usage: string | null;
  requestId?: string | undefined;
  memo?: string | undefined;
}

/** Order in which grants are burned: priority, expiry (soonest first), promotional before paid, age. */
export const BURN_ORDER = 'g.priority, g.expires_at IS NULL, g.expires_at, g.promotional DESC, g.created_at, g.id';

/** ?1 transaction, ?2 amount, ?3 account, ?4 now. Takes what is there; the seal refuses if that is too little. */
const DEBIT_GRANTS = `INSERT INTO ledger_entries (transaction_id, account_id, amount)
  SELECT ?1, id, -min(balance, ?2 - before) FROM (
    SELECT a.id, a.balance, coalesce(sum(a.balance) OVER (
      ORDER BY ${BURN_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
    WHERE g.account = ?3 AND a.balance > 0 AND (g.expires_at IS NULL OR g.expires_at > ?4))
  WHERE before < ?2`;

/** ?1 account, ?2 now. */
export const AVAILABLE = `SELECT coalesce(sum(a.balance), 0) AS balance
  FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
  WHERE g.account = ?1 AND (g.expires_at IS NULL OR g.expires_at > ?2)`;

export class Postings {
  readonly #db: Database;
  readonly #now: () => number;

  /** @param now business time, ms */
  constructor(db: Database, now: () => number) {
    this.#db = db;
    this.#now = now;
  }

  /** @param entries of the transaction with that id; they must sum to zero */
  transaction(booking: Booking, entries: (transaction: string) => Statement[]): Statement[] {
    const id = newId('txn');
    const { kind, key, account, amount, service, usage, requestId, memo } = booking;
    return [
      this.#db
        .prepare(
          `INSERT INTO ledger_transactions (id, key, kind, account, service, amount, usage, request_id, memo, at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        )
        .bind(id, key, kind, account, service, amount, usage, requestId ?? null, memo ?? null, this.#now()),
      ...entries(id),
      this.#db.prepare('INSERT INTO ledger_seals (transaction_id) VALUES (?)').bind(id),
    ];
  }

  /** An account, where there is none yet. `source`: it may go below zero. */
  open(id: string, owner: string | null, source = false): Statement {
    return this.#db
      .prepare('INSERT INTO ledger_accounts (id, owner, source) VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
      .bind(id, owner, source ? 1 : 0);
  }

  entry(transaction: string, account: string, amount: number): Statement {
    return this.#db
      .prepare('INSERT INTO ledger_entries (transaction_id, account_id, amount) VALUES (?, ?, ?)')
      .bind(transaction, account, amount);
  }

  /** Both entries that take all that was held to another account. */
  move(transaction: string, hold: string, into: string): Statement {
    return this.#db
      .prepare(
        `INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT ?1, e.column1, e.column2 * t.amount
         FROM ledger_transactions t JOIN (VALUES (?2, -1), (?3, 1)) e WHERE t.key = ?2`,
      )
      .bind(transaction, `hold:${hold}`, into);
  }

  /** Entries that take an amount from an account's grants, as far as there is credit. */
  debit(transaction: string, account: string, amount: number): Statement {
    return this.#db.prepare(DEBIT_GRANTS).bind(transaction, amount, account, this.#now());
  }

  /** The entries of a hold the other way round. */
  undo(transaction: string, hold: string): Statement {
    return this.#db
      .prepare(
        `INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT ?1, e.account_id, -e.amount FROM ledger_entries e
         JOIN ledger_transactions t ON t.id = e.transaction_id WHERE t.key = ?2`,
      )
      .bind(transaction, `hold:${hold}`);
  }

  /** Asks for `balance`: the credit that can be spent now. */
  available(account: string): Statement {
    return this.#db.prepare(AVAILABLE).bind(account, this.#now());
  }
}
