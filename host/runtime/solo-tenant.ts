/** Detects when only one tenant is active, so that it needs no lower CPU priority. */

/** How long a tenant counts as active after its last activity, ms. */
const REMEMBERED_MS = 10_000;

export class SoloTenant {
  /** The tenant that was active last, and the one before it that was another tenant. */
  #last: { slug: string; at: number } | undefined;
  #other: { slug: string; at: number } | undefined;

  /** Records that a tenant was called or used CPU. @param at monotonic time, ms */
  seen(slug: string, at: number): void {
    if (this.#last && this.#last.slug !== slug) this.#other = this.#last;
    this.#last = { slug, at };
  }

  /** @returns false if any other tenant was active recently */
  isAlone(slug: string, at: number): boolean {
    const other = this.#last?.slug === slug ? this.#other : this.#last;
    return other === undefined || at - other.at >= REMEMBERED_MS;
  }
}
