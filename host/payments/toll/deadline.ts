/** How long the work of a paid call may take, and what happens to the money when the time is up. */
import type { PaymentRow } from '../../registry/schema/payments.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import type { SettlementMachine } from '../settlement/machine.ts';

/**
 * The time in which a signed payment can still be settled. A payment that the host collects is settled when the time is
 * nearly up and the work goes on; one that goes straight to the tenant cannot be given back, so the work is given up.
 */
export class Deadline {
  readonly #row: PaymentRow;
  readonly #machine: SettlementMachine;
  readonly #abort = new AbortController();
  readonly #timeUp = Promise.withResolvers<never>();
  #early: Promise<PaymentRow> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(row: PaymentRow, machine: SettlementMachine) {
    this.#row = row;
    this.#machine = machine;
    this.#timeUp.promise.catch(() => {});
    if (row.settleBefore === null || row.custody === 'channel') return;
    const left = Math.min(row.settleBefore - Date.now(), 2 ** 31 - 1);
    this.#timer = setTimeout(
      () => {
        if (row.custody !== 'collected') return this.#giveUp(slowProblem());
        this.#early = machine.takeEarly(row);
        this.#early.catch((error) => this.#giveUp(asProblem(error)));
      },
      Math.max(left, 0),
    );
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

  end(): void {
    clearTimeout(this.#timer);
  }
}

function slowProblem(): Problem {
  return new Problem(
    'upstream_timeout',
    'The handler took longer than the signed payment is good for. Nothing was charged; pay by x402 or a session, or ask the tenant to mark the route as slow.',
  );
}
