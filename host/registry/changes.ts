/**
 * Changes that other nodes made to what this process remembers. Each has a number, so that what was not heard is made up
 * for. The only process on a registry changes everything itself, and hears nothing.
 */

/** `settings:<name>` for one setting. */
export type Topic = 'deployments' | 'domains' | 'blocks' | 'debts' | `settings:${string}`;

export interface Changes {
  /** @param listener forgets, or reads again; tried again where it fails. This node's own changes are heard, too */
  on(topic: Topic, listener: () => unknown): void;
}

export const NO_CHANGES: Changes = { on: () => undefined };

export class HeardChanges implements Changes {
  readonly #listeners = new Map<string, (() => unknown)[]>();
  /** How far all listeners of a topic are. */
  readonly #numbers = new Map<string, number>();

  on(topic: Topic, listener: () => unknown): void {
    this.#listeners.set(topic, [...(this.#listeners.get(topic) ?? []), listener]);
  }

  /** @param number of the newest change of a topic */
  async heard(topic: string, number: number): Promise<void> {
    if ((this.#numbers.get(topic) ?? 0) >= number) return;
    await this.#tell(topic);
    this.#numbers.set(topic, Math.max(number, this.#numbers.get(topic) ?? 0));
  }

  /** Where nothing is heard just now, everything may have changed. */
  async mayHaveMissed(): Promise<void> {
    await Promise.allSettled([...this.#listeners.keys()].map((topic) => this.#tell(topic)));
  }

  async #tell(topic: string): Promise<void> {
    await Promise.all((this.#listeners.get(topic) ?? []).map(async (listener) => listener()));
  }
}
