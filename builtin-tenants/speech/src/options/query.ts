/**
 * Reads Deepgram's query strings: repeated keys are lists, `true` and `false` are words, unknown keys are remembered so
 * that they can be named in the answer. This is where callers' options are checked.
 */
import { SpeechFailure } from '../failure.ts';

export class Query {
  readonly #values: URLSearchParams;
  readonly #read = new Set<string>();

  constructor(values: URLSearchParams) {
    this.#values = values;
  }

  text(name: string): string | undefined {
    this.#read.add(name);
    const value = this.#values.get(name);
    return value === null || value === '' ? undefined : value;
  }

  list(name: string): string[] {
    this.#read.add(name);
    return this.#values.getAll(name).filter((value) => value !== '');
  }

  /** @throws SpeechFailure for anything but true and false */
  flag(name: string): boolean {
    const value = this.text(name);
    if (value === undefined || value === 'false') return false;
    if (value === 'true') return true;
    throw invalid(name, 'expected true or false');
  }

  /** @throws SpeechFailure */
  number(name: string, range: { min: number; max: number; whole?: boolean }): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const number = Number(value);
    const fits = /^\d+(\.\d+)?$/.test(value) && number >= range.min && number <= range.max;
    if (!fits || (range.whole && !Number.isInteger(number))) {
      throw invalid(name, `expected a ${range.whole ? 'whole ' : ''}number from ${range.min} to ${range.max}`);
    }
    return number;
  }

  /** @throws SpeechFailure */
  choice<const Value extends string>(name: string, values: readonly Value[]): Value | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const found = values.find((candidate) => candidate === value);
    if (found === undefined) throw invalid(name, `expected ${values.join(' or ')}`);
    return found;
  }

  /** Whether it was given and is not `false`. */
  asked(name: string): boolean {
    const value = this.text(name);
    return value !== undefined && value !== 'false';
  }

  /** Keys that nobody asked for, in order, once each. */
  unread(): string[] {
    return [...new Set(this.#values.keys())].filter((name) => !this.#read.has(name));
  }
}

export function invalid(name: string, what: string): SpeechFailure {
  return new SpeechFailure('INVALID_QUERY_PARAMETER', `Query parameter ${name}: ${what}.`);
}
