/**
 * The owner's SQL as SQLite reads it: one statement that only reads, with what Cloudflare's dialect (of ClickHouse) calls
 * otherwise. Pure; the text is cut into tokens where SQLite does.
 * https://developers.cloudflare.com/analytics/analytics-engine/sql-reference/
 */
import { TOKEN, type Token, tokenize, UnreadableSql } from '../d1/tokenizer.ts';

/** Why a query cannot run, in words for its owner. */
export class QueryFault extends Error {}

/** Longest text, characters. */
export const MOST_CHARACTERS = 20_000;
/** Parentheses within each other. */
const DEEPEST = 100;

const SECONDS: Record<string, number> = { second: 1, minute: 60, hour: 3_600, day: 86_400, week: 604_800 };
/** Statements that begin with WITH may go on with one of them. */
const WRITES = new Set(['insert', 'update', 'delete', 'replace']);

const whole = (dividend: string, divisor: string | number) => `CAST((${dividend}) / (${divisor}) AS INTEGER)`;
const start = (seconds: string | number) => (time: string) => `(${whole(time, seconds)} * ${seconds})`;

interface Translation {
  /** Arguments. */
  takes: number;
  text(...given: string[]): string;
}
const of = (takes: number, text: Translation['text']): Translation => ({ takes, text });

const FUNCTIONS: Record<string, Translation> = {
  now: of(0, () => 'unixepoch()'),
  todatetime: of(1, (value) => (value.startsWith("'") ? `unixepoch(${value})` : `(${value})`)),
  tounixtimestamp: of(1, (time) => `(${time})`),
  touint8: of(1, (value) => `CAST(${value} AS INTEGER)`),
  touint32: of(1, (value) => `CAST(${value} AS INTEGER)`),
  intdiv: of(2, (dividend, divisor) => whole(dividend, divisor)),
  tostartofinterval: of(2, (time, seconds) => {
    if (!/^[1-9]\d*$/.test(seconds))
      throw new QueryFault("toStartOfInterval() takes an INTERVAL, such as INTERVAL '5' MINUTE.");
    return start(seconds)(time);
  }),
  tostartofminute: of(1, start(60)),
  tostartofhour: of(1, start(3_600)),
  tostartofday: of(1, start(86_400)),
  if: of(3, (test, yes, no) => `iif(${test}, ${yes}, ${no})`),
  countif: of(1, (test) => `count(CASE WHEN ${test} THEN 1 END)`),
  sumif: of(2, (value, test) => `sum(CASE WHEN ${test} THEN ${value} ELSE 0 END)`),
  avgif: of(2, (value, test) => `avg(CASE WHEN ${test} THEN ${value} END)`),
};

/** @throws QueryFault */
export function translate(sql: string): string {
  if (sql.length > MOST_CHARACTERS) throw new QueryFault(`The query is longer than ${MOST_CHARACTERS} characters.`);
  const tokens = withoutEnd(readTokens(sql));
  if (tokens.length === 2 && isWord(tokens[0], 'show') && isWord(tokens[1], 'tables'))
    return "SELECT name AS dataset FROM sqlite_master WHERE type = 'view' ORDER BY name";
  checkReads(tokens);
  return new Translator(sql, tokens).all();
}

function readTokens(sql: string): Token[] {
  try {
    return tokenize(sql);
  } catch (error) {
    if (error instanceof UnreadableSql) throw new QueryFault(error.message);
    throw error;
  }
}

/** Without semicolons and `FORMAT JSON` at the end. */
function withoutEnd(all: Token[]): Token[] {
  let end = all.length;
  const trim = () => {
    while (isMark(all[end - 1], ';')) end--;
  };
  trim();
  const format = all[end - 1];
  if (isWord(all[end - 2], 'format') && format?.kind === TOKEN.word) {
    if (format.text !== 'json') throw new QueryFault('Answers are JSON: leave out FORMAT.');
    end -= 2;
  }
  trim();
  return all.slice(0, end);
}

/**
 * Only what begins with SELECT or WITH, and does not go on with a change. SQLite has changes in no other place: a CTE
 * and a subquery are queries.
 */
