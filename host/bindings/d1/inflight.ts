/**
 * What every connection is doing, in a small file shared by supervisor and engine: when an engine dies,
 * the supervisor reads from it whom to answer what. A write to it costs a microsecond, a message would cost twenty.
 */
import { ftruncateSync, readSync, writeSync } from 'node:fs';
import { monotonicMs } from '../../shared/clock.ts';

export const PHASE = {
  /** No request; the connection may go to the next engine. */
  idle: 0,
  /** A request came (perhaps not all of it), nothing of it was run. */
  received: 1,
  /** Its queries are running. */
  running: 2,
  /** Run, but not committed yet. */
  uncommitted: 3,
  /** The answer is on its way. */
  answering: 4,
} as const;

/** Connections at once; more are refused. */
export const MAX_CONNECTIONS = 1024;

export interface Entry {
  phase: number;
  /** ms of the machine's monotonic clock. */
  since: number;
}

const RECORD = 16;

/** The engine's side. */
export class InFlightWriter {
  readonly #file: number;
  readonly #record = Buffer.alloc(RECORD);
  readonly #phases = new Uint8Array(MAX_CONNECTIONS);
  #sequence = 0;

  constructor(file: number) {
    this.#file = file;
  }

  phase(slot: number): number {
    return this.#phases[slot] ?? PHASE.idle;
  }

  set(slot: number, phase: number): void {
    this.#phases[slot] = phase;
    const record = this.#record;
    record.writeDoubleLE(monotonicMs(), 0);
    record.writeUInt32LE(phase, 8);
    // Two tables are equal only if nothing happened in between.
    record.writeUInt32LE(++this.#sequence >>> 0, 12);
    writeSync(this.#file, record, 0, RECORD, slot * RECORD);
  }
}

/** The supervisor's side. */
export class InFlightReader {
  readonly #file: number;
  #table = Buffer.alloc(MAX_CONNECTIONS * RECORD);
  #previous = Buffer.alloc(MAX_CONNECTIONS * RECORD);

  constructor(file: number) {
    this.#file = file;
    ftruncateSync(file, MAX_CONNECTIONS * RECORD);
  }

  /** Reads the table of `slots` connections; answers whether it changed since the last read. */
  refresh(slots: number): boolean {
    [this.#table, this.#previous] = [this.#previous, this.#table];
    const length = slots * RECORD;
    readSync(this.#file, this.#table, 0, length, 0);
    return this.#table.compare(this.#previous, 0, length, 0, length) !== 0;
  }

  entry(slot: number): Entry {
    return { since: this.#table.readDoubleLE(slot * RECORD), phase: this.#table.readUInt32LE(slot * RECORD + 8) };
  }

  clear(slot: number): void {
    writeSync(this.#file, Buffer.alloc(RECORD), 0, RECORD, slot * RECORD);
  }
}
