/** Since when the chain's word on a channel (is it being closed by its payer?) is known. */
export class CheckedChannels {
  /** ms of `performance.now()`; oldest first. */
  readonly #at = new Map<string, number>();
  readonly #believedMs: number;

  /** @param believedMs how long the chain's word is believed */
  constructor(believedMs: number) {
    this.#believedMs = believedMs;
  }

  isKnown(id: string): boolean {
    return performance.now() - (this.#at.get(id) ?? Number.NEGATIVE_INFINITY) <= this.#believedMs;
  }

  note(id: string): void {
    const now = performance.now();
    this.#at.delete(id);
    this.#at.set(id, now);
    for (const [other, at] of this.#at) {
      if (now - at <= this.#believedMs) break;
      this.#at.delete(other);
    }
  }
}
