/**
 * The rows of payments: how one is found, and changed together with what goes with that change. No row changes unless it
 * is as it was read.
 */
import type { Registry } from '../../registry/index.ts';
import { Books, type Statement } from '../../registry/payments/books.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { paidCallStatements, paymentQueries } from '../../registry/payments/statements.ts';
import type { Clock } from '../../shared/clock.ts';

export const FINAL: readonly PaymentRow['state'][] = ['answered', 'released', 'refund_owed', 'refunded'];

export class PaymentRows {
  readonly books: Books;
  readonly queries: ReturnType<typeof paymentQueries>;
  readonly statements: ReturnType<typeof paidCallStatements>;
  /** Which node of several this is. */
  readonly node: string | null;
  readonly #onFinal: (row: PaymentRow) => void;

  /** @param onFinal told of every payment that comes to a final state, after it is written */
  constructor(registry: Registry, clock: Clock, onFinal: (row: PaymentRow) => void = () => {}) {
    this.books = new Books(registry, clock);
    this.queries = paymentQueries(this.books);
    this.statements = paidCallStatements(registry);
    this.node = registry.node;
    this.#onFinal = onFinal;
  }

  now(): number {
    return this.books.now();
  }

  async byCredential(credentialId: string): Promise<PaymentRow | undefined> {
    return this.statements.byCredential({ credentialId });
  }

  async byId(id: string): Promise<PaymentRow | undefined> {
    return this.statements.byId({ id });
  }

  async update(row: PaymentRow, change: Partial<PaymentRow>, more: Statement[] = []): Promise<PaymentRow> {
    // Noted by the first transition of the capture, whichever it is.
    const captured = row.capturedBy === null ? {} : { capturedBy: row.capturedBy };
    const node = this.node === null ? {} : { node: this.node };
    const full = { ...change, ...captured, ...node, updatedAt: this.now() };
    await this.books.write([this.statements.update(row, full), ...more]);
    const next = { ...row, ...full };
    if (next.state !== row.state && FINAL.includes(next.state)) this.#onFinal(next);
    return next;
  }
}
