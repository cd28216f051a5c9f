/**
 * Turns for requests that begin. The edge is one event loop, and what became readable together is handled together: a
 * thousand requests that one tenant's callers send at once would all be begun before anybody else's. So some begin at
 * once, and the rest of a line after whatever else is waiting. Connections need none: libuv accepts one in each turn of
 * the event loop (`uv__server_io`, 1.52).
 */

/** Of a line of its own, when others have begun much already. */
const FEW = 4;

export class StartTurns {
  readonly #most: number;
  readonly #mistake: (error: unknown) => void;
  /** Since lines were last let in. Not counted by turns of the event loop, which would cost each of them a callback. */
  #begun = 0;
  /** Of each line, since many had begun. */
  readonly #late = new Map<string, number>();
  readonly #lines = new Map<string, (() => void)[]>();

  /**
   * @param most beginnings in one turn of the event loop, of all that come first and then of each line
   * @param mistake is told what a beginning that had to wait has thrown
   */
  constructor(most: number, mistake: (error: unknown) => void) {
    this.#most = most;
    this.#mistake = mistake;
  }

  /** Runs `begin`, now or in a later turn of the event loop; in their order for one line. */
  run(name: string, begin: () => void): void {
    if (this.#begun < this.#most) {
      this.#begun += 1;
      if (this.#begun === this.#most) setImmediate(() => this.#turn());
      begin();
      return;
    }
    const line = this.#lines.get(name);
    const late = this.#late.get(name) ?? 0;
    if (line) line.push(begin);
    else if (late < FEW) {
      this.#late.set(name, late + 1);
      begin();
    } else this.#lines.set(name, [begin]);
  }

  #turn(): void {
    this.#late.clear();
    const lines = [...this.#lines].sort(([, a], [, b]) => a.length - b.length);
    for (const [name, line] of lines) {
      const batch = line.splice(0, this.#most);
      if (line.length === 0) this.#lines.delete(name);
      for (const begin of batch) this.#begin(begin);
    }
    if (this.#lines.size === 0) this.#begun = 0;
    else setImmediate(() => this.#turn());
  }

  #begin(begin: () => void): void {
    try {
      begin();
    } catch (error) {
      this.#mistake(error);
    }
  }
}
