/** Session channels in the registry. What a channel owes is `captured`; `reserved` belongs to calls still at work. */

import { type Money, micro, subtract, ZERO } from '../../shared/money.ts';
import { and, eq, inArray, lte, sql } from '../drizzle.ts';
import { finds } from '../statements.ts';
import * as book from './book.ts';
import type { Books, Statement } from './books.ts';
import {
  type ChannelRow,
  isOpenOutgoing,
  isOpenPayment,
  paymentChannels,
  paymentOutgoing,
  payments,
  paymentVouchers,
} from './schema.ts';

export interface SignedAmount {
  cumulative: Money;
  signature: string;
}

export class ChannelStore {
  readonly #books: Books;
  readonly #byId: (values: { id: string }) => Promise<ChannelRow | undefined>;

  constructor(books: Books) {
    this.#books = books;
    this.#byId = finds(books, paymentChannels, eq(paymentChannels.id, sql.placeholder('id')));
  }

  async byId(id: string): Promise<ChannelRow | undefined> {
    return this.#byId({ id });
  }

  async inState(...states: ChannelRow['state'][]): Promise<ChannelRow[]> {
    return this.#books.db.select().from(paymentChannels).where(inArray(paymentChannels.state, states));
  }

  /** Noted before the payer's transaction is sent, so that a deposit is never forgotten. */
  async opening(
    channel: Pick<
      ChannelRow,
      'id' | 'asset' | 'payer' | 'payee' | 'signer' | 'descriptor' | 'escrow' | 'chainId' | 'openTransaction'
    >,
    voucher: SignedAmount,
  ): Promise<void> {
    const now = this.#books.now();
    const { db } = this.#books;
    await this.#books.write([
      db
        .insert(paymentChannels)
        .values({
          ...channel,
          state: 'opening',
          openHash: null,
          deposit: ZERO,
          voucher: voucher.cumulative,
          voucherSignature: voucher.signature,
          reserved: ZERO,
          captured: ZERO,
          units: 0,
          settled: ZERO,
          closeRequestedAt: 0,
          closeHash: null,
          error: null,
          createdAt: now,
          usedAt: now,
          settledAt: null,
        })
        .onConflictDoNothing(),
      db
        .insert(paymentVouchers)
        .values({ channel: channel.id, cumulative: voucher.cumulative, signature: voucher.signature })
        .onConflictDoNothing(),
    ]);
  }

  async opened(id: string, deposit: Money, hash: string | null): Promise<void> {
    await this.#set(id, { state: 'open', deposit, openHash: hash, error: null }, ['opening', 'failed']);
  }

  /** As `opening`, for a channel whose deposit went back and that its payer fills again; it owes nothing. */
  async reopening(id: string, voucher: SignedAmount): Promise<void> {
    const { state, captured, settled } = paymentChannels;
    const isOver = and(
      eq(paymentChannels.id, id),
      inArray(state, ['opening', 'closed', 'failed']),
      eq(captured, settled),
    );
    const change = {
      state: 'opening' as const,
      openHash: null,
      voucher: voucher.cumulative,
      voucherSignature: voucher.signature,
      closeRequestedAt: 0,
      closeHash: null,
      error: null,
      usedAt: this.#books.now(),
    };
    await this.#books.write([this.#books.db.update(paymentChannels).set(change).where(isOver)]);
  }

  async failed(id: string, error: string): Promise<void> {
    await this.#set(id, { state: 'failed', error }, ['opening']);
  }

  /**
   * Its payer took the deposit back. What waits for it is a person's to decide on: the money never came. Nothing changes
   * where the channel is not (any more) as it was read: then it was this host, at another node, that closed it.
   */
  async withdrawn({ id, state }: Pick<ChannelRow, 'id' | 'state'>): Promise<void> {
    const error = 'its payer took the deposit back';
    const { db } = this.#books;
    const isGone = sql`(SELECT state FROM payment_channels WHERE id = ${id}) = 'failed'`;
    const waiting = and(isOpenOutgoing, eq(paymentOutgoing.channel, id), eq(paymentOutgoing.state, 'waiting'), isGone);
    const updatedAt = this.#books.now();
    await this.#books.write([
      db
        .update(paymentChannels)
        .set({ state: 'failed', error })
        .where(and(eq(paymentChannels.id, id), eq(paymentChannels.state, state))),
      this.#books.dueOfChannel(id),
      db
        .update(paymentOutgoing)
        .set({ state: 'stuck', error: `the deposit never came: ${error}`, updatedAt })
        .where(and(waiting, inArray(paymentOutgoing.kind, ['payout', 'fee']))),
      // Who took everything back itself has its refund.
      db.update(paymentOutgoing).set({ state: 'waived', error, updatedAt }).where(waiting),
    ]);
  }

  /** @param settled what the chain has paid of it, maybe by a settlement that is not in these books (any more) */
  async chainState(
    id: string,
    { settled = 0n, ...state }: { deposit: Money; closeRequestedAt: number; openHash?: string; settled?: bigint },
  ): Promise<void> {
    await this.#set(id, {
      ...state,
      deposit: sql`max(deposit, ${Number(state.deposit)})` as unknown as Money,
      published: sql`max(published, ${Number(settled)})` as unknown as Money,
    });
  }

  /** A top-up was seen on the chain. It takes back the payer's request to close, if there was one. */
  async deposited(id: string, deposit: Money, hash?: string | null): Promise<void> {
    await this.chainState(id, { deposit, closeRequestedAt: 0, ...(hash ? { openHash: hash } : {}) });
  }

  /** A greater voucher replaces the one before. */
  async voucher(id: string, voucher: SignedAmount): Promise<void> {
    const { db } = this.#books;
    await this.#books.write([
      db
        .update(paymentChannels)
        .set({ voucher: voucher.cumulative, voucherSignature: voucher.signature, usedAt: this.#books.now() })
        .where(and(eq(paymentChannels.id, id), lte(paymentChannels.voucher, voucher.cumulative))),
      db
        .insert(paymentVouchers)
        .values({ channel: id, cumulative: voucher.cumulative, signature: voucher.signature })
        .onConflictDoNothing(),
    ]);
  }

  /** From here on no call can begin on it, and its `captured` does not shrink. */
  async closing(id: string): Promise<void> {
    await this.#set(id, { state: 'closing' }, ['opening', 'open', 'failed']);
  }

  /** Before a voucher is sent to the chain: from here on whoever shows it may have read it there. */
  async publishing(id: string, { cumulative }: Pick<SignedAmount, 'cumulative'>): Promise<void> {
    const published = sql`max(${paymentChannels.published}, ${Number(cumulative)})` as unknown as Money;
    await this.#set(id, { published });
  }

  /** What was captured for answers that are out. What still streams may have to be given back. */
  async answered(channel: ChannelRow): Promise<Money> {
    const [streaming] = await this.#books.db
      .select({ sum: sql<number>`coalesce(sum(${payments.charged}), 0)` })
      .from(payments)
      .where(and(isOpenPayment, eq(payments.channel, channel.id), eq(payments.state, 'settled')));
    return micro(channel.captured - BigInt(streaming?.sum ?? 0));
  }

  /**
   * The greatest voucher that asks for no more than was answered; presented by settlements that do not close. Of a greater
   * one, which everybody can read from then on, something would be left to spend.
   */
  async settleable(channel: ChannelRow): Promise<SignedAmount | undefined> {
    const answered = await this.answered(channel);
    const [row] = await this.#books.db
      .select()
      .from(paymentVouchers)
      .where(and(eq(paymentVouchers.channel, channel.id), lte(paymentVouchers.cumulative, answered)))
      .orderBy(sql`${paymentVouchers.cumulative} DESC`)
      .limit(1);
    return row && row.cumulative > channel.settled ? row : undefined;
  }

  /**
   * The chain moved what was captured up to `total` to the host; payouts that wait for it become due, oldest first. Books
   * that came back from a backup may know of less: then the chain has seen a greater voucher, which is not asked for again.
   */
  async settled(channel: ChannelRow, total: Money, reference: string, closed: boolean): Promise<void> {
    const amount = subtract(total, channel.settled);
    const { db } = this.#books;
    const now = this.#books.now();
    const change = {
      // What another node has settled meanwhile breaks the column's CHECK, and with it the whole transaction.
      settled:
        sql`CASE WHEN ${paymentChannels.settled} = ${Number(channel.settled)} THEN CAST(${Number(total)} AS BIGINT) ELSE -1 END` as unknown as Money,
      captured: sql`max(${paymentChannels.captured}, ${Number(total)})` as unknown as Money,
      voucher: sql`max(${paymentChannels.voucher}, ${Number(total)})` as unknown as Money,
      published: sql`max(${paymentChannels.published}, ${Number(total)})` as unknown as Money,
      settledAt: now,
      ...(closed ? { state: 'closed' as const, closeHash: reference, error: null } : {}),
    };
    const statements: Statement[] = [db.update(paymentChannels).set(change).where(eq(paymentChannels.id, channel.id))];
    if (amount > 0n) {
      const { id, payer, asset } = channel;
      statements.push(
        ...this.#books.lines(book.channelSettled({ channel: id, payer, asset, amount, total, reference })),
      );
    }
    statements.push(
      this.#books.dueOfChannel(channel.id),
      db
        .delete(paymentVouchers)
        .where(and(eq(paymentVouchers.channel, channel.id), lte(paymentVouchers.cumulative, total))),
    );
    await this.#books.write(statements);
  }

  /** After a crash: what is reserved is what open payments hold. */
  async recountReserved(): Promise<void> {
    const { db } = this.#books;
    await this.#books.write([
      db.update(paymentChannels).set({
        reserved: sql`(SELECT coalesce(sum(authorized), 0) FROM payments
          WHERE payments.channel = payment_channels.id AND ${isOpenPayment} AND payments.state IN ('verified', 'working'))`,
      }),
    ]);
  }

  /** @param from the states that it changes; another node may have changed it already */
  async #set(id: string, change: Partial<ChannelRow>, from?: ChannelRow['state'][]): Promise<void> {
    const isAsRead = from && inArray(paymentChannels.state, from);
    await this.#books.write([
      this.#books.db
        .update(paymentChannels)
        .set(change)
        .where(and(eq(paymentChannels.id, id), isAsRead)),
    ]);
  }
}

export const atomic = (value: bigint): Money => micro(value);
