/** Things that bind or happen once: Idempotency-Keys and single-use claims; and forgetting what is old. */
import { and, eq, isNotNull, lt } from '../drizzle.ts';
import { readSetting, savedSetting } from '../settings.ts';
import type { Books } from './books.ts';
import { type PaymentRow, paymentClaims, paymentKeys, payments } from './schema.ts';

const FORGOTTEN = 'claims-forgotten-until';
/** So long after they expired: a clock that was an hour ahead must not refuse what is good now, ms. */
const KEEP_CLAIMS_MS = 24 * 3_600_000;

export class PaymentKeys {
  readonly #books: Books;
  #forgotten: number | undefined;

  constructor(books: Books) {
    this.#books = books;
  }

  /** Binds an Idempotency-Key to a payment; a key of a released payment is taken over. */
  async bindKey(key: string, payment: string): Promise<void> {
    await this.#books.db
      .insert(paymentKeys)
      .values({ key, payment, createdAt: this.#books.now() })
      .onConflictDoUpdate({ target: paymentKeys.key, set: { payment } });
  }

  async byKey(key: string): Promise<PaymentRow | undefined> {
    const [found] = await this.#books.db
      .select()
      .from(paymentKeys)
      .innerJoin(payments, eq(payments.id, paymentKeys.payment))
      .where(eq(paymentKeys.key, key));
    return found?.payments;
  }

  /**
   * @param expiresAt until when the key would be good, real time, ms
   * @returns whether this is the first claim of the key; false, too, for one that may have been forgotten since
   */
  async claim(key: string, expiresAt: number): Promise<boolean> {
    if (expiresAt <= (await this.#forgottenUntil())) return false;
    const result = await this.#books.db.insert(paymentClaims).values({ key, expiresAt }).onConflictDoNothing();
    return result.rowsAffected === 1;
  }

  /** Claims that expired before this were forgotten: a clock that is set back must not make them new. */
  async #forgottenUntil(): Promise<number> {
    if (this.#forgotten === undefined) {
      this.#forgotten = Number((await readSetting(this.#books.db, FORGOTTEN)) ?? 0);
    }
    return this.#forgotten;
  }

  /**
   * Forgets answers older than `answersMs` and claims that cannot matter any more.
   * @param now trusted business time, ms
   * @param highest real time that is over for good, ms
   */
  async sweep(answersMs: number, now: number, highest: number): Promise<void> {
    const forgotten = Math.max(await this.#forgottenUntil(), highest - KEEP_CLAIMS_MS);
    await this.#books.write([
      this.#books.db
        .update(payments)
        .set({ answerBody: null, answerComplete: false })
        .where(
          and(isNotNull(payments.answerBody), lt(payments.updatedAt, now - answersMs), eq(payments.state, 'answered')),
        ),
      this.#books.db.delete(paymentClaims).where(lt(paymentClaims.expiresAt, forgotten)),
      savedSetting(this.#books.db, FORGOTTEN, String(forgotten)),
    ]);
    this.#forgotten = forgotten;
  }
}
