/**
 * The transactions since the last snapshot, written down before the chain sees them.
 * A chain that dies loses its memory; replaying this file on the snapshot brings back all that anybody was told.
 */
import { closeSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs';

export interface JournalEntry {
  /** Signed transaction, 0x-hexadecimal. */
  raw: `0x${string}`;
  /** When it was sent, ms since the epoch: a replay gives its block this time. */
  at: number;
}

export class Journal {
  readonly #path: string;
  readonly #file: number;
  #next = 0;

  /** Opens or creates the file, mode 0600. */
  constructor(path: string) {
    this.#path = path;
    this.#file = openSync(path, 'a+', 0o600);
    // Numbers go on where the process before left off: two entries of one number would be one.
    for (const line of this.#lines()) {
      const record = parse(line);
      if (record) this.#next = Math.max(this.#next, ('refused' in record ? record.refused : record.number) + 1);
    }
  }

  /** What is to be replayed, in order. A torn last line was never sent to the chain, and is left out. */
  read(): JournalEntry[] {
    const entries = new Map<number, JournalEntry>();
    for (const line of this.#lines()) {
      const record = parse(line);
      if (!record) continue;
      if ('refused' in record) entries.delete(record.refused);
      else entries.set(record.number, { raw: record.raw, at: record.at });
    }
    return [...entries.values()];
  }

  /** Survives the end of this process as soon as it returns (the kernel holds it); `sync` covers a power cut. */
  append(entry: JournalEntry): number {
    const number = this.#next++;
    this.#write({ number, ...entry });
    return number;
  }

  /** The chain refused this one: a replay must not try it again. */
  refuse(number: number): void {
    this.#write({ refused: number });
  }

  sync(): void {
    fsyncSync(this.#file);
  }

  /** A snapshot holds everything now. */
  clear(): void {
    ftruncateSync(this.#file, 0);
    fsyncSync(this.#file);
  }

  close(): void {
    closeSync(this.#file);
  }

  #lines(): string[] {
    return readFileSync(this.#path, 'utf8').split('\n');
  }

  #write(record: object): void {
    // The line starts with a line feed, so that a torn line before it stays a line of its own.
    writeSync(this.#file, `\n${JSON.stringify(record)}`);
  }
}

type Line = { number: number; raw: `0x${string}`; at: number } | { refused: number };

function parse(line: string): Line | undefined {
  try {
    return JSON.parse(line) as Line;
  } catch {
    return undefined;
  }
}
