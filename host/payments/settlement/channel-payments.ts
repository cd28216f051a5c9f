/**
 * Payments out of a channel: what they hold of its vouchers, take of it, and leave to it again. Only the books change, no
 * chain. Each change names the channel as it was read.
 */
import * as book from '../../registry/payments/book.ts';
import { leftInChannel, type Statement } from '../../registry/payments/books.ts';
import type { ChannelRow, PaymentRow } from '../../registry/payments/schema.ts';
import { add, type Money, subtract, ZERO } from '../../shared/money.ts';
import { KeyedLock } from '../../shared/mutex.ts';
import type { KeptAnswers, StoredAnswer } from './kept-answers.ts';
import type { PaymentRows } from './payment-rows.ts';

export class ChannelPayments {
  readonly #rows: PaymentRows;
  readonly #kept: KeptAnswers;
  readonly #turns = new KeyedLock();

  constructor(rows: PaymentRows, kept: KeptAnswers) {
    this.#rows = rows;
    this.#kept = kept;
  }

  /** What a payment that begins holds of its channel. */
  reserve(
    { channel, authorized }: PaymentRow,
    now: number,
    voucher: { cumulative: Money; signature: string } | undefined,
  ): Statement[] {
    if (channel === null) return [];
    const amount = Number(authorized);
    if (!voucher) return [this.#rows.statements.reserve({ channel, amount, now })];
    const { signature } = voucher;
    const cumulative = Number(voucher.cumulative);
    return [
      this.#rows.statements.reserveByVoucher({ channel, amount, now, cumulative, signature }),
      this.#rows.statements.voucher({ channel, cumulative: voucher.cumulative, signature }),
    ];
  }

  /** More of its channel is held for work that goes on. @throws when the vouchers do not cover it (a CHECK of the database) */
  async extended(row: PaymentRow, by: Money): Promise<PaymentRow> {
    const hold = { channel: row.channel, amount: Number(by), now: this.#rows.now() };
    return this.#rows.update(row, { authorized: add(row.authorized, by) }, [this.#rows.statements.reserve(hold)]);
  }

  /**
   * The call succeeded.
   * @param receiptOf says what the channel has spent once this payment is in the books: no two say the same
   */
  async captured(
    row: PaymentRow,
    charged: Money,
    receiptOf: (channel: ChannelRow) => string,
    answer: StoredAnswer | undefined,
    state: 'settled' | 'answered',
  ): Promise<PaymentRow> {
    const { fee } = book.divide(charged, row.feeBps);
    const kept = await this.#kept.keep(row, answer);
    const { authorized } = row;
    return this.#asRead(row, (channel) => {
      const now = this.#rows.now();
      const receipt = receiptOf({ ...channel, captured: add(channel.captured, charged), units: channel.units + 1 });
      const { id, units } = channel;
      const sums = { authorized: Number(authorized), charged: Number(charged), captured: Number(channel.captured) };
      return this.#rows.update(
        row,
        { state, charged, fee, reference: row.channel, receipt, settledAt: now, credential: null, ...kept },
        [
          this.#rows.statements.capture({ channel: id, now, units, ...sums }),
          ...(charged === 0n ? [] : this.#rows.books.lines(book.captured(row, authorized, charged))),
          ...this.#rows.books.owed(row, charged, ZERO),
        ],
      );
    });
  }

  /** A change that depends on what a payment's channel is: made again where that has changed since it was read. */
  async #asRead(row: PaymentRow, change: (channel: ChannelRow) => Promise<PaymentRow>): Promise<PaymentRow> {
    const read = () => this.#rows.statements.channelById({ channel: row.channel });
    return this.#turns.run(row.channel ?? '', async () => {
      for (let channel = await read(); ; ) {
        if (!channel) throw new Error(`payment ${row.id} has no channel`);
        try {
          return await change(channel);
        } catch (error) {
          const now = await read();
          const isSame = (['state', 'settled', 'captured', 'units'] as const).every(
            (name) => now?.[name] === channel?.[name],
          );
          if (isSame) throw error;
          channel = now;
        }
      }
    });
  }

  /** What its channel was not made to pay yet is no longer owed; the rest is sent back once the chain has paid it. */
  async lost(row: PaymentRow, reason: string): Promise<PaymentRow> {
    const amount = row.charged ?? ZERO;
    return this.#asRead(row, (channel) => {
      const notTaken = leftInChannel(channel, amount);
      const back = subtract(amount, notTaken);
      const change: Partial<PaymentRow> =
        back === 0n
          ? { state: 'refunded', refunded: amount, error: reason, charged: ZERO, fee: ZERO }
          : { state: 'refund_owed', refunded: notTaken, error: reason };
      return this.#rows.update(row, { ...change, credential: null }, [
        this.#rows.queries.lessCaptured(channel, notTaken),
        ...(amount === 0n ? [] : this.#rows.books.lines(book.returned(row, amount, notTaken))),
        this.#rows.queries.waived(row.id, reason),
        ...(back === 0n
          ? []
          : [
              this.#rows.books.outgoing(row, 'refund', row.payer, back, 'waiting', 'lost'),
              this.#rows.books.dueOfChannel(channel.id),
            ]),
      ]);
    });
  }
}
