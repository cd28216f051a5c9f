/**
 * Mathematical functions that libSQL answers otherwise than D1: there `log` is the logarithm to base 10 and here the
 * natural one, `log` and `ln` of what has no logarithm is NULL there and an error here, and `pow`, `log2` and `trunc`
 * are not here. Each is written as an expression that has its argument once, as it is: it may be a parameter, an
 * aggregate, or another with each use. `mod(x, y)` and `log(b, x)` have no such expression.
 */
import { TOKEN, type Token, tokenize } from './tokenizer.ts';

const LOGARITHMS = new Map([
  ['log', 'log10'],
  ['ln', 'ln'],
]);
/** What stands for the name, for its parenthesis and for the closing one. */
const SUBSTITUTES = new Map([
  // By log10, which is exact for whole powers of two up to 2^850; the natural logarithm is not for 2^29.
  ['log2', ['(log10', '(nullif(max(0,0+(', ')),0))/0.3010299956639812)']],
  ['trunc', ['cast', '(cast((', ')as integer)as real)']],
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

/** The text with functions that libSQL lacks, and a way back for the names of its columns; undefined where it has none. */
export function substitutes(sql: string): { sql: string; named(name: string): string } | undefined {
  if (!/\b(pow|log2|trunc)\b/i.test(sql)) return undefined;
  const tokens = tokenize(sql);
  const edits = tokens.flatMap((token, index) => {
    const name = nameOfCall(tokens, index) ?? '';
    // Its name keeps its case.
    if (name === 'pow' && token.kind === TOKEN.word) {
      return [{ start: token.start, end: token.end, text: `${sql.slice(token.start, token.end)}er` }];
    }
    const [call, open, close] = SUBSTITUTES.get(name) ?? [];
    const end = close === undefined ? undefined : endOfOnlyArgument(tokens, index + 1);
    if (close === undefined || end === undefined) return [];
    const last = tokens[end] as Token;
    // The comment tells them apart that are written otherwise.
    return [
      {
        start: token.start,
        end: (tokens[index + 1] as Token).end,
        text: `${call}/*${sql.slice(token.start, token.end)}*/${open}`,
      },
      { start: last.start, end: last.end, text: close },
    ];
  });
  // A name that is there already could not be told from one of these.
  if (edits.length === 0 || edits.some(({ text }) => sql.includes(text))) return undefined;
  const named = (name: string): string =>
    edits.reduce((whole, { start, end, text }) => whole.replaceAll(text, () => sql.slice(start, end)), name);
  return { sql: edited(sql, edits), named };
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
