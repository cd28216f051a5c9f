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
  /**
   * Resolves when the listeners of every other living node are done with what was changed by now.
   * @param slug where one deployment was changed: others may take as long as they like
   */
  everywhere(topics: Topic[], slug?: string): Promise<void>;
  /** What a listener leaves behind: it is done with all but this deployment, until that settles. */
  behind(slug: string, work: Promise<unknown>): void;
}

export const NO_CHANGES: Changes = {
  on: () => undefined,
  everywhere: async () => undefined,
  behind: () => undefined,
};

/** Whoever is waited for says so; where that is not heard, it is looked for so often. ms */
const LOOK_MS = 250;
/** A living node that fails to do what it heard is not waited for any longer than this, ms. */
const LONGEST_WAIT_MS = 30_000;

/** How far a node is, by topic; and beside the topics: nobody has to wait for it; deployments that take it longer. */
export interface Heard {
  [topic: string]: number | string[] | undefined;
  over?: 1;
  behind?: string[];
}

export class HeardChanges implements Changes {
  readonly #listeners = new Map<string, (() => unknown)[]>();
  /** How far all listeners of a topic are. */
  readonly #numbers = new Map<string, number>();
  readonly #waiting = new Set<() => void>();
  #isOver = false;
  /** Deployments, with how much work each leaves. */
  readonly #behind = new Map<string, number>();
  readonly #lagging: (topics: string[], slug?: string) => Promise<boolean>;
  /** Called when the others are to know how far this node is. */
  onFurther: () => void = () => undefined;

  /** @param lagging whether another living node is not as far as the registry is, but for other deployments than `slug` */
  constructor(lagging: (topics: string[], slug?: string) => Promise<boolean>) {
    this.#lagging = lagging;
  }

  /** How far this node is. */
  get note(): Heard {
    const behind = [...this.#behind.keys()];
    return {
      ...Object.fromEntries(this.#numbers),
      ...(this.#isOver ? { over: 1 } : {}),
      ...(behind.length > 0 ? { behind } : {}),
    };
  }

  /** This node serves nothing any more, so no change waits for it. */
  end(): void {
    this.#isOver = true;
  }

  async everywhere(topics: Topic[], slug?: string): Promise<void> {
    const until = performance.now() + LONGEST_WAIT_MS;
    for (;;) {
      // Before it is looked: what is said meanwhile is not missed.
      const said = Promise.withResolvers<void>();
      this.#waiting.add(said.resolve);
      const timer = setTimeout(said.resolve, LOOK_MS);
      try {
        if (!(await this.#lagging(topics, slug)) || performance.now() > until) return;
        await said.promise;
      } finally {
        clearTimeout(timer);
        this.#waiting.delete(said.resolve);
      }
    }
  }

  behind(slug: string, work: Promise<unknown>): void {
    const count = (by: 1 | -1) => {
      const left = (this.#behind.get(slug) ?? 0) + by;
      if (left > 0) this.#behind.set(slug, left);
      else this.#behind.delete(slug);
    };
    const done = () => {
      count(-1);
      this.onFurther();
    };
    count(1);
    work.then(done, done);
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
