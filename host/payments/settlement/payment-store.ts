/**
 * Payments in the registry, from their beginning to their end. Each method is one transition and one transaction: the row,
 * the ledger's lines and what has to be sent are written together or not at all. Callers hold the payment's lock.
 */
import { randomBytes } from 'node:crypto';
import type { Registry } from '../../registry/index.ts';
import type { Leases } from '../../registry/leases.ts';
import * as book from '../../registry/payments/book.ts';
import { boundKey } from '../../registry/payments/keys.ts';
import { Meters } from '../../registry/payments/meters.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { type Found, foundBeside, type Part, takes } from '../../registry/payments/shares.ts';
import type { Clock } from '../../shared/clock.ts';
import { type Money, ZERO } from '../../shared/money.ts';
import { takesParts } from '../methods/index.ts';
import type { Answers } from './answers.ts';
import { ChannelPayments } from './channel-payments.ts';
import { KeptAnswers, type StoredAnswer } from './kept-answers.ts';
import { PaymentRows } from './payment-rows.ts';
import { Refunds } from './refunds.ts';

export const OPEN_STATES = ['verified', 'working', 'settling', 'settled'] as const;

export type NewPayment = Omit<
  PaymentRow,
  | 'charged'
  | 'fee'
  | 'refunded'
  | 'state'
  | 'prepared'
  | 'pendingSince'
  | 'reference'
  | 'receipt'
  | 'answerStatus'
  | 'answerHeaders'
  | 'answerBody'
  | 'answerComplete'
  | 'clientGone'
  | 'attempts'
  | 'error'
  | 'createdAt'
  | 'updatedAt'
  | 'settledAt'
  | 'capturedBy'
  | 'node'
>;

export function newPaymentId(): string {
  return `pay_${randomBytes(15).toString('base64url')}`;
}

export class PaymentStore extends PaymentRows {
  readonly answers: Answers;
  readonly leases: Leases;
  readonly meters: Meters;
  readonly kept: KeptAnswers;
  readonly channel: ChannelPayments;
  readonly refunds: Refunds;

  constructor(registry: Registry, clock: Clock, answers: Answers, onFinal?: (row: PaymentRow) => void) {
    super(registry, clock, onFinal);
    this.answers = answers;
    this.leases = registry.leases;
    this.meters = new Meters(this.books);
    this.kept = new KeptAnswers(answers);
    this.channel = new ChannelPayments(this, this.kept);
    this.refunds = new Refunds(this, this.channel);
  }

  /** There may be other nodes. */
  get hasOthers(): boolean {
    return this.node !== null;
  }

  /** What this node is at work on, or a crash left between two states, oldest first. */
  async open(): Promise<PaymentRow[]> {
    return this.queries.inStates(OPEN_STATES, this.node);
  }

  /** What nodes that have ended left between two states is this one's from here on. */
  async takeOver(): Promise<void> {
    if (this.node !== null) await this.queries.takeOver(this.node);
  }

  /** Whether another node is at work on it: it is nobody else's until that node has ended. */
  isElsewhere(row: PaymentRow): boolean {
    return row.node !== this.node && OPEN_STATES.some((state) => state === row.state) && !isTenants(row);
  }

  /**
   * A verified credential starts (or starts again, after it was released) to be worked on.
   * @param prepared what a recovery needs to finish the work
   * @param key an Idempotency-Key that it is begun under
   * @param shares what it uses up that others may, too; `found` gets what they do, at whichever node
   * @throws when the channel does not cover it (a CHECK of the database), and when the credential or the key is at work
   *   in another process (UNIQUE, NOT NULL)
   */
  async begin(
    payment: NewPayment,
    state: 'verified' | 'working',
    previous: PaymentRow | undefined,
    voucher?: { cumulative: Money; signature: string },
    key?: string,
    shares?: { parts: readonly Part[]; found?: Found },
  ): Promise<PaymentRow> {
    const now = this.now();
    const fresh = {
      ...payment,
      state,
      charged: null,
      fee: ZERO,
      refunded: ZERO,
      prepared: null,
      pendingSince: null,
      reference: null,
      receipt: null,
      answerStatus: null,
      answerHeaders: null,
      answerBody: null,
      answerComplete: false,
      clientGone: false,
      error: null,
      updatedAt: now,
      settledAt: null,
      capturedBy: null,
      node: this.node,
    };
    const again = previous?.state === 'released' ? previous : undefined;
    const row: PaymentRow = again
      ? { ...fresh, id: again.id, attempts: again.attempts + 1, createdAt: again.createdAt }
      : { ...fresh, attempts: 1, createdAt: now };
    const { insert, update } = this.statements;
    const results = await this.books.write([
      // What is over keeps its row, and leaves the id to the new one.
      ...(previous && !again ? [update(previous, { credentialId: `${previous.credentialId}:${previous.id}` })] : []),
      again ? update(again, row) : insert([row]),
      ...this.channel.reserve(row, now, voucher),
      ...(key === undefined ? [] : [boundKey(this.books, key, row.id)]),
      ...(shares ? [takes(row.id, shares.parts)] : []),
    ]);
    if (shares) shares.found = foundBeside(results.at(-1)?.rows ?? []);
    return row;
  }

