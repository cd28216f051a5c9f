/** Whether a tenant has the machine to itself: only where others are served, too, must somebody step back for them. */

/** How long others count after they did something, ms. */
const REMEMBERED_MS = 10_000;

export class SoloTenant {
  /** Who did something last, and when; and the last one before that was somebody else. */
  #last: { slug: string; at: number } | undefined;
  #other: { slug: string; at: number } | undefined;

  /** A tenant was called, or used CPU. @param at ms, never less than before */
  seen(slug: string, at: number): void {
    if (this.#last && this.#last.slug !== slug) this.#other = this.#last;
    this.#last = { slug, at };
  }

  /** @returns false while any other tenant did something of late */
  isAlone(slug: string, at: number): boolean {
    const other = this.#last?.slug === slug ? this.#other : this.#last;
    return other === undefined || at - other.at >= REMEMBERED_MS;
  }
}
