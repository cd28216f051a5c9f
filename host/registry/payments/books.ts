/** The statements that go with a step of a payment: the ledger's lines, and what has to be sent because of it. */

import type { Clock } from '../../shared/clock.ts';
import { type Money, subtract, ZERO } from '../../shared/money.ts';
import type { Database, Registry } from '../index.ts';
import { type Builder, type BuiltStatement, built, inserts } from '../statements.ts';
import * as book from './book.ts';
import {
  type ChannelRow,
  ledger,
  type OutgoingKind,
  type OutgoingState,
  type PaymentRow,
  paymentOutgoing,
} from './schema.ts';

/** What of a lost charge its channel need not pay any more: all that no settlement took or may be taking just now. */
export function leftInChannel(channel: Pick<ChannelRow, 'state' | 'captured' | 'settled'>, lost: Money): Money {
  if (channel.state === 'closing') return ZERO;
  const left = channel.captured > channel.settled ? subtract(channel.captured, channel.settled) : ZERO;
  return left < lost ? left : lost;
}

export type Statement = Builder | BuiltStatement;

type Found = Awaited<ReturnType<Registry['client']['execute']>>;

/** What everything that writes payments shares: the database, the time, and the statements that go with a step. */
export class Books {
  readonly db: Database;
  readonly client: Registry['client'];
  /** Business time, ms. */
  readonly now: () => number;
  readonly #insertLines: (rows: (typeof ledger.$inferInsert)[]) => Statement;
  readonly #insertOutgoing: (rows: (typeof paymentOutgoing.$inferInsert)[]) => Statement;

  constructor({ db, client }: Pick<Registry, 'db' | 'client'>, clock: Pick<Clock, 'now'>) {
    this.db = db;
    this.client = client;
    this.now = () => clock.now();
    this.#insertLines = inserts(db, ledger);
    this.#insertOutgoing = inserts(db, paymentOutgoing);
  }

  /** All or nothing. @returns what each of them found */
  async write(statements: Statement[]): Promise<Found[]> {
    return statements.length > 0 ? await this.client.batch(statements.map(built)) : [];
  }

  lines(entries: book.Entry[]): Statement[] {
    const at = this.now();
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

  /** An answered payment's payouts become due: at once where the host holds its money, else as far as its channel paid. */
  due(row: PaymentRow): Statement {
    if (row.channel !== null) return this.dueOfChannel(row.channel);
    return {
      sql: `UPDATE payment_outgoing SET state = 'owed', covered = 1, updated_at = ? WHERE payment = ? AND state = 'waiting'`,
      args: [this.now(), row.id],
    };
  }

  /** Oldest first, as far as what the chain paid is not given to others. */
  dueOfChannel(channel: string): Statement {
    return {
      sql: `UPDATE payment_outgoing SET state = 'owed', covered = 1, updated_at = ? WHERE id IN (
        SELECT id FROM (
          SELECT o.id, sum(o.amount) OVER (ORDER BY o.created_at, o.id ROWS UNBOUNDED PRECEDING) AS total
          FROM payment_outgoing o JOIN payments p ON p.id = o.payment
          WHERE o.channel = ? AND o.state = 'waiting' AND (o.kind = 'refund' OR p.state = 'answered')) AS waiting
        WHERE total <= (SELECT settled - committed FROM payment_channels WHERE id = ?))`,
      args: [this.now(), channel, channel],
    };
  }

  outgoing(
    row: PaymentRow,
    kind: OutgoingKind,
    recipient: string,
    amount: Money,
    state: OutgoingState,
    suffix = '',
  ): Statement {
    const now = this.now();
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
