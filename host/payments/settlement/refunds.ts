/** What a payer paid for work that was lost goes back. */
import * as book from '../../registry/payments/book.ts';
import type { Statement } from '../../registry/payments/books.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { ZERO } from '../../shared/money.ts';
import type { ChannelPayments } from './channel-payments.ts';
import type { PaymentRows } from './payment-rows.ts';

export class Refunds {
  readonly #rows: PaymentRows;
  readonly #channels: ChannelPayments;

  constructor(rows: PaymentRows, channels: ChannelPayments) {
    this.#rows = rows;
    this.#channels = channels;
  }

  /**
   * Settled, but the work was lost: what the payer paid has to go back. Only what was not answered can be lost: a payout
   * may be on its way for everything else.
   */
  async owe(given: PaymentRow, reason: string): Promise<PaymentRow> {
    const row = (await this.#rows.byId(given.id)) ?? given;
    if (row.state !== 'settled') return row;
    if (row.custody === 'channel') return this.#channels.lost(row, reason);
    const back = row.charged ?? row.authorized;
    const statements: Statement[] = [];
    if (row.custody === 'collected') {
      if (row.charged === null) statements.push(...this.#rows.books.lines(book.captured(row, row.authorized, ZERO)));
      else if (row.charged > 0n)
        statements.push(
          ...this.#rows.books.lines(book.returned(row, row.charged, ZERO)),
          this.#rows.queries.waived(row.id, reason),
        );
    }
    if (back > 0n) statements.push(this.#rows.books.outgoing(row, 'refund', row.payer, back, 'owed', 'lost'));
    return this.#rows.update(row, { state: 'refund_owed', error: reason, credential: null }, statements);
  }
}
