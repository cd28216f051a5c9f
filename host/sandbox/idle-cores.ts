/** How many of the machine's cores nobody has used lately. */
import { readFileSync } from 'node:fs';

/** Linux counts in hundredths of a second. */
const MS_PER_TICK = 10;
const LOOK_MS = 1_000;

export class IdleCores {
  #last: { at: number; idleMs: number } | undefined;
  #cores = 0;

  /** Of about the last second; 0 at first. Cheap to call often. @param at ms of `performance.now()` */
  read(at: number): number {
    const last = this.#last;
    if (last && at - last.at < LOOK_MS) return this.#cores;
    // `cpu user nice system idle iowait …`
    const [, , , , idle = '0', waiting = '0'] = readFileSync('/proc/stat', 'latin1').split(/\s+/, 6);
    this.#last = { at, idleMs: (Number(idle) + Number(waiting)) * MS_PER_TICK };
    // Who looked long ago knows nothing of the last second.
    const isRecent = last !== undefined && at - last.at < 2 * LOOK_MS;
    this.#cores = isRecent ? (this.#last.idleMs - last.idleMs) / (at - last.at) : 0;
    return this.#cores;
  }
}
