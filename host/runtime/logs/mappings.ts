/**
 * Looks places up in the `mappings` of a source map (ECMA-426, https://tc39.es/ecma426/#sec-mappings). Node's SourceMap
 * makes an object of every one of them: for the largest code that may be deployed that takes 0.4 s and 250 MB.
 */

/** Counted from 0, as all of these numbers are. */
export interface OriginalPlace {
  /** Index into the map's `sources`. */
  source: number;
  line: number;
  column: number;
}

/** What all segments up to a place add up to. */
interface Sum extends OriginalPlace {
  /** Where the next segment begins in the text. */
  at: number;
  generatedLine: number;
  generatedColumn: number;
  /** Whether the last segment names a source. */
  isMapped: boolean;
}

/** A sum is kept for each of so many characters, from where a search then begins. */
const STRIDE = 16_384;
const COMMA = 44;
const SEMICOLON = 59;
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const VALUE_OF = new Int8Array(128).fill(-1);
for (let value = 0; value < DIGITS.length; value++) VALUE_OF[DIGITS.charCodeAt(value)] = value;

export class Mappings {
  readonly #text: string;
  readonly #marks: Sum[] = [];

  /** @throws TypeError when it is not a text of mappings */
  constructor(text: string) {
    this.#text = text;
    const sum: Sum = {
      at: 0,
      generatedLine: 0,
      generatedColumn: 0,
      source: 0,
      line: 0,
      column: 0,
      isMapped: false,
    };
    for (let next = 0; this.#step(sum); ) {
      if (sum.at < next) continue;
      this.#marks.push({ ...sum });
      next = sum.at + STRIDE;
    }
  }

  /** Of the last segment that begins at the place or before; undefined: there is none, or it names no source. */
  find(line: number, column: number): OriginalPlace | undefined {
    const mark = this.#marks.findLast((candidate) => !isBehind(candidate, line, column));
    if (!mark) return undefined;
    const sum = { ...mark };
    let found = mark;
    while (this.#step(sum) && !isBehind(sum, line, column)) found = { ...sum };
    return found.isMapped ? { source: found.source, line: found.line, column: found.column } : undefined;
  }

  /** Adds the next segment. @returns false when there is none */
  #step(sum: Sum): boolean {
    const text = this.#text;
    let { at } = sum;
    for (; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === SEMICOLON) {
        sum.generatedLine++;
        sum.generatedColumn = 0;
      } else if (code !== COMMA) break;
    }
    let field = 0;
    let value = 0;
    let shift = 0;
    const begin = at;
    for (; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === COMMA || code === SEMICOLON) break;
      const digit = VALUE_OF[code] ?? -1;
      if (digit < 0) throw new TypeError('The source map’s mappings contain a character that is not base64 VLQ.');
      value |= (digit & 31) << shift;
      shift += 5;
      if (digit & 32) continue;
      add(sum, field++, value & 1 ? -(value >>> 1) : value >>> 1);
      value = 0;
      shift = 0;
    }
    sum.isMapped = field >= 4;
    sum.at = at;
    return at > begin;
  }
}

function add(sum: Sum, field: number, value: number): void {
  if (field === 0) sum.generatedColumn += value;
  else if (field === 1) sum.source += value;
  else if (field === 2) sum.line += value;
  else if (field === 3) sum.column += value;
}

function isBehind({ generatedLine, generatedColumn }: Sum, line: number, column: number): boolean {
  return generatedLine > line || (generatedLine === line && generatedColumn > column);
}