  /** The checks passed; from here on a crash is finished, not undone. */
  async settling(
    row: PaymentRow,
    change: { charged: Money | null; prepared?: string; answer?: StoredAnswer; receipt?: string },
  ): Promise<PaymentRow> {
    return this.update(row, {
      state: 'settling',
      charged: change.charged,
      ...(change.prepared === undefined ? {} : { prepared: change.prepared }),
      ...(await this.kept.keep(row, change.answer)),
    });
  }

  async pending(row: PaymentRow, reason: string): Promise<PaymentRow> {
    return this.update(row, { pendingSince: row.pendingSince ?? this.now(), error: reason });
  }

  /** The chain has it: the money of a charge moved. `charged` is undefined while the work still goes on. */
  async settled(row: PaymentRow, reference: string, charged: Money | undefined, receipt: string): Promise<PaymentRow> {
    const moved = takesParts(row.rail) ? (charged ?? row.authorized) : row.authorized;
    const next: PaymentRow = { ...row, reference };
    const lines = moved === 0n ? [] : book.settledOnChain(next, moved, reference);
    const capture = charged === undefined ? undefined : this.books.capture(next, moved, charged);
    return this.update(
      row,
      {
        state: 'settled',
        reference,
        receipt,
        error: null,
        settledAt: this.now(),
        ...(capture ? capture.columns : {}),
      },
      [...this.books.lines(lines), ...(capture?.statements ?? [])],
    );
  }

  /** Work that was settled for beforehand is done, and this is what it cost; the rest goes back. */
  async captured(row: PaymentRow, charged: Money, answer: StoredAnswer | undefined): Promise<PaymentRow> {
    const capture = this.books.capture(row, row.authorized, charged);
    return this.update(row, { ...capture.columns, ...(await this.kept.keep(row, answer)) }, capture.statements);
  }

  /** Nothing was charged and nothing will be. */
  async released(row: PaymentRow, reason: string): Promise<PaymentRow> {
    const { channel, authorized } = row;
    const giveBack = channel === null ? [] : [this.statements.giveBack({ channel, authorized: Number(authorized) })];
    const next = await this.update(
      row,
      {
        state: 'released',
        charged: null,
        pendingSince: null,
        prepared: null,
        credential: null,
        error: reason,
        answerStatus: null,
        answerHeaders: null,
        answerBody: null,
        answerComplete: false,
      },
      giveBack,
    );
    await this.answers.drop(row);
    return next;
  }

  async answered(row: PaymentRow, answer: StoredAnswer | undefined, clientGone: boolean): Promise<PaymentRow> {
    return this.update(
      row,
      {
        state: 'answered',
        credential: null,
        prepared: null,
        clientGone,
        ...(await this.kept.keep(row, answer)),
      },
      [this.books.due(row)],
    );
  }

  /** Answered without any money: a metered call that cost nothing, before anything was settled. */
  async free(row: PaymentRow, answer: StoredAnswer | undefined): Promise<PaymentRow> {
    return this.update(row, {
      state: 'answered',
      charged: ZERO,
      credential: null,
      ...(await this.kept.keep(row, answer)),
    });
  }
}

/** A hold is the tenant's to capture or release, and its time limit's; also one that was settled early. */
export function isTenants({ kind, state, charged }: PaymentRow): boolean {
  return kind === 'binding' && (state === 'working' || (state === 'settled' && charged === null));
}
