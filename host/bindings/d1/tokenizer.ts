/**
 * Cuts SQL into tokens exactly where SQLite does (its tokenize.c), so that the guard sees what the database will see.
 * Wherever the two could disagree, a denied name could hide; every branch here mirrors one of SQLite's.
 */

/** What a token is; numbers, because a query is tokenized on the hot path. */
export const TOKEN = {
  /** Keyword or bare identifier. */
  word: 1,
  /** "x", `x` or [x]. */
  quoted: 2,
  /** 'x'. */
  string: 3,
  /** Number or blob literal. */
  literal: 4,
  /** ?, ?1, :a, @a, $a, #a. */
  variable: 5,
  /** One character of punctuation. */
  mark: 6,
} as const;

export interface Token {
  kind: number;
  /** Words in lower case; quoted names and strings without their quotes; `blob` or nothing for literals. */
  text: string;
  /** Index of the first character and of the one after the last. */
  start: number;
  end: number;
}

/** Thrown for SQL that no SQLite would read: an open quote or a NUL character. */
export class UnreadableSql extends Error {}

const SPACE = 1;
const WORD = 2;
const DIGIT = 4;
/** Classes of the ASCII characters; everything above is a word character to SQLite. */
const CLASS = new Uint8Array(128);
for (const code of [9, 10, 11, 12, 13, 32]) CLASS[code] = SPACE;
for (let code = 48; code <= 57; code++) CLASS[code] = WORD | DIGIT;
for (let code = 65; code <= 90; code++) CLASS[code] = WORD;
for (let code = 97; code <= 122; code++) CLASS[code] = WORD;
CLASS[95] = WORD;
CLASS[36] = WORD;

const isWord = (code: number): boolean => code >= 128 || ((CLASS[code] ?? 0) & WORD) !== 0;
const isSpace = (code: number): boolean => code < 128 && CLASS[code] === SPACE;
const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/** @throws UnreadableSql */
export function tokenize(sql: string): Token[] {
  const tokens: Token[] = [];
  const length = sql.length;
  let at = 0;
  while (at < length) {
    const start = at;
    const code = sql.charCodeAt(at);
    // A byte order mark at the start of a token counts as a space.
    if (isSpace(code) || code === 0xfeff) {
      at++;
    } else if (code === 45 && sql.charCodeAt(at + 1) === 45) {
      const end = sql.indexOf('\n', at);
      at = end < 0 ? length : end + 1;
    } else if (code === 47 && sql.charCodeAt(at + 1) === 42 && at + 2 < length) {
      const end = sql.indexOf('*/', at + 2);
      at = end < 0 ? length : end + 2;
    } else if (code === 39 || code === 34 || code === 96) {
      at = endOfQuote(sql, at, code);
      tokens.push({ kind: code === 39 ? TOKEN.string : TOKEN.quoted, text: unquote(sql, start, at), start, end: at });
    } else if (code === 91) {
      const end = sql.indexOf(']', at);
      if (end < 0) throw new UnreadableSql(`unrecognized token: "${sql.slice(at, at + 40)}"`);
      at = end + 1;
      tokens.push({ kind: TOKEN.quoted, text: sql.slice(start + 1, end), start, end: at });
    } else if (code === 63) {
      do at++;
      while (isDigit(sql.charCodeAt(at)));
      tokens.push({ kind: TOKEN.variable, text: sql.slice(start, at), start, end: at });
    } else if (code === 36 || code === 64 || code === 58 || code === 35) {
      at = endOfVariable(sql, at);
      const bare = at === start + 1;
      tokens.push({ kind: bare ? TOKEN.mark : TOKEN.variable, text: sql.slice(start, at), start, end: at });
    } else if (isDigit(code) || (code === 46 && isDigit(sql.charCodeAt(at + 1)))) {
      // SQLite takes word characters right behind a number as part of one illegal token.
      do at++;
      while (at < length && (isWord(sql.charCodeAt(at)) || sql.charCodeAt(at) === 46));
      tokens.push({ kind: TOKEN.literal, text: '', start, end: at });
    } else if (isWord(code)) {
      do at++;
      while (at < length && isWord(sql.charCodeAt(at)));
      if (at === start + 1 && (code === 120 || code === 88) && sql.charCodeAt(at) === 39) {
        at = endOfQuote(sql, at, 39);
        tokens.push({ kind: TOKEN.literal, text: 'blob', start, end: at });
      } else {
        tokens.push({ kind: TOKEN.word, text: sql.slice(start, at).toLowerCase(), start, end: at });
      }
    } else if (code === 0) {
      throw new UnreadableSql('SQL must not contain NUL characters');
    } else {
      at++;
      tokens.push({ kind: TOKEN.mark, text: sql.charAt(start), start, end: at });
    }
  }
  return tokens;
}

/** Index after the closing quote; a doubled quote is one character of the text. */
function endOfQuote(sql: string, start: number, quote: number): number {
  const mark = String.fromCharCode(quote);
  let at = start + 1;
  for (;;) {
    const end = sql.indexOf(mark, at);
    if (end < 0) throw new UnreadableSql(`unrecognized token: "${sql.slice(start, start + 40)}"`);
    if (sql.charCodeAt(end + 1) !== quote) {
      if (sql.slice(start, end).includes('\0')) throw new UnreadableSql('SQL must not contain NUL characters');
      return end + 1;
    }
    at = end + 2;
  }
}

function unquote(sql: string, start: number, end: number): string {
  const mark = sql.charAt(start);
  const inner = sql.slice(start + 1, end - 1);
  return inner.includes(mark) ? inner.replaceAll(mark + mark, mark) : inner;
}

/** `$name(...)` and `::` belong to the variable, as in Tcl: a quote in there opens no string. */
function endOfVariable(sql: string, start: number): number {
  let at = start + 1;
  let characters = 0;
  for (; at < sql.length; at++) {
    const code = sql.charCodeAt(at);
    if (isWord(code)) {
      characters++;
    } else if (code === 40 && characters > 0) {
      do at++;
      while (at < sql.length && !isSpace(sql.charCodeAt(at)) && sql.charCodeAt(at) !== 41);
      return at < sql.length && sql.charCodeAt(at) === 41 ? at + 1 : at;
    } else if (code === 58 && sql.charCodeAt(at + 1) === 58) {
      at++;
    } else {
      break;
    }
  }
  return at;
}