function checkReads(tokens: readonly Token[]): void {
  const [first] = tokens;
  if (!isWord(first, 'select') && !isWord(first, 'with'))
    throw new QueryFault('Only SELECT, and SHOW TABLES, is taken.');
  let depth = 0;
  for (const [at, token] of tokens.entries()) {
    if (isMark(token, ';')) throw new QueryFault('One statement is taken at a time.');
    if (token.kind === TOKEN.variable)
      throw new QueryFault(`The query has a parameter, ${token.text}; write its value.`);
    if (isMark(token, '(') && ++depth > DEEPEST) throw new QueryFault(`More than ${DEEPEST} parentheses are open.`);
    if (isMark(token, ')') && --depth < 0) throw new QueryFault('A parenthesis is closed that was not opened.');
    // `replace(…)` is a function, too.
    const changes = depth === 0 && token.kind === TOKEN.word && WRITES.has(token.text) && !isMark(tokens[at + 1], '(');
    if (changes) throw new QueryFault('Data points are written by writeDataPoint() alone; ask with SELECT.');
  }
  if (depth !== 0) throw new QueryFault('A parenthesis is not closed.');
}

class Translator {
  readonly #sql: string;
  readonly #tokens: readonly Token[];
  /** Index of each opening parenthesis -> of the one that closes it. */
  readonly #closing = new Map<number, number>();

  constructor(sql: string, tokens: readonly Token[]) {
    this.#sql = sql;
    this.#tokens = tokens;
    const open: number[] = [];
    for (const [at, token] of tokens.entries()) {
      if (isMark(token, '(')) open.push(at);
      const opened = isMark(token, ')') ? open.pop() : undefined;
      if (opened !== undefined) this.#closing.set(opened, at);
    }
  }

  all(): string {
    return this.#range(0, this.#tokens.length);
  }

  #range(from: number, to: number): string {
    let text = '';
    for (let at = from; at < to; ) {
      const { written, next } = this.#one(at, to);
      const gap = at > from && (this.#tokens[at - 1]?.end ?? 0) < (this.#tokens[at]?.start ?? 0);
      text += `${gap ? ' ' : ''}${written}`;
      at = next;
    }
    return text;
  }

  #one(at: number, to: number): { written: string; next: number } {
    const token = this.#tokens[at] as Token;
    const written = this.#sql.slice(token.start, token.end);
    if (token.kind !== TOKEN.word) return { written, next: at + 1 };
    if (token.text === 'interval') {
      const interval = this.#interval(at, to);
      if (interval !== undefined) return { written: String(interval), next: at + 3 };
    }
    const known = Object.hasOwn(FUNCTIONS, token.text) ? FUNCTIONS[token.text] : undefined;
    const closing = this.#closing.get(at + 1);
    if (!known || closing === undefined) return { written, next: at + 1 };
    const given = this.#arguments(at + 2, closing);
    if (given.length !== known.takes)
      throw new QueryFault(
        `${written}() takes ${known.takes} argument${known.takes === 1 ? '' : 's'} here, not ${given.length}.`,
      );
    return { written: known.text(...given), next: closing + 1 };
  }

  /** `INTERVAL '5' MINUTE` in seconds; undefined where it is something else of that name. */
  #interval(at: number, to: number): number | undefined {
    const [amount, unit] = [this.#tokens[at + 1], this.#tokens[at + 2]];
    if (!amount || !unit || at + 2 >= to || unit.kind !== TOKEN.word) return undefined;
    if (amount.kind !== TOKEN.string && amount.kind !== TOKEN.literal) return undefined;
    const digits = amount.kind === TOKEN.string ? amount.text : this.#sql.slice(amount.start, amount.end);
    if (!/^\d{1,9}$/.test(digits)) throw new QueryFault("INTERVAL takes a whole number, such as INTERVAL '5' MINUTE.");
    const seconds = Object.hasOwn(SECONDS, unit.text) ? SECONDS[unit.text] : undefined;
    if (seconds === undefined)
      throw new QueryFault(
        `INTERVAL takes ${Object.keys(SECONDS).join(', ').toUpperCase()} here, not ${unit.text.slice(0, 40)}.`,
      );
    return Number(digits) * seconds;
  }

  #arguments(from: number, closing: number): string[] {
    if (from === closing) return [];
    const given: string[] = [];
    let begin = from;
    for (let at = from; at <= closing; at++) {
      if (at === closing || isMark(this.#tokens[at], ',')) {
        given.push(this.#range(begin, at));
        begin = at + 1;
      } else {
        at = this.#closing.get(at) ?? at;
      }
    }
    return given;
  }
}

function isWord(token: Token | undefined, text: string): boolean {
  return token?.kind === TOKEN.word && token.text === text;
}

function isMark(token: Token | undefined, text: string): boolean {
  return token?.kind === TOKEN.mark && token.text === text;
}
