/** Things that bind or happen once: Idempotency-Keys and single-use claims; and forgetting what is old. */
import { and, eq, isNotNull, lt } from '../../registry/drizzle.ts';
import { type PaymentRow, paymentClaims, paymentKeys, payments } from '../../registry/schema/payments.ts';
import type { PaymentStore } from './store.ts';

export class PaymentKeys {
  readonly #store: PaymentStore;

  constructor(store: PaymentStore) {
    this.#store = store;
  }

  /** Binds an Idempotency-Key to a payment; a key of a released payment is taken over. */
  async bindKey(key: string, payment: string): Promise<void> {
    await this.#store.db
      .insert(paymentKeys)
      .values({ key, payment, createdAt: this.#store.now() })
      .onConflictDoUpdate({ target: paymentKeys.key, set: { payment } });
  }

  async byKey(key: string): Promise<PaymentRow | undefined> {
    const [found] = await this.#store.db
      .select()
      .from(paymentKeys)
      .innerJoin(payments, eq(payments.id, paymentKeys.payment))
      .where(eq(paymentKeys.key, key));
    return found?.payments;
  }

  /** @returns whether this is the first claim of the key */
  async claim(key: string, expiresAt: number): Promise<boolean> {
    const result = await this.#store.db.insert(paymentClaims).values({ key, expiresAt }).onConflictDoNothing();
    return result.rowsAffected === 1;
  }

  /** Forgets answers older than `answersMs` and claims that cannot matter any more. */
  async sweep(answersMs: number): Promise<void> {
    await this.#store.answers.sweep(answersMs);
    await this.#store.write([
      this.#store.db
        .update(payments)
        .set({ answerBody: null, answerComplete: false })
        .where(
          and(
            isNotNull(payments.answerBody),
            lt(payments.updatedAt, this.#store.now() - answersMs),
            eq(payments.state, 'answered'),
          ),
        ),
      this.#store.db.delete(paymentClaims).where(lt(paymentClaims.expiresAt, Date.now())),
    ]);
  }
}
