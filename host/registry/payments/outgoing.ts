/** What the host has to send, and the transactions that send it. */
import { type Money, micro } from '../../shared/money.ts';
import { and, asc, eq, inArray, isNotNull, lt, notInArray, or, sql } from '../drizzle.ts';
import type { Books, Statement } from './books.ts';
import {
  isOpenOutgoing,
  ledger,
  type OutgoingRow,
  type PaymentRow,
  paymentOutgoing,
  payments,
  paymentTransfers,
} from './schema.ts';

type Transfer = typeof paymentTransfers.$inferSelect;

export class OutgoingStore {
  readonly #books: Books;

  constructor(books: Books) {
    this.#books = books;
  }

  async byId(id: string): Promise<OutgoingRow | undefined> {
    const [row] = await this.#books.db.select().from(paymentOutgoing).where(eq(paymentOutgoing.id, id));
    return row;
  }

  /**
   * What may be sent now, oldest first.
   * @param minPayout by recipient and not by row: many small ones make a payout. Refunds go whatever they are
   * @param longestWaitMs a payout below the least one is sent after it
   */
  async due(
    kinds: readonly OutgoingRow['kind'][],
    maxAttempts: number,
    minPayout: Money,
    longestWaitMs: number,
  ): Promise<OutgoingRow[]> {
    const { kind, asset, source, recipient } = paymentOutgoing;
    const isEnough = sql`(${kind} = 'refund' OR (${kind}, ${asset}, ${source}, ${recipient}) IN (
      SELECT kind, asset, source, recipient FROM payment_outgoing
      WHERE state NOT IN ('sent', 'waived') AND state = 'owed' AND kind IN ('payout', 'fee')
      GROUP BY kind, asset, source, recipient
      HAVING sum(amount) >= ${Number(minPayout)} OR min(created_at) <= ${this.#books.now() - longestWaitMs}))`;
    return this.#books.db
      .select()
      .from(paymentOutgoing)
      .where(
        and(
          isOpenOutgoing,
          eq(paymentOutgoing.state, 'owed'),
          inArray(paymentOutgoing.kind, [...kinds]),
          lt(paymentOutgoing.attempts, maxAttempts),
          minPayout > 0n ? isEnough : undefined,
        ),
      )
      .orderBy(asc(paymentOutgoing.createdAt))
      .limit(500);
  }

  /** All that is owed, oldest first, with what it was paid for. */
  async owed(): Promise<{ row: OutgoingRow; payment: Pick<PaymentRow, 'createdAt' | 'payTo'> }[]> {
    return this.#books.db
      .select({ row: paymentOutgoing, payment: { createdAt: payments.createdAt, payTo: payments.payTo } })
      .from(paymentOutgoing)
      .innerJoin(payments, eq(payments.id, paymentOutgoing.payment))
      .where(and(isOpenOutgoing, eq(paymentOutgoing.state, 'owed')))
      .orderBy(asc(paymentOutgoing.createdAt), asc(paymentOutgoing.id));
  }

  /** What needs the operator or is on its way. */
  async open(): Promise<OutgoingRow[]> {
    return this.#books.db
      .select()
      .from(paymentOutgoing)
      .where(
        and(
          isOpenOutgoing,
          or(inArray(paymentOutgoing.state, ['owed', 'sending', 'stuck']), isNotNull(paymentOutgoing.debtor)),
        ),
      )
      .orderBy(asc(paymentOutgoing.createdAt));
  }

  /** Channels that something depends on which nobody has paid or waived. */
  async unpaidChannels(): Promise<Set<string | null>> {
    const rows = await this.#books.db
      .selectDistinct({ channel: paymentOutgoing.channel })
      .from(paymentOutgoing)
      .where(notInArray(paymentOutgoing.state, ['sent', 'waived']));
    return new Set(rows.map(({ channel }) => channel));
  }

  /** What a tenant owes to payers, less what was held back for it. */
  async debt(tenant: string): Promise<Money> {
    const [row] = await this.#books.db
      .select({ sum: sql<number>`coalesce(sum(amount - withheld), 0)` })
      .from(paymentOutgoing)
      .where(and(eq(paymentOutgoing.debtor, tenant), eq(paymentOutgoing.state, 'waiting')));
    return micro(row?.sum ?? 0);
  }

