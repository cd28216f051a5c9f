/**
 * Two mendings of libSQL's answers towards D1's: "text" in double quotes that names no column is a string there,
 * and messages say at which offset the error is.
 */
import type { Statement } from './statements.ts';
import { TOKEN, type Token } from './tokenizer.ts';

/** More names than that are not looked at: each is one more time that the text is prepared. */
const MAX_NAMES = 1000;

/** A text in which some double-quoted names became strings. */
export interface Mended {
  sql: string;
  /** Column names that changed with it -> what D1 calls them. */
  names: ReadonlyMap<string, string>;
}

/**
 * Makes strings of the double-quoted names that are no columns. Yields texts to prepare and is given the complaint
 * about each; `undefined` when there was none.
 * @param message libSQL's complaint about the text as it is
 * @returns undefined where something else is wrong
 */
export function* mendStrings(
  text: string,
  statement: Statement,
  message: string,
): Generator<string, Mended | undefined, string | undefined> {
  if (statement.kind !== 'read' && statement.kind !== 'write') return undefined;
  const base = statement.tokens[0]?.start ?? 0;
  const quoted = statement.tokens.filter(
    (token) =>
      token.kind === TOKEN.quoted && text.charAt(token.start - base) === '"' && !isQualified(statement.tokens, token),
  );
  const complaintOf = (token: Token): string => `no such column: ${token.text}`;
  if (quoted.length > MAX_NAMES || !quoted.some((token) => message === complaintOf(token))) return undefined;
  const strings: Token[] = [];
  for (const token of quoted) {
    // As the only name: whatever else is no column cannot be complained of in its place. Where SQL wants a name, such
    // as a table's, it takes a string for one.
    const others = quoted.filter((other) => other !== token);
    if ((yield rewrite(text, base, others).sql) === complaintOf(token)) strings.push(token);
  }
  const mended = rewrite(text, base, strings);
  return (yield mended.sql) === undefined ? mended : undefined;
}

/** `"a"."b"` is never a string. */
function isQualified(tokens: Token[], token: Token): boolean {
  const at = tokens.indexOf(token);
  return tokens[at - 1]?.text === '.' || tokens[at + 1]?.text === '.';
}

function rewrite(text: string, base: number, tokens: Token[]): Mended {
  const names = new Map<string, string>();
  let sql = '';
  let from = 0;
  for (const token of tokens) {
    const literal = `'${token.text.replaceAll("'", "''")}'`;
    sql += text.slice(from, token.start - base) + literal;
    from = token.end - base;
    // An unnamed column is called by its text, which D1 leaves as written.
    names.set(literal, text.slice(token.start - base, token.end - base));
  }
  return { sql: sql + text.slice(from), names };
}

const WITH_OFFSET = [
  /^near "(.+)": syntax error$/s,
  /^no such column: (?:.*\.)?([^.]+)$/s,
  /^no such function: (.+)$/s,
  /^unrecognized token: "(.+)"$/s,
];

/**
 * Where a message's token is in its statement, in bytes of UTF-8 as SQLite counts; undefined where that cannot be told
 * for sure.
 * @param sql the whole text that the statement is in
 */
export function offsetOf(sql: string, { tokens, from }: Statement, message: string): number | undefined {
  for (const pattern of WITH_OFFSET) {
    const name = pattern.exec(message)?.[1]?.toLowerCase();
    if (name === undefined) continue;
    const found = tokens.filter((token) => token.text.toLowerCase() === name);
    if (found.length !== 1) return undefined;
    let at = tokens.indexOf(found[0] as Token);
    if (message.startsWith('no such column: ')) {
      if (isUnplaced(tokens, at)) return undefined;
      // SQLite points to the table in front of a column.
      while (tokens[at - 1]?.text === '.') at -= 2;
    }
    // D1 leaves out blanks between two statements, not comments, and not what is in front of the first one.
    const start = from === 0 ? 0 : sql.length - sql.slice(from).trimStart().length;
    return Buffer.byteLength(sql.slice(start, tokens[at]?.start));
  }
  return undefined;
}

/** Columns that SQLite complains of without their place: what an UPDATE sets, and what a join is ON. */
function isUnplaced(tokens: Token[], at: number): boolean {
  const before = tokens[at - 1]?.text;
  if (tokens[at + 1]?.text === '=' && (before === 'set' || before === ',')) return true;
  const words = tokens.slice(0, at).map(({ kind, text }) => (kind === TOKEN.word ? text : ''));
  return words.includes('join') && words.lastIndexOf('on') > words.indexOf('join');
}
