/**
 * Mathematical functions that libSQL answers otherwise than D1: there `log` is the logarithm to base 10 and here the
 * natural one, `log` and `ln` of what has no logarithm is NULL there and an error here, and `pow` is only `power` here.
 */
import { TOKEN, type Token, tokenize } from './tokenizer.ts';

const LOGARITHMS = new Map([
  ['log', 'log10'],
  ['ln', 'ln'],
]);
/** Words behind which a name with a parenthesis is no call. */
const BEFORE_NAME = new Set(['into', 'table', 'exists', 'references', 'view', 'with', 'recursive', 'as', 'index']);

interface Edit {
  start: number;
  end: number;
  text: string;
}

/** The text with D1's logarithms, to be tried instead of itself; undefined where it has none. */
export function logarithms(sql: string): string | undefined {
  if (!/\b(log|ln)\b/i.test(sql)) return undefined;
  const tokens = tokenize(sql);
  const edits: Edit[] = [];
  for (let index = 0; index < tokens.length; index++) {
    const name = LOGARITHMS.get(nameOfCall(tokens, index) ?? '');
    const end = name === undefined ? undefined : endOfOnlyArgument(tokens, index + 1);
    if (end === undefined) continue;
    // The second of two common tables: WITH a AS (...), log(x) AS (...).
    if (isWord(tokens[end + 1], 'as') && (isWord(tokens[end + 2], 'materialized') || tokens[end + 2]?.text === '('))
      continue;
    const { start } = tokens[index] as Token;
    edits.push({ start, end: (tokens[index + 1] as Token).end, text: `${name}(nullif(max(0,0+(` });
    const close = tokens[end] as Token;
    edits.push({ start: close.start, end: close.end, text: ')),0))' });
  }
  return edits.length === 0 ? undefined : edited(sql, edits);
}

/** The text to try when libSQL complains of an unknown `pow`, with a way back for the names of its columns. */
export function powers(sql: string, message: string): { sql: string; named(name: string): string } | undefined {
  if (!/^no such function: pow$/i.test(message) || /power/i.test(sql)) return undefined;
  const tokens = tokenize(sql);
  const edits = tokens.flatMap((token, index) =>
    nameOfCall(tokens, index) === 'pow' && token.kind === TOKEN.word
      ? [{ start: token.end, end: token.end, text: 'er' }]
      : [],
  );
  return { sql: edited(sql, edits), named: (name) => name.replace(/power/gi, (word) => word.slice(0, 3)) };
}

function nameOfCall(tokens: Token[], at: number): string | undefined {
  const token = tokens[at];
  if (token === undefined || (token.kind !== TOKEN.word && token.kind !== TOKEN.quoted)) return undefined;
  if (tokens[at + 1]?.kind !== TOKEN.mark || tokens[at + 1]?.text !== '(') return undefined;
  const before = tokens[at - 1];
  if (before?.kind === TOKEN.mark && before.text === '.') return undefined;
  if (before?.kind === TOKEN.word && BEFORE_NAME.has(before.text)) return undefined;
  // CREATE INDEX i ON log(a): its first ON precedes a table.
  if (isWord(before, 'on') && tokens.slice(0, 3).some((one) => isWord(one, 'index'))) {
    if (tokens.findIndex((one) => isWord(one, 'on')) === at - 1) return undefined;
  }
  return token.text.toLowerCase();
}

/** Index of the parenthesis that closes the one at `open`, where exactly one argument is between them. */
function endOfOnlyArgument(tokens: Token[], open: number): number | undefined {
  let depth = 0;
  for (let index = open; index < tokens.length; index++) {
    const { kind, text } = tokens[index] as Token;
    if (kind !== TOKEN.mark) continue;
    if (text === '(') depth++;
    else if (text === ',' && depth === 1) return undefined;
    else if (text === ')' && --depth === 0) return index === open + 1 ? undefined : index;
  }
  return undefined;
}

function isWord(token: Token | undefined, text: string): boolean {
  return token?.kind === TOKEN.word && token.text === text;
}

function edited(sql: string, edits: Edit[]): string {
  let result = '';
  let from = 0;
  for (const { start, end, text } of edits.toSorted((a, b) => a.start - b.start)) {
    result += sql.slice(from, start) + text;
    from = end;
  }
  return result + sql.slice(from);
}
