/**
 * Payments in the registry. Each method is one transition and one transaction: the row, the ledger's lines and what
 * has to be sent are written together or not at all. Callers hold the payment's lock.
 */
import { randomBytes } from 'node:crypto';
import type { Registry } from '../../registry/index.ts';
import type { Leases } from '../../registry/leases.ts';
import * as book from '../../registry/payments/book.ts';
import { Books, leftInChannel, type Statement } from '../../registry/payments/books.ts';
import { boundKey } from '../../registry/payments/keys.ts';
import { Meters } from '../../registry/payments/meters.ts';
import type { ChannelRow, PaymentRow } from '../../registry/payments/schema.ts';
import { paidCallStatements, paymentQueries } from '../../registry/payments/statements.ts';
import type { Clock } from '../../shared/clock.ts';
import { add, type Money, subtract, ZERO } from '../../shared/money.ts';
import { KeyedLock } from '../../shared/mutex.ts';
import { takesParts } from '../methods/index.ts';
import type { Again } from './again.ts';
import type { Answers, WholeAnswer } from './answers.ts';

export interface StoredAnswer {
  status: number;
  headers: [string, string][];
  /** Undefined: it streams, or it is too large to keep. */
  body: Buffer | undefined;
}

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

export const OPEN_STATES = ['verified', 'working', 'settling', 'settled'] as const;

export function newPaymentId(): string {
  return `pay_${randomBytes(15).toString('base64url')}`;
}

export const FINAL: readonly PaymentRow['state'][] = ['answered', 'released', 'refund_owed', 'refunded'];

export class PaymentStore {
  readonly answers: Answers;
  readonly leases: Leases;
  readonly books: Books;
  readonly meters: Meters;
  readonly queries: ReturnType<typeof paymentQueries>;
  readonly #node: string | null;
  readonly #channelTurns = new KeyedLock();
  readonly #onFinal: (row: PaymentRow) => void;
  readonly #statements: ReturnType<typeof paidCallStatements>;

  /** @param onFinal told of every payment that comes to a final state, after it is written */
  constructor(registry: Registry, clock: Clock, answers: Answers, onFinal: (row: PaymentRow) => void = () => {}) {
    this.answers = answers;
    this.leases = registry.leases;
    this.#node = registry.node;
    this.#onFinal = onFinal;
    this.books = new Books(registry, clock);
    this.meters = new Meters(this.books);
    this.queries = paymentQueries(this.books);
    this.#statements = paidCallStatements(registry);
  }

  now(): number {
    return this.books.now();
  }

  async byCredential(credentialId: string): Promise<PaymentRow | undefined> {
    return this.#statements.byCredential({ credentialId });
  }

  async byId(id: string): Promise<PaymentRow | undefined> {
    return this.#statements.byId({ id });
  }

  /** There may be other nodes. */
  get hasOthers(): boolean {
    return this.#node !== null;
  }

  /** What this node is at work on, or a crash left between two states, oldest first. */
  async open(): Promise<PaymentRow[]> {
    return this.queries.inStates(OPEN_STATES, this.#node);
  }

  /** What nodes that have ended left between two states is this one's from here on. */
  async takeOver(): Promise<void> {
    if (this.#node !== null) await this.queries.takeOver(this.#node);
  }

  /** Whether another node is at work on it: it is nobody else's until that node has ended. */
  isElsewhere(row: PaymentRow): boolean {
    return row.node !== this.#node && OPEN_STATES.some((state) => state === row.state) && !isTenants(row);
  }

  /**
   * A verified credential starts (or starts again, after it was released) to be worked on.
   * @param prepared what a recovery needs to finish the work
   * @param key an Idempotency-Key that it is begun under
   * @param others gets the payments that its wallet has promised before, at whichever node
   * @throws when the channel does not cover it (a CHECK of the database), and when the credential or the key is at work
   *   in another process (UNIQUE, NOT NULL)
   */
  async begin(
    payment: NewPayment,
    state: 'verified' | 'working',
    previous: PaymentRow | undefined,
    voucher?: { cumulative: Money; signature: string },
    key?: string,
    others?: string[],
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
      node: this.#node,
    };
    const again = previous?.state === 'released' ? previous : undefined;
    const row: PaymentRow = again
      ? { ...fresh, id: again.id, attempts: again.attempts + 1, createdAt: again.createdAt }
      : { ...fresh, attempts: 1, createdAt: now };
    const { insert, update, promised } = this.#statements;
    const results = await this.books.write([
      // What is over keeps its row, and leaves the id to the new one.
      ...(previous && !again ? [update(previous, { credentialId: `${previous.credentialId}:${previous.id}` })] : []),
      again ? update(again, row) : insert([row]),
      ...this.#reserve(row, now, voucher),
      ...(key === undefined ? [] : [boundKey(this.books, key, row.id)]),
      // Writes of all nodes come one after the other, so of two at once the second finds the first.
      ...(others ? [promised({ ...row })] : []),
    ]);
    if (others) for (const { id } of results.at(-1)?.rows ?? []) others.push(String(id));
    return row;
  }

  #reserve(
    { channel, authorized }: PaymentRow,
    now: number,
    voucher: { cumulative: Money; signature: string } | undefined,
  ): Statement[] {
    if (channel === null) return [];
    const amount = Number(authorized);
    if (!voucher) return [this.#statements.reserve({ channel, amount, now })];
    const { signature } = voucher;
    const cumulative = Number(voucher.cumulative);
    return [
      this.#statements.reserveByVoucher({ channel, amount, now, cumulative, signature }),
      this.#statements.voucher({ channel, cumulative: voucher.cumulative, signature }),
    ];
  }

  /** More of its channel is held for work that goes on. @throws when the vouchers do not cover it (a CHECK of the database) */
  async extended(row: PaymentRow, by: Money): Promise<PaymentRow> {
    const hold = { channel: row.channel, amount: Number(by), now: this.now() };
    return this.#update(row, { authorized: add(row.authorized, by) }, [this.#statements.reserve(hold)]);
  }

  /** The checks passed; from here on a crash is finished, not undone. */
  async settling(
    row: PaymentRow,
    change: { charged: Money | null; prepared?: string; answer?: StoredAnswer; receipt?: string },
  ): Promise<PaymentRow> {
    return this.#update(row, {
      state: 'settling',
      charged: change.charged,
      ...(change.prepared === undefined ? {} : { prepared: change.prepared }),
      ...(await this.#keep(row, change.answer)),
    });
  }

