/** Runs asynchronous functions one at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();
  #next: Promise<void> | undefined;
  #turns = 0;

  /** Nothing runs, and nothing waits. */
  get idle(): boolean {
    return this.#turns === 0;
  }

  run<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#turns++;
    const turn = this.#last.then(work, work).finally(() => {
      this.#turns--;
    });
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  /** The same for work that looks at all there is: callers that ask before it begins share one turn. */
  round(work: () => Promise<void>): Promise<void> {
    this.#next ??= this.run(() => {
      this.#next = undefined;
      return work();
    });
    return this.#next;
  }
}

/** Runs functions with the same key one at a time, in the order of the calls; different keys do not wait for each other. */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<void>>();

  /** Waits for its turn; the returned function ends the turn and may be called more than once. */
  async acquire(key: string): Promise<() => void> {
    const before = this.#tails.get(key);
    const turn = Promise.withResolvers<void>();
    this.#tails.set(key, turn.promise);
    await before;
    return () => {
      turn.resolve();
      if (this.#tails.get(key) === turn.promise) this.#tails.delete(key);
    };
  }

  isHeld(key: string): boolean {
    return this.#tails.has(key);
  }

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const release = await this.acquire(key);
    try {
      return await work();
    } finally {
      release();
    }
  }
}
