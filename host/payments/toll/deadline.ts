/** How long the work of a paid call may take, and what happens to the money when the time is up. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import type { ChannelCalls } from '../methods/channels/calls.ts';
import type { SettlementMachine } from '../settlement/machine.ts';

/**
 * Longest work of a call that a session pays, ms. Until it ends its channel cannot be closed, and a payer who asks the
 * chain for the deposit gets it after 15 minutes (TIP-1034).
 */
const SESSION_CALL_MS = 300_000;
/** How long a handler may go on after its caller, or the edge, has given the call up, ms. */
const ABANDONED_MS = 30_000;

/**
 * The time in which a signed payment can still be settled. A payment that the host collects is settled when the time is
 * nearly up and the work goes on; one that goes straight to the tenant cannot be given back, so the work is given up.
 * Work is given up too when its channel is closed, and when nobody waits for its answer any more.
 */
export class Deadline {
  readonly #row: PaymentRow;
  readonly #machine: SettlementMachine;
  readonly #abort = new AbortController();
  readonly #timeUp = Promise.withResolvers<never>();
  #early: Promise<PaymentRow> | undefined;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #caller: AbortSignal;
  readonly #leave = () =>
    this.#after(ABANDONED_MS, () => this.#giveUp(new Problem('bad_request', 'The caller left. Nothing was charged.')));
  readonly #forget: (() => void) | undefined;

  /**
   * @param caller aborts when nobody waits for the answer any more
   * @param calls where a call that a session pays is noted
   */
  constructor(row: PaymentRow, machine: SettlementMachine, caller: AbortSignal, calls: ChannelCalls | undefined) {
    this.#row = row;
    this.#machine = machine;
    this.#caller = caller;
    this.#timeUp.promise.catch(() => {});
    if (caller.aborted) this.#leave();
    else caller.addEventListener('abort', this.#leave, { once: true });
    if (row.channel !== null) {
      this.#forget = calls?.add(row.channel, (problem) => this.#giveUp(problem));
      this.#after(SESSION_CALL_MS, () => this.#giveUp(longProblem()));
      return;
    }
    if (row.settleBefore === null) return;
    const left = Math.min(row.settleBefore - Date.now(), 2 ** 31 - 1);
    this.#after(Math.max(left, 0), () => {
      if (row.custody !== 'collected') return this.#giveUp(slowProblem());
      this.#early = machine.takeEarly(row);
      this.#early.catch((error) => this.#giveUp(asProblem(error)));
    });
  }

  #after(ms: number, work: () => void): void {
    this.#timers.push(setTimeout(work, ms));
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  #giveUp(problem: Problem): void {
    this.#timeUp.reject(problem);
    this.#abort.abort(problem);
  }

  race<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#timeUp.promise]);
  }

  /** The payment as it stands: settled where the time ran out and it was taken. */
  async settled(): Promise<PaymentRow> {
    if (!this.#early) return this.#row;
    try {
      return await this.#early;
    } catch (error) {
      if (error instanceof Problem && error.code === 'payment_pending') throw error;
      return { ...this.#row, state: 'released' };
    }
  }

  /** The work broke off: nothing is charged for it. @returns what the caller is told */
  async brokeOff(error: unknown): Promise<Problem> {
    const problem =
      error instanceof Problem
        ? error
        : new Problem('upstream_failed', 'The handler broke off. Nothing was charged.', { cause: error });
    await this.#machine.release(await this.settled(), problem.message);
    return problem;
  }

  /** The work is done. */
  end(): void {
    this.#caller.removeEventListener('abort', this.#leave);
    for (const timer of this.#timers) clearTimeout(timer);
  }

  /** The payment is captured or released. */
  final(): void {
    this.#forget?.();
  }
}

function longProblem(): Problem {
  return new Problem(
    'upstream_timeout',
    'The handler took longer than a session may wait. Nothing was charged; pay by x402 or a single charge.',
  );
}

function slowProblem(): Problem {
  return new Problem(
    'upstream_timeout',
    'The handler took longer than the signed payment is good for. Nothing was charged; pay by x402 or a session, or ask the tenant to mark the route as slow.',
  );
}
