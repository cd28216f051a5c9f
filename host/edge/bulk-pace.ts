/**
 * Paces large answers while several tenants are served. The edge is one event loop: callers that take in bytes as
 * quickly as a handler makes them would fill every turn of it, and the processors of a small machine, and whoever asks
 * for something small would wait behind them. A tenant that is alone is not paced.
 */
import type { BulkReader, BulkTurns } from '../http/client/connection.ts';
import type { Contention } from './contention.ts';

/** Bytes a millisecond of all large answers together: 4 Gbit a second. */
const BYTES_PER_MS = 524_288;
/** What may be caught up on after a late timer, ms. */
const MAX_SAVED_MS = 4;
/** What a reader is expected to read at once, bytes. */
const TYPICAL_READ = 131_072;

/** One tenant's large answers. */
export class BulkLine implements BulkTurns {
  readonly reading = new Set<BulkReader>();
  readonly waiting = new Set<BulkReader>();
  readonly #pace: BulkPace;

  constructor(pace: BulkPace) {
    this.#pace = pace;
  }

  enter(reader: BulkReader): void {
    this.#pace.lines.add(this);
    if (this.#pace.holding) {
      this.waiting.add(reader);
      reader.hold();
    } else this.reading.add(reader);
  }

  leave(reader: BulkReader): void {
    this.reading.delete(reader);
    this.waiting.delete(reader);
    if (this.reading.size === 0 && this.waiting.size === 0) this.#pace.lines.delete(this);
  }

  spend(bytes: number): void {
    this.#pace.spend(bytes);
  }
}

/** All large answers of an edge. */
export class BulkPace {
  /** Readers wait for their turns. */
  holding = false;
  /** With readers. */
  readonly lines = new Set<BulkLine>();
  readonly #named = new Map<string, BulkLine>();
  #left = BYTES_PER_MS;
  #filledAt = 0;
  readonly #contention: Contention;

  constructor(contention: Contention) {
    this.#contention = contention;
  }

  /** The line of a tenant whose answers come from no instance. */
  lineOf(name: string): BulkLine {
    const line = this.#named.get(name) ?? new BulkLine(this);
    this.#named.set(name, line);
    return line;
  }

  /** Forgets the lines of tenants without an answer under way. */
  trim(): void {
    for (const [name, line] of this.#named) if (!this.lines.has(line)) this.#named.delete(name);
  }

  spend(bytes: number): void {
    if (this.#contention.alone) return;
    if (!this.holding) this.#fill();
    this.#left -= bytes;
    if (this.#left > 0) return;
    for (const { reading, waiting } of this.lines) {
      for (const reader of reading) {
        waiting.add(reader);
        reader.hold();
      }
      reading.clear();
    }
    if (this.holding) return;
    this.holding = true;
    setTimeout(this.#turn, 1);
  }

  #fill(): void {
    const now = performance.now();
    const elapsed = Math.min(now - this.#filledAt, MAX_SAVED_MS);
    this.#filledAt = now;
    this.#left = Math.min(this.#left + elapsed * BYTES_PER_MS, MAX_SAVED_MS * BYTES_PER_MS);
  }

  /** Lets readers go on, each tenant's in turn, as far as the bytes of the time that went by are expected to reach. */
  readonly #turn = (): void => {
    this.#fill();
    let expected = this.#left;
    let found = true;
    while (found && expected > 0) {
      found = false;
      for (const { reading, waiting } of this.lines) {
        const [reader] = waiting;
        if (reader === undefined) continue;
        found = true;
        waiting.delete(reader);
        reading.add(reader);
        reader.proceed();
        expected -= TYPICAL_READ;
        if (expected <= 0) break;
      }
    }
    this.holding = expected <= 0;
    if (this.holding) setTimeout(this.#turn, 1);
  };
}
