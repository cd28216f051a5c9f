/**
 * Tells processes that use a core for long from those that use one now and then: the scheduler weighs both alike, and
 * who wants it for a millisecond would wait for the slices of those who always want it.
 */

/** Shares of a core above and below which a process is hungry or no longer. */
const HUNGRY = 0.5;
const SATED = 0.25;
/** What was used longer ago counts little, ms. */
const MEMORY_MS = 100;

export class CpuShare {
  readonly #onChange: (hungry: boolean) => void;
  #last: { at: number; cpuMs: number } | undefined;
  #share = 0;
  #hungry = false;

  /**
   * @param onChange it became hungry, or is no longer
   * @param hungry what it is taken for at first
   */
  constructor(onChange: (hungry: boolean) => void, hungry = false) {
    this.#onChange = onChange;
    this.#hungry = hungry;
    this.#share = hungry ? 1 : 0;
  }

  /** @param at ms; @param cpuMs CPU time of the process so far */
  sample(at: number, cpuMs: number): void {
    const last = this.#last;
    this.#last = { at, cpuMs };
    if (!last || at <= last.at) return;
    const elapsed = at - last.at;
    const kept = Math.exp(-elapsed / MEMORY_MS);
    this.#share = this.#share * kept + (Math.max(0, cpuMs - last.cpuMs) / elapsed) * (1 - kept);
    if (this.#hungry ? this.#share > SATED : this.#share < HUNGRY) return;
    this.#hungry = !this.#hungry;
    this.#onChange(this.#hungry);
  }
}