  /** The wallet that holds what was held back for a debt. @throws Error when nothing was held back */
  async holderOf(debt: string): Promise<string> {
    const [row] = await this.#books.db
      .select({ source: paymentOutgoing.source })
      .from(ledger)
      .innerJoin(paymentOutgoing, eq(ledger.txn, sql`${debt} || ':held:' || ${paymentOutgoing.id}`))
      .limit(1);
    if (!row) throw new Error(`nothing was held back for ${debt}`);
    return row.source;
  }

  /** @returns the statement that changes these rows */
  changed(rows: readonly Pick<OutgoingRow, 'id'>[], change: Partial<OutgoingRow>): Statement {
    const ids = rows.map(({ id }) => id);
    return this.#books.db
      .update(paymentOutgoing)
      .set({ ...change, updatedAt: this.#books.now() })
      .where(inArray(paymentOutgoing.id, ids));
  }

  /**
   * @param rows of one number of attempts
   * @returns the statement that gives them to a transfer. One that is not (any more) as it was read breaks NOT NULL, and
   *   with it the whole transaction
   */
  given(rows: readonly OutgoingRow[], transfer: string): Statement {
    const { state, attempts } = paymentOutgoing;
    const ids = sql.join(
      rows.map(({ id }) => sql`${id}`),
      sql`, `,
    );
    const total = rows.reduce((sum, { amount }) => sum + Number(amount), 0);
    const isAsRead = sql`${state} = 'owed' AND ${attempts} = ${rows[0]?.attempts ?? 0}
      AND (SELECT sum(o.amount) FROM payment_outgoing o WHERE o.id IN (${ids})) = ${total}`;
    const same = sql`CASE WHEN ${isAsRead} THEN ${attempts} END` as unknown as number;
    return this.changed(rows, { state: 'sending', transfer, attempts: same });
  }

  /**
   * @param from the state that it was read in
   * @returns the statement that notes a failed attempt, unless there was another change
   */
  failed({ id, attempts }: OutgoingRow, from: OutgoingRow['state'], change: Partial<OutgoingRow>): Statement {
    const isAsRead = and(eq(paymentOutgoing.state, from), eq(paymentOutgoing.attempts, attempts));
    return this.#books.db
      .update(paymentOutgoing)
      .set({ ...change, attempts: attempts + 1, transfer: null, updatedAt: this.#books.now() })
      .where(and(eq(paymentOutgoing.id, id), isAsRead));
  }

  /** Transfers that were signed, whose outcome is not known. */
  async sending(): Promise<Transfer[]> {
    return this.#books.db.select().from(paymentTransfers).where(eq(paymentTransfers.state, 'sending'));
  }

  /** What a transfer sends. */
  async ofTransfer(transfer: string): Promise<OutgoingRow[]> {
    return this.#books.db.select().from(paymentOutgoing).where(eq(paymentOutgoing.transfer, transfer));
  }

  /** @returns the statement that notes a signed transfer */
  signed(transfer: Omit<Transfer, 'state' | 'createdAt'>): Statement {
    return this.#books.db
      .insert(paymentTransfers)
      .values({ ...transfer, state: 'sending', createdAt: this.#books.now() });
  }

  /** @returns the statement that notes what became of a transfer */
  ended(transfer: string, state: 'sent' | 'failed'): Statement {
    return this.#books.db.update(paymentTransfers).set({ state }).where(eq(paymentTransfers.id, transfer));
  }

  /** @returns the statement that notes on its payment that this refund arrived */
  refunded({ id, payment, amount }: OutgoingRow, { state }: PaymentRow): Statement {
    const refunded = sql`${payments.refunded} + ${Number(amount)}`;
    // Several refunds of one payment may go out at once; it is refunded when what was lost has gone back.
    const change = state === 'refund_owed' && id.endsWith('-lost') ? { state: 'refunded' as const } : {};
    return this.#books.db
      .update(payments)
      .set({ refunded, ...change })
      .where(eq(payments.id, payment));
  }
}
