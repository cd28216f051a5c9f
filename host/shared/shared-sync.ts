/** Puts what was written to a file on the disk, beside the event loop. */

/** One sync for all that was written since the last one began. */
export class SharedSync {
  readonly #sync: (done: (error: Error | null) => void) => void;
  #waiting: { resolve(): void; reject(error: Error): void }[] = [];
  #running = false;
  /** Called when nothing is to be synced any more. */
  idle: () => void = () => {};

  constructor(sync: (done: (error: Error | null) => void) => void) {
    this.#sync = sync;
  }

  get running(): boolean {
    return this.#running;
  }

  /** Resolves once all that was written before is on the disk. */
  sync(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#running) this.#run();
    });
  }

  #run(): void {
    this.#running = true;
    // What is written in this turn of the event loop shares the call that follows it.
    setImmediate(() => {
      const batch = this.#waiting.splice(0);
      this.#sync((error) => {
        for (const { resolve, reject } of batch) error ? reject(error) : resolve();
        if (this.#waiting.length > 0) return this.#run();
        this.#running = false;
        this.idle();
      });
    });
  }
}
