/**
 * Bookmarks of D1 sessions. There is one copy of a database, so every bookmark is satisfied; they need only sort
 * increasingly as strings, over restarts too (workerd keeps the greater by localeCompare).
 */

export class Bookmarks {
  #last: number;
  #count = 0;
  readonly #suffix: string;
  readonly #now: () => number;

  /**
   * @param after ms: no bookmark sorts before this time, such as the last change of the database's file
   * @param now ms since the epoch
   */
  constructor(after: number, now: () => number) {
    this.#last = Math.ceil(after);
    this.#now = now;
    // Tells two runs of one database apart; nothing depends on it being hard to guess.
    this.#suffix = Math.ceil(now()).toString(16).padStart(16, '0').repeat(2);
  }

  /** In D1's shape: `0000019a-3c5f2b1d-00000001-<32 hexadecimal digits>`. */
  next(): string {
    const time = this.#now();
    if (time > this.#last) {
      this.#last = time;
      this.#count = 0;
    }
    const hex = this.#last.toString(16).padStart(16, '0');
    const count = (++this.#count).toString(16).padStart(8, '0');
    return `${hex.slice(0, 8)}-${hex.slice(8)}-${count}-${this.#suffix}`;
  }
}
