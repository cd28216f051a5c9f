/**
 * Calls that are charged while they go on: paid WebSockets of routes with `live`. The handler reports what a call has
 * cost so far, and each report is in the registry before the handler hears of it; so whatever ends the call, what was
 * reported is charged and no more.
 */
import type { Meters } from '../../registry/payments/meters.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, type Money, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';

/** How long a handler may take to say goodbye when its call has to end, ms. A channel's close waits twice as long. */
const GOODBYE_MS = 5_000;
/** Longest call, ms. */
const LONGEST_MS = 4 * 3_600_000;

export interface Report {
  payment: string;
  attempt: number;
  /** Of the whole call so far. */
  total: Money;
}

export class LiveCall {
  readonly row: PaymentRow;
  /** The host itself counts what it costs. */
  readonly isCounted: boolean;
  readonly #held: Money;
  readonly #meters: Meters;
  readonly #cut: () => void;
  readonly #longest: NodeJS.Timeout;
  #total = ZERO;
  #goodbye: NodeJS.Timeout | undefined;
  #ending: Problem | undefined;
  #closed = false;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(row: PaymentRow, held: Money, meters: Meters, cut: () => void, isCounted = false) {
    this.row = row;
    this.isCounted = isCounted;
    this.#held = held;
    this.#meters = meters;
    this.#cut = cut;
    this.#longest = setTimeout(() => this.end(tooLong()), LONGEST_MS);
  }

  /**
   * @throws Problem `conflict` when the call is over, or has to end: the handler says so to its caller and closes.
   * `payment_required` for more than is held; nothing of it is noted
   */
  async report(total: Money): Promise<{ total: Money; held: Money }> {
    if (this.#closed) throw over();
    if (this.#ending) throw this.#ending;
    if (total > this.#held)
      throw new Problem(
        'payment_required',
        `At most ${formatUsd(this.#held)} USD are held for this call; end it, the caller can hold more by x-max-price.`,
      );
    const written = this.#writing.then(async () => {
      if (total <= this.#total) return;
      await this.#meters.note(this.row, total);
      this.#total = total;
    });
    this.#writing = written.catch(() => {});
    await written;
    return { total: this.#total, held: this.#held };
  }

  /** The next report is answered with the reason, and the call is cut off soon after. */
  end(reason: Problem): void {
    if (this.#closed || this.#ending) return;
    this.#ending = reason;
    this.#cutLater();
  }

  /** Its caller has left: the handler may still report what it had done. */
  left(): void {
    if (!this.#closed) this.#cutLater();
  }

  #cutLater(): void {
    this.#goodbye ??= setTimeout(this.#cut, GOODBYE_MS);
  }

  cut(): void {
    this.#cut();
  }

  /** Nothing more is taken from here on. Resolves when what was reported is written. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#goodbye);
    clearTimeout(this.#longest);
    await this.#writing;
  }
}

export class LiveCalls {
  readonly #meters: Meters;
  readonly #calls = new Map<string, LiveCall>();
  readonly #ends = new Set<Promise<unknown>>();

  constructor(meters: Meters) {
    this.#meters = meters;
  }

  /**
   * @param held the most that may be reported
   * @param cut ends the connection at once
   * @param work joins the caller and the handler; resolves when they have parted
   * @param settle charges what was reported; nothing is taken any more
   * @param isCounted whether the host itself counts: its handler reports nothing then
   */
  async run(
    row: PaymentRow,
    held: Money,
    cut: () => void,
    work: (call: LiveCall) => Promise<void>,
    settle: () => Promise<void>,
    isCounted = false,
  ): Promise<void> {
    const call = new LiveCall(row, held, this.#meters, cut, isCounted);
    this.#calls.set(row.id, call);
    const end = work(call)
      .finally(() => call.close())
      .finally(settle)
      .finally(() => this.#calls.delete(row.id));
    const noted = end.catch(() => {});
    this.#ends.add(noted);
    await end.finally(() => this.#ends.delete(noted));
  }

  isOpen({ id }: Pick<PaymentRow, 'id'>): boolean {
    return this.#calls.has(id);
  }

  /** @throws Problem as `LiveCall.report`; `not_found` for everybody else's calls and for those that are not open */
  async report(tenant: string, { payment, attempt, total }: Report): Promise<{ total: Money; held: Money }> {
    const call = this.#calls.get(payment);
    if (!call || call.isCounted || call.row.tenant !== tenant || call.row.attempts !== attempt) throw over();
    return await call.report(total);
  }

  /** Cuts all of them off. Resolves when they are settled. */
  async stop(): Promise<void> {
    for (const call of this.#calls.values()) call.cut();
    await Promise.all(this.#ends);
  }
}

function over(): Problem {
  return new Problem(
    'not_found',
    'No call of a live route is open under this payment and attempt; what was reported before it ended is charged.',
  );
}

function tooLong(): Problem {
  return new Problem('conflict', 'A live call may last four hours; its caller opens another one.');
}
