/**
 * Turns for what begins: new connections, and requests to handlers. The edge is one event loop, and what became readable
 * together is handled together: a thousand requests that one tenant's callers send at once would all be begun before
 * anybody else's. So some of a line begin at once, and the rest after whatever else is waiting.
 */

interface Line {
  /** In this turn. */
  begun: number;
  readonly waiting: (() => void)[];
}

export class StartTurns {
  readonly #most: number;
  readonly #lines = new Map<string, Line>();
  #scheduled = false;

  /** @param most beginnings of one line in one turn of the event loop */
  constructor(most: number) {
    this.#most = most;
  }

  /** Runs `begin`, now or in a later turn of the event loop; in their order for one line. */
  run(name: string, begin: () => void): void {
    let line = this.#lines.get(name);
    if (!line) {
      line = { begun: 0, waiting: [] };
      this.#lines.set(name, line);
    }
    if (line.begun >= this.#most) {
      line.waiting.push(begin);
      return;
    }
    line.begun += 1;
    if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => this.#turn());
    }
    begin();
  }

  #turn(): void {
    this.#scheduled = false;
    for (const [name, line] of this.#lines) {
      const batch = line.waiting.splice(0, this.#most);
      line.begun = batch.length;
      if (batch.length === 0) this.#lines.delete(name);
      else if (!this.#scheduled) {
        this.#scheduled = true;
        setImmediate(() => this.#turn());
      }
      for (const begin of batch) begin();
    }
  }
}
