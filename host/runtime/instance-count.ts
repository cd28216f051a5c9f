/**
 * Whether a slug needs one more instance, or one less: one event loop uses one core, so more help only where those there
 * are want a core all the time, requests wait, and the machine has cores that nobody uses (decision 23).
 */

export interface Load {
  /** Instances in service. */
  count: number;
  /** Time that their event loops have run so far, and have waited for a core, ms, all together. */
  ranMs: number;
  waitedMs: number;
  /** Requests and runs under way. */
  inFlight: number;
}

export interface CountLimits {
  /** Instances at most. */
  most: number;
  /** Cores that have to be idle for one more; 0: however busy the machine is. */
  idleCores: number;
}

export type Change = 'more' | 'fewer' | undefined;

/** Edges report what is under way once a second. */
const LOOK_MS = 1_000;
/** Share of a core that an event loop wants, by itself, when it is the limit. */
const FULL = 0.9;
/** Share of a core that each of one less would want: less than {@link FULL}, so that what was started stays for a while. */
const EASY = 0.6;
/** How many looks are taken together. */
const BUSY_LOOKS = 3;
const EASY_LOOKS = 10;
/** An instance that gets less than this share of the time that it wants does not have a core to itself: others use the machine. */
const SERVED = 0.7;

interface Look {
  /** Since the look before. */
  elapsedMs: number;
  ranMs: number;
  wantedMs: number;
  inFlight: number;
  idleCores: number;
}

export class InstanceCount {
  #last: { at: number; ranMs: number; waitedMs: number } | undefined;
  #looks: Look[] = [];

  /**
   * Call several times a second.
   * @param at ms; @param idleCores of the machine, lately
   */
  sample(at: number, { count, ranMs, waitedMs, inFlight }: Load, idleCores: number, limits: CountLimits): Change {
    const last = this.#last;
    if (last && at - last.at < LOOK_MS) return undefined;
    this.#last = { at, ranMs, waitedMs };
    if (!last) return undefined;
    const ran = ranMs - last.ranMs;
    const wantedMs = ran + waitedMs - last.waitedMs;
    this.#looks = [...this.#looks, { elapsedMs: at - last.at, ranMs: ran, wantedMs, inFlight, idleCores }];
    this.#looks = this.#looks.slice(-EASY_LOOKS);
    const change = this.#needsMore(count, limits) ? 'more' : this.#canDoWithFewer(count, limits) ? 'fewer' : undefined;
    if (change) this.startAfresh();
    return change;
  }

  /** The next change has to be seen anew: other instances than these are counted from now on. */
  startAfresh(): void {
    this.#last = undefined;
    this.#looks = [];
  }

  #needsMore(count: number, { most, idleCores }: CountLimits): boolean {
    const looks = this.#looks.slice(-BUSY_LOOKS);
    if (looks.length < BUSY_LOOKS || count >= most) return false;
    const wanted = sum(looks, 'wantedMs') / sum(looks, 'elapsedMs');
    const waits = sum(looks, 'inFlight') / looks.length > count;
    return wanted >= FULL * count && waits && sum(looks, 'idleCores') / looks.length >= idleCores;
  }

  #canDoWithFewer(count: number, { most, idleCores }: CountLimits): boolean {
    const looks = this.#looks;
    if (looks.length < EASY_LOOKS || count === 1) return false;
    const wantedMs = sum(looks, 'wantedMs');
    const isCrowded = idleCores > 0 && sum(looks, 'ranMs') < wantedMs * SERVED;
    return count > most || isCrowded || wantedMs / sum(looks, 'elapsedMs') < EASY * (count - 1);
  }
}

function sum(looks: Look[], name: keyof Look): number {
  return looks.reduce((total, look) => total + look[name], 0);
}
