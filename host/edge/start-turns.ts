/**
 * Turns for requests that begin. The edge is one event loop, and what became readable together is handled together: a
 * thousand requests that one tenant's callers send at once would all be begun before anybody else's. So a slug begins
 * some at once, and the rest after whatever else is waiting.
 */

/** Requests of one slug that begin in one turn of the event loop; about 1 ms of it. */
const STARTS_A_TURN = 32;

interface Line {
  /** In this turn. */
  begun: number;
  readonly waiting: (() => void)[];
}

export class StartTurns {
  readonly #lines = new Map<string, Line>();
  #scheduled = false;

  /** Runs `begin`, now or in a later turn of the event loop; in their order for one slug. */
  run(slug: string, begin: () => void): void {
    let line = this.#lines.get(slug);
    if (!line) {
      line = { begun: 0, waiting: [] };
      this.#lines.set(slug, line);
    }
    if (line.begun >= STARTS_A_TURN) {
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
    for (const [slug, line] of this.#lines) {
      const batch = line.waiting.splice(0, STARTS_A_TURN);
      line.begun = batch.length;
      if (batch.length === 0) this.#lines.delete(slug);
      else if (!this.#scheduled) {
        this.#scheduled = true;
        setImmediate(() => this.#turn());
      }
      for (const begin of batch) begin();
    }
  }
}
