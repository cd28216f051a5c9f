/**
 * Changes that other nodes made to what this process remembers. Each has a number, so that what was not heard is made up
 * for. The only process on a registry changes everything itself, and hears nothing.
 */

/** `settings:<name>` for one setting. */
export type Topic =
  | 'deployments'
  | 'domains'
  | 'certificates'
  | 'blocks'
  | 'debts'
  | 'nodes'
  | 'log-outs'
  | `settings:${string}`;

export interface Changes {
  /** @param listener forgets, or reads again; tried again where it fails. This node's own changes are heard, too */
  on(topic: Topic, listener: () => unknown): void;
  /** Resolves when the listeners of every other living node are done with what was changed by now. */
  everywhere(...topics: Topic[]): Promise<void>;
}

export const NO_CHANGES: Changes = { on: () => undefined, everywhere: async () => undefined };

/** Whoever is waited for says so; where that is not heard, it is looked for so often. ms */
const LOOK_MS = 250;
/** A living node that fails to do what it heard is not waited for any longer than this, ms. */
const LONGEST_WAIT_MS = 30_000;

/** Beside the topics. */
export const OVER = 'over';

export class HeardChanges implements Changes {
  readonly #listeners = new Map<string, (() => unknown)[]>();
  /** How far all listeners of a topic are. */
  readonly #numbers = new Map<string, number>();
  readonly #waiting = new Set<() => void>();
  #isOver = false;
  readonly #lagging: (topics: string[]) => Promise<boolean>;

  /** @param lagging whether another living node is not as far as the registry is */
  constructor(lagging: (topics: string[]) => Promise<boolean>) {
    this.#lagging = lagging;
  }

  /** How far this node is, by topic; and whether anybody has to wait for it. */
  get numbers(): Record<string, number> {
    return { ...Object.fromEntries(this.#numbers), ...(this.#isOver ? { [OVER]: 1 } : {}) };
  }

  /** This node serves nothing any more, so no change waits for it. */
  end(): void {
    this.#isOver = true;
  }

  async everywhere(...topics: Topic[]): Promise<void> {
    const until = performance.now() + LONGEST_WAIT_MS;
    for (;;) {
      // Before it is looked: what is said meanwhile is not missed.
      const said = Promise.withResolvers<void>();
      this.#waiting.add(said.resolve);
      const timer = setTimeout(said.resolve, LOOK_MS);
      try {
        if (!(await this.#lagging(topics)) || performance.now() > until) return;
        await said.promise;
      } finally {
        clearTimeout(timer);
        this.#waiting.delete(said.resolve);
      }
    }
  }

  /** Another node is further than it was. */
  others(): void {
    for (const wake of this.#waiting) wake();
  }

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
