/**
 * Tells processes that use a core for long from those that use one now and then: the scheduler weighs both alike, and
 * who wants it for a millisecond would wait for the slices of those who always want it. On a crowded machine what a
 * process gets says little about what it wants: twenty that loop on two cores get a tenth of a core each. So who goes
 * before others must also have slept: what it would use without having to wait counts.
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
/** The same for what it would use: who wants little may have to wait for a moment, too. */
const WISH_MEMORY_MS = 1_000;
/** What is taken for used before the first look. */
const TAKEN_FOR: Record<Appetite, number> = { light: 0, steady: STEADY.below, hungry: 1 };

/** Of a process so far, ms. */
export interface CpuTimes {
  cpuMs: number;
  /** Its event loop ran or waited for a core; undefined where the kernel does not tell. */
  wantedMs?: number | undefined;
}

export class CpuShare {
  #last: ({ at: number } & CpuTimes) | undefined;
  #share: number;
  /** Of the time, lately. */
  #used = 0;
  #slept = 1;
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

  /** @param at ms */
  sample(at: number, times: CpuTimes): void {
    const last = this.#last;
    this.#last = { at, ...times };
    if (!last || at <= last.at) return;
    this.#count(at - last.at, last, times);
    const enough = this.#appetite === 'hungry' ? HUNGRY.below : HUNGRY.above;
    // Where other programs leave a tenant little it is not hungry: it would get nothing at all.
    const hungry = this.#share >= enough;
    const little = this.#appetite === 'light' ? STEADY.above : STEADY.below;
    const modest = this.#share < little && this.#wish < HUNGRY.above;
    this.#modestSince = modest ? (this.#modestSince ?? at) : undefined;
    const proven = this.#modestSince !== undefined && at - this.#modestSince >= this.#neededMs;
    if (hungry || (this.#appetite === 'light' && !proven)) this.#neededMs = PROVEN_AGAIN_MS;
    this.#appetite = hungry ? 'hungry' : proven ? 'light' : 'steady';
  }

  #count(elapsed: number, before: CpuTimes, now: CpuTimes): void {
    const used = Math.max(0, now.cpuMs - before.cpuMs) / elapsed;
    const { wantedMs = now.cpuMs } = now;
    const wanted = Math.max(0, wantedMs - (before.wantedMs ?? before.cpuMs)) / elapsed;
    this.#share = moved(this.#share, used, elapsed / MEMORY_MS);
    this.#used = moved(this.#used, used, elapsed / WISH_MEMORY_MS);
    this.#slept = moved(this.#slept, Math.max(0, 1 - wanted), elapsed / WISH_MEMORY_MS);
  }

  /** The share of a core that it would use without having to wait. */
  get #wish(): number {
    return this.#used / (this.#used + this.#slept);
  }
}

function moved(from: number, to: number, times: number): number {
  const kept = Math.exp(-times);
  return from * kept + to * (1 - kept);
}
