/** What calls that are charged while they go on have cost so far. Written before a handler hears that it was noted. */
import { type Money, ZERO } from '../../shared/money.ts';
import { and, eq, sql } from '../drizzle.ts';
import type { Books } from './books.ts';
import { type PaymentRow, paymentMeters } from './schema.ts';

type Metered = Pick<PaymentRow, 'id' | 'attempts'>;

export class Meters {
  readonly #books: Books;

  constructor(books: Books) {
    this.#books = books;
  }

  /** @param total of the whole call; one that is less than what was noted changes nothing */
  async note({ id, attempts }: Metered, total: Money): Promise<void> {
    const { attempt, total: noted } = paymentMeters;
    await this.#books.write([
      this.#books.db
        .insert(paymentMeters)
        .values({ payment: id, attempt: attempts, total })
        .onConflictDoUpdate({
          target: paymentMeters.payment,
          set: {
            attempt: attempts,
            total: sql`CASE WHEN ${attempt} = ${attempts} THEN max(${noted}, ${Number(total)}) ELSE ${Number(total)} END`,
          },
        }),
    ]);
  }

  /** @returns 0 where nothing was noted of this attempt */
  async totalOf({ id, attempts }: Metered): Promise<Money> {
    const [row] = await this.#books.db
      .select()
      .from(paymentMeters)
      .where(and(eq(paymentMeters.payment, id), eq(paymentMeters.attempt, attempts)));
    return row?.total ?? ZERO;
  }

  /** The payment is final. */
  async forget({ id }: Pick<PaymentRow, 'id'>): Promise<void> {
    await this.#books.write([this.#books.db.delete(paymentMeters).where(eq(paymentMeters.payment, id))]);
  }
}
