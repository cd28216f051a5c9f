/** The statements that go with a step of a payment: the ledger's lines, and what has to be sent because of it. */
import type { Database } from '../../registry/index.ts';
import {
  ledger,
  type OutgoingKind,
  type OutgoingState,
  type PaymentRow,
  paymentOutgoing,
} from '../../registry/schema/payments.ts';
import { inserts } from '../../registry/statements.ts';
import { type Money, subtract } from '../../shared/money.ts';
import * as book from '../ledger/book.ts';
import type { Statement } from './store.ts';

export class Postings {
  readonly #now: () => number;
  readonly #insertLines: (rows: (typeof ledger.$inferInsert)[]) => Statement;
  readonly #insertOutgoing: (rows: (typeof paymentOutgoing.$inferInsert)[]) => Statement;

  constructor(db: Database, now: () => number) {
    this.#now = now;
    this.#insertLines = inserts(db, ledger);
    this.#insertOutgoing = inserts(db, paymentOutgoing);
  }

  lines(entries: book.Entry[]): Statement[] {
    const at = this.#now();
    return entries.length === 0 ? [] : [this.#insertLines(entries.map((entry) => ({ ...entry, at })))];
  }

  /** The columns and statements that divide what was settled. */
  capture(row: PaymentRow, authorized: Money, charged: Money) {
    if (row.custody === 'direct') return { columns: { charged }, statements: [] };
    const { fee } = book.divide(charged, row.feeBps);
    return {
      columns: { charged, fee },
      statements: [
        ...this.lines(book.captured(row, authorized, charged)),
        ...this.owed(row, charged, subtract(authorized, charged)),
      ],
    };
  }

  /** Payouts wait until the whole answer is out (or the channel was settled): until then they may have to go back. */
  owed(row: PaymentRow, charged: Money, rest: Money): Statement[] {
    const { payee, fee } = book.divide(charged, row.feeBps);
    return [
      ...(payee > 0n ? [this.outgoing(row, 'payout', row.payTo, payee, 'waiting')] : []),
      ...(fee > 0n ? [this.outgoing(row, 'fee', '', fee, 'waiting')] : []),
      ...(rest > 0n ? [this.outgoing(row, 'refund', row.payer, rest, 'owed')] : []),
    ];
  }

  outgoing(
    row: PaymentRow,
    kind: OutgoingKind,
    recipient: string,
    amount: Money,
    state: OutgoingState,
    suffix = '',
  ): Statement {
    const now = this.#now();
    return this.#insertOutgoing([
      {
        id: `${row.id.replace('pay_', 'out_')}-${kind}${suffix === '' ? '' : `-${suffix}`}`,
        payment: row.id,
        kind,
        asset: row.asset,
        source: row.recipient,
        recipient,
        amount,
        state,
        channel: row.channel,
        transfer: null,
        attempts: 0,
        error: null,
        createdAt: now,
        updatedAt: now,
      },
    ]);
  }
}
