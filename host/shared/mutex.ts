/** Lets one asynchronous piece of work run at a time, in the order of asking. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  run<Result>(work: () => Promise<Result>): Promise<Result> {
    const turn = this.#last.then(work, work);
    this.#last = turn.catch(() => undefined);
    return turn;
  }
}

/** One piece of work at a time for each key; different keys do not wait for each other. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const turn = (this.#last.get(key) ?? Promise.resolve()).then(work);
    const last = turn
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(key) === last) this.#last.delete(key);
      });
    this.#last.set(key, last);
    return turn;
  }
}
