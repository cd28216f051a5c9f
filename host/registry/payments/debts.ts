/**
 * What tenants owe to payers: a lost answer that was paid straight to the tenant's wallet. It is held back from what the
 * host collects for that tenant later; meanwhile all that the tenant sells is collected, so that there is something to
 * hold back. The operator's own money never pays it.
 */

import { type Money, subtract } from '../../shared/money.ts';
import { and, asc, eq, isNotNull, sql } from '../drizzle.ts';
import * as book from './book.ts';
import type { Books } from './books.ts';
import { isOpenOutgoing, type OutgoingRow, paymentOutgoing, payments } from './schema.ts';

const isDebt = and(isOpenOutgoing, eq(paymentOutgoing.state, 'waiting'), isNotNull(paymentOutgoing.debtor));

export class Debts {
  readonly #books: Books;
  readonly #onChange: () => void;
  #debtors = new Set<string>();

  /** @param onChange a tenant has debts now, or has none any more */
  constructor(books: Books, onChange: () => void) {
    this.#books = books;
    this.#onChange = onChange;
  }

  owes(tenant: string): boolean {
    return this.#debtors.has(tenant);
  }

  async load(): Promise<void> {
    const rows = await this.#open();
    const debtors = new Set(rows.map(({ debtor }) => debtor ?? ''));
    const same = debtors.size === this.#debtors.size && [...debtors].every((one) => this.#debtors.has(one));
    this.#debtors = debtors;
    if (!same) this.#onChange();
  }

  /** The wallet that these are to go back from is the tenant's, not the host's. */
  async note(rows: OutgoingRow[]): Promise<void> {
    const { db } = this.#books;
    await this.#books.write(
      rows.map(({ id, payment, source }) =>
        db
          .update(paymentOutgoing)
          .set({
            state: 'waiting',
            debtor: sql`(SELECT coalesce(tenant, pay_to) FROM payments WHERE id = ${payment})` as unknown as string,
            error: `the tenant’s wallet ${source} received it and owes it: it is held back from the tenant’s later revenue`,
            updatedAt: this.#books.now(),
          })
          .where(eq(paymentOutgoing.id, id)),
      ),
    );
    await this.load();
  }

  /** Payouts that are due to debtors go to whom they owe, oldest debts first. Nothing is being sent meanwhile. */
  async withhold(): Promise<void> {
    if (this.#debtors.size === 0) return;
    for (const debt of await this.#open()) {
      let left = subtract(debt.amount, debt.withheld);
      for (const payout of await this.#due(debt)) {
        if (left === 0n) break;
        const part = smaller(payout.amount, left);
        await this.#move({ ...debt, withheld: subtract(debt.amount, left) }, payout, part, part === left);
        left = subtract(left, part);
      }
    }
    await this.load();
  }

  async #move(debt: OutgoingRow, payout: OutgoingRow, part: Money, isWhole: boolean): Promise<void> {
    const { db } = this.#books;
    const updatedAt = this.#books.now();
    const isWaived = part === payout.amount;
    const change: Partial<OutgoingRow> = isWaived
      ? { state: 'waived', error: `held back for ${debt.id}, which the tenant owes` }
      : {};
    // A write whose answer was lost may happen late: what is not (any more) as it was read breaks NOT NULL.
    const { state, amount, withheld: before } = paymentOutgoing;
    const left = isWaived ? sql`${amount}` : sql`${amount} - ${Number(part)}`;
    const rest = sql`CASE WHEN ${state} = 'owed' AND ${amount} = ${Number(payout.amount)} THEN ${left} END`;
    const withheld = sql`CASE WHEN ${before} = ${Number(debt.withheld)} THEN ${before} + ${Number(part)} END`;
    const paid: Partial<OutgoingRow> = isWhole
      ? { state: 'owed', covered: true, source: payout.source, attempts: 0, error: null }
      : {};
    await this.#books.write([
      db
        .update(paymentOutgoing)
        .set({ ...change, amount: rest as unknown as Money, updatedAt })
        .where(eq(paymentOutgoing.id, payout.id)),
      db
        .update(paymentOutgoing)
        .set({ withheld: withheld as unknown as Money, updatedAt })
        .where(eq(paymentOutgoing.id, debt.id)),
      ...(isWhole ? [db.update(paymentOutgoing).set(paid).where(eq(paymentOutgoing.id, debt.id))] : []),
      ...this.#books.lines(book.heldBack(debt, payout, part)),
    ]);
  }

  #open(): Promise<OutgoingRow[]> {
    return this.#books.db
      .select()
      .from(paymentOutgoing)
      .where(isDebt)
      .orderBy(asc(paymentOutgoing.createdAt), asc(paymentOutgoing.id));
  }

  async #due({ debtor, asset }: OutgoingRow): Promise<OutgoingRow[]> {
    const rows = await this.#books.db
      .select({ row: paymentOutgoing })
      .from(paymentOutgoing)
      .innerJoin(payments, eq(payments.id, paymentOutgoing.payment))
      .where(
        and(
          isOpenOutgoing,
          eq(paymentOutgoing.state, 'owed'),
          eq(paymentOutgoing.kind, 'payout'),
          eq(paymentOutgoing.asset, asset),
          eq(payments.tenant, debtor ?? ''),
        ),
      )
      .orderBy(asc(paymentOutgoing.createdAt));
    return rows.map(({ row }) => row);
  }
}

function smaller(a: Money, b: Money): Money {
  if (a < b) return a;
  return b;
}
