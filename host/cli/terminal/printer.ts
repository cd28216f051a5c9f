/**
 * What a command says: one JSON document with `--json`, text for people otherwise. Progress is for people only.
 */
import type { Terminal } from './terminal.ts';

export class Printer {
  readonly #terminal: Terminal;
  readonly json: boolean;

  constructor(terminal: Terminal, json: boolean) {
    this.#terminal = terminal;
    this.json = json;
  }

  /** The result: `document` with `--json`, `text` otherwise. Call it once. */
  result(document: unknown, text: string): void {
    this.#terminal.out(this.json ? `${JSON.stringify(document, bigintText, 2)}\n` : `${text.replace(/\n$/, '')}\n`);
  }

  /** A line on stderr where a person looks on; nothing otherwise. */
  progress(line: string): void {
    if (this.#terminal.interactive && !this.json) this.#terminal.err(line);
  }
}

/** Columns as wide as their widest cell; the last one ends where it ends. */
export function table(rows: (string | number)[][]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, String(cell).length);
  }
  return rows
    .map((row) =>
      row
        .map((cell, column) => String(cell).padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function bigintText(_: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}
