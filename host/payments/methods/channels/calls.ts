/** The calls that are at work on session channels. A channel cannot be collected in full while a call holds a part of it. */
import type { Problem } from '../../../shared/problem.ts';

interface Call {
  giveUp(problem: Problem): void;
  readonly ended: Promise<void>;
}

export class ChannelCalls {
  readonly #byChannel = new Map<string, Set<Call>>();

  /**
   * @param giveUp ends the call's work; its payment is released by whoever does the work
   * @returns must be called when the payment is captured or released
   */
  add(channel: string, giveUp: (problem: Problem) => void): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const call: Call = { giveUp, ended: promise };
    const calls = this.#byChannel.get(channel) ?? new Set();
    this.#byChannel.set(channel, calls.add(call));
    return () => {
      calls.delete(call);
      if (calls.size === 0 && this.#byChannel.get(channel) === calls) this.#byChannel.delete(channel);
      resolve();
    };
  }

  /** Resolves when the calls of a channel that are at work now have ended, or after `limitMs`. */
  over(channel: string, limitMs: number): Promise<void> {
    return this.#ended([...(this.#byChannel.get(channel) ?? [])], limitMs);
  }

  /** Ends the calls of a channel. Resolves when their payments are captured or released, or after `limitMs`. */
  async end(channel: string, problem: Problem, limitMs: number): Promise<void> {
    const calls = [...(this.#byChannel.get(channel) ?? [])];
    for (const call of calls) call.giveUp(problem);
    await this.#ended(calls, limitMs);
  }

  async #ended(calls: Call[], limitMs: number): Promise<void> {
    if (calls.length === 0) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, limitMs);
    });
    await Promise.race([Promise.all(calls.map(({ ended }) => ended)), late]);
    clearTimeout(timer);
  }
}
