/**
 * Tells processes that use a core for long from those that use one now and then: the scheduler weighs both alike, and
 * who wants it for a millisecond would wait for the slices of those who always want it.
 */
import type { Appetite } from '../shared/priority.ts';

/** Shares of a core: from `above` on it counts as one that wants more, until it is below `below`. */
const STEADY = { above: 0.3, below: 0.15 };
const HUNGRY = { above: 0.5, below: 0.25 };
/** For how long it must have wanted little before it goes before others, ms. */
const PROVEN_MS = 1_000;
/** The same for those that once wanted more: floods come in waves. */
const PROVEN_AGAIN_MS = 10_000;
/** What was used longer ago counts little, ms. */
const MEMORY_MS = 100;
/** What is taken for used before the first look. */
const TAKEN_FOR: Record<Appetite, number> = { light: 0, steady: STEADY.below, hungry: 1 };

export class CpuShare {
  #last: { at: number; cpuMs: number } | undefined;
  #share: number;
  #neededMs = PROVEN_MS;
  /** Since when it has wanted little. */
  #modestSince: number | undefined;
  #appetite: Appetite;

  /** @param appetite what it is taken for at first */
  constructor(appetite: Appetite = 'steady') {
    this.#appetite = appetite;
    this.#share = TAKEN_FOR[appetite];
  }

  get appetite(): Appetite {
    return this.#appetite;
  }

  /** @param at ms; @param cpuMs CPU time of the process so far */
  sample(at: number, cpuMs: number): void {
    const last = this.#last;
    this.#last = { at, cpuMs };
    if (!last || at <= last.at) return;
    const elapsed = at - last.at;
    const kept = Math.exp(-elapsed / MEMORY_MS);
    this.#share = this.#share * kept + (Math.max(0, cpuMs - last.cpuMs) / elapsed) * (1 - kept);
    const hungry = this.#share >= (this.#appetite === 'hungry' ? HUNGRY.below : HUNGRY.above);
    const modest = this.#share < (this.#appetite === 'light' ? STEADY.above : STEADY.below);
    this.#modestSince = modest ? (this.#modestSince ?? at) : undefined;
    const proven = this.#modestSince !== undefined && at - this.#modestSince >= this.#neededMs;
    if (hungry || (this.#appetite === 'light' && !proven)) this.#neededMs = PROVEN_AGAIN_MS;
    this.#appetite = hungry ? 'hungry' : proven ? 'light' : 'steady';
  }
}
