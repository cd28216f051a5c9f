/** Things that bind or happen once: Idempotency-Keys and single-use claims; and forgetting what is old. */
import { and, eq, isNotNull, lt, lte, sql } from '../drizzle.ts';
import { readSetting, savedSetting } from '../settings.ts';
import type { Books, Statement } from './books.ts';
import { type PaymentRow, paymentClaims, paymentKeys, payments } from './schema.ts';

const FORGOTTEN = 'claims-forgotten-until';
/** So long after they expired: a clock that is an hour ahead must not refuse what is good now, ms. */
const KEEP_CLAIMS_MS = 24 * 3_600_000;

/**
 * The statement that binds an Idempotency-Key to a payment; a key of a released payment is taken over. Another payment's
 * breaks NOT NULL, and with it the whole transaction.
 */
export function boundKey({ db, now }: Books, key: string, payment: string): Statement {
  const isFree = sql`${paymentKeys.payment} = ${payment}
    OR (SELECT state FROM payments WHERE id = ${paymentKeys.payment}) = 'released'`;
  return db
    .insert(paymentKeys)
    .values({ key, payment, createdAt: now() })
    .onConflictDoUpdate({
      target: paymentKeys.key,
      set: { payment: sql`CASE WHEN ${isFree} THEN excluded.payment END` },
    });
}

export class PaymentKeys {
  readonly #books: Books;

  constructor(books: Books) {
    this.#books = books;
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

  async isClaimed(key: string): Promise<boolean> {
    const found = await this.#books.db
      .select({ key: paymentClaims.key })
      .from(paymentClaims)
      .where(eq(paymentClaims.key, key));
    return found.length > 0;
  }

  /** Claims that expired before this were forgotten: a clock that is set back must not make them new. */
  async #forgottenUntil(): Promise<number> {
    return Number((await readSetting(this.#books.db, FORGOTTEN)) ?? 0);
  }

  /**
   * Forgets answers older than `answersMs` and claims that cannot matter any more.
   * @param now trusted business time, ms
   * @param over real time that is over for good, ms
   */
  async sweep(answersMs: number, now: number, over: number): Promise<void> {
    // Only what was forgotten can come back: a clock that was a year ahead must not refuse all that is made in that year.
    const { expiresAt } = paymentClaims;
    const old = this.#books.db.select({ last: sql`max(${expiresAt})` }).from(paymentClaims);
    const [oldest] = await old.where(lt(expiresAt, over - KEEP_CLAIMS_MS));
    const forgotten = Math.max(await this.#forgottenUntil(), Number(oldest?.last ?? 0));
    await this.#books.write([
      this.#books.db
        .update(payments)
        .set({ answerBody: null, answerComplete: false })
        .where(
          and(isNotNull(payments.answerBody), lt(payments.updatedAt, now - answersMs), eq(payments.state, 'answered')),
        ),
      this.#books.db.delete(paymentClaims).where(lte(expiresAt, forgotten)),
      savedSetting(this.#books.db, FORGOTTEN, String(forgotten)),
    ]);
  }
}