  async pending(row: PaymentRow, reason: string): Promise<PaymentRow> {
    return this.#update(row, { pendingSince: row.pendingSince ?? this.now(), error: reason });
  }

  /** The chain has it: the money of a charge moved. `charged` is undefined while the work still goes on. */
  async settled(row: PaymentRow, reference: string, charged: Money | undefined, receipt: string): Promise<PaymentRow> {
    const moved = takesParts(row.rail) ? (charged ?? row.authorized) : row.authorized;
    const next: PaymentRow = { ...row, reference };
    const lines = moved === 0n ? [] : book.settledOnChain(next, moved, reference);
    const capture = charged === undefined ? undefined : this.books.capture(next, moved, charged);
    return this.#update(
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
    return this.#update(row, { ...capture.columns, ...(await this.#keep(row, answer)) }, capture.statements);
  }

  /**
   * A session payment succeeded: only the books and the channel change, no chain.
   * @param receiptOf says what the channel has spent once this payment is in the books: no two say the same
   */
  async capturedFromChannel(
    row: PaymentRow,
    charged: Money,
    receiptOf: (channel: ChannelRow) => string,
    answer: StoredAnswer | undefined,
    state: 'settled' | 'answered',
  ): Promise<PaymentRow> {
    const { fee } = book.divide(charged, row.feeBps);
    const kept = await this.#keep(row, answer);
    const { authorized } = row;
    return this.#asRead(row, (channel) => {
      const now = this.now();
      const receipt = receiptOf({ ...channel, captured: add(channel.captured, charged), units: channel.units + 1 });
      const { id, units } = channel;
      const sums = { authorized: Number(authorized), charged: Number(charged), captured: Number(channel.captured) };
      return this.#update(
        row,
        { state, charged, fee, reference: row.channel, receipt, settledAt: now, credential: null, ...kept },
        [
          this.#statements.capture({ channel: id, now, units, ...sums }),
          ...(charged === 0n ? [] : this.books.lines(book.captured(row, authorized, charged))),
          ...this.books.owed(row, charged, ZERO),
        ],
      );
    });
  }

  /** A change that depends on what a payment's channel is: made again where that has changed since it was read. */
  async #asRead(row: PaymentRow, change: (channel: ChannelRow) => Promise<PaymentRow>): Promise<PaymentRow> {
    const read = () => this.#statements.channelById({ channel: row.channel });
    return this.#channelTurns.run(row.channel ?? '', async () => {
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

  /** Nothing was charged and nothing will be. */
  async released(row: PaymentRow, reason: string): Promise<PaymentRow> {
    const { channel, authorized } = row;
    const giveBack = channel === null ? [] : [this.#statements.giveBack({ channel, authorized: Number(authorized) })];
    const next = await this.#update(
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
    return this.#update(
      row,
      {
        state: 'answered',
        credential: null,
        prepared: null,
        clientGone,
        ...(await this.#keep(row, answer)),
      },
      [this.books.due(row)],
    );
  }

  /** Answered without any money: a metered call that cost nothing, before anything was settled. */
  async free(row: PaymentRow, answer: StoredAnswer | undefined): Promise<PaymentRow> {
    return this.#update(row, {
      state: 'answered',
      charged: ZERO,
      credential: null,
      ...(await this.#keep(row, answer)),
    });
  }

  /**
   * Settled, but the work was lost: what the payer paid has to go back. Only what was not answered can be lost: a payout
   * may be on its way for everything else.
   */
  async refundOwed(given: PaymentRow, reason: string): Promise<PaymentRow> {
    const row = (await this.byId(given.id)) ?? given;
    if (row.state !== 'settled') return row;
    if (row.custody === 'channel') return this.#lostInChannel(row, reason);
    const back = row.charged ?? row.authorized;
    const statements: Statement[] = [];
    if (row.custody === 'collected') {
      if (row.charged === null) statements.push(...this.books.lines(book.captured(row, row.authorized, ZERO)));
      else if (row.charged > 0n)
        statements.push(
          ...this.books.lines(book.returned(row, row.charged, ZERO)),
          this.queries.waived(row.id, reason),
        );
    }
    if (back > 0n) statements.push(this.books.outgoing(row, 'refund', row.payer, back, 'owed', 'lost'));
    return this.#update(row, { state: 'refund_owed', error: reason, credential: null }, statements);
  }

  /** What its channel was not made to pay yet is no longer owed; the rest is sent back once the chain has paid it. */
  async #lostInChannel(row: PaymentRow, reason: string): Promise<PaymentRow> {
    const amount = row.charged ?? ZERO;
    return this.#asRead(row, (channel) => {
      const notTaken = leftInChannel(channel, amount);
      const back = subtract(amount, notTaken);
      const change: Partial<PaymentRow> =
        back === 0n
          ? { state: 'refunded', refunded: amount, error: reason, charged: ZERO, fee: ZERO }
          : { state: 'refund_owed', refunded: notTaken, error: reason };
      return this.#update(row, { ...change, credential: null }, [
        this.queries.lessCaptured(channel, notTaken),
        ...(amount === 0n ? [] : this.books.lines(book.returned(row, amount, notTaken))),
        this.queries.waived(row.id, reason),
        ...(back === 0n
          ? []
          : [
              this.books.outgoing(row, 'refund', row.payer, back, 'waiting', 'lost'),
              this.books.dueOfChannel(channel.id),
            ]),
      ]);
    });
  }

  /** What a payment was answered with; undefined where it was not kept, or where it is not known which path it was of. */
  async answerOf({ row }: Again): Promise<WholeAnswer | undefined> {
    return row.place === null && row.kind !== 'operation'
      ? undefined
      : this.#kept(row, (kept) => this.answers.find(kept));
  }

  /** Whether a payment whose answer nobody has had yet can be answered all the same, by this node. */
  async canAnswer(row: PaymentRow): Promise<boolean> {
    return row.charged !== null && (await this.#kept(row, (kept) => this.answers.read(kept))) !== undefined;
  }

  async #kept(
    row: PaymentRow,
    read: (row: PaymentRow) => Promise<WholeAnswer | undefined>,
  ): Promise<WholeAnswer | undefined> {
    const { answerStatus: status, answerHeaders, answerBody, answerComplete } = row;
    if (status === null || !(answerComplete || answerBody !== null)) return undefined;
    if (answerHeaders !== null) return { status, headers: answerHeaders, body: answerBody ?? Buffer.alloc(0) };
    return read(row);
  }

  /**
   * Keeps an answer, before anything says that it is kept. The host's own are few and short and stay with the payment;
   * what handlers write goes into files.
   */
  async #keep(row: PaymentRow, answer: StoredAnswer | undefined): Promise<Partial<PaymentRow>> {
    if (!answer) return {};
    const { status, headers, body } = answer;
    if (row.kind === 'operation') return operationColumns(answer);
    if (body !== undefined) await this.answers.keep(row, { status, headers, body });
    return { answerStatus: status, answerComplete: body !== undefined };
  }

  async #update(row: PaymentRow, change: Partial<PaymentRow>, more: Statement[] = []): Promise<PaymentRow> {
    // Noted by the first transition of the capture, whichever it is.
    const captured = row.capturedBy === null ? {} : { capturedBy: row.capturedBy };
    const node = this.#node === null ? {} : { node: this.#node };
    const full = { ...change, ...captured, ...node, updatedAt: this.now() };
    await this.books.write([this.#statements.update(row, full), ...more]);
    const next = { ...row, ...full };
    if (next.state !== row.state && FINAL.includes(next.state)) this.#onFinal(next);
    return next;
  }
}

/** A hold is the tenant's to capture or release, and its time limit's; also one that was settled early. */
export function isTenants({ kind, state, charged }: PaymentRow): boolean {
  return kind === 'binding' && (state === 'working' || (state === 'settled' && charged === null));
}

function operationColumns({ status, headers, body }: StoredAnswer): Partial<PaymentRow> {
  return {
    answerStatus: status,
    answerHeaders: headers,
    answerBody: body ?? null,
    answerComplete: body !== undefined,
  };
}
