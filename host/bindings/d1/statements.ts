/**
 * Splits a token list into statements and says of each what it does and how many parameters it takes.
 * Needed because libSQL prepares only the first statement of a text, while D1 runs all of them.
 */
import { TOKEN, type Token } from './tokenizer.ts';

export type StatementKind = 'read' | 'write' | 'schema' | 'pragma' | 'transaction' | 'forbidden' | 'other';

export interface Statement {
  kind: StatementKind;
  /** First word behind an EXPLAIN, such as `select`. */
  verb: string;
  tokens: Token[];
  /** Where its text begins: behind the semicolon of the statement before. */
  from: number;
  /** Number of the highest parameter, as sqlite3_bind_parameter_count() counts. */
  parameters: number;
  explain: boolean;
}

const KINDS: Record<string, StatementKind> = {
  select: 'read',
  values: 'read',
  insert: 'write',
  replace: 'write',
  update: 'write',
  delete: 'write',
  create: 'schema',
  drop: 'schema',
  alter: 'schema',
  reindex: 'schema',
  analyze: 'schema',
  pragma: 'pragma',
  begin: 'transaction',
  commit: 'transaction',
  end: 'transaction',
  rollback: 'transaction',
  savepoint: 'transaction',
  release: 'transaction',
  attach: 'forbidden',
  detach: 'forbidden',
  vacuum: 'forbidden',
};

export function splitStatements(tokens: Token[]): Statement[] {
  const statements: Statement[] = [];
  let from = 0;
  let trigger = false;
  let inBody = false;
  for (let index = 0; index <= tokens.length; index++) {
    const token = tokens[index];
    if (token !== undefined) {
      if (token.kind === TOKEN.word) {
        if (index - from <= 5 && token.text === 'trigger' && startsCreate(tokens, from)) trigger = true;
        else if (trigger && !inBody && token.text === 'begin') inBody = true;
        continue;
      }
      if (token.kind !== TOKEN.mark || token.text !== ';') continue;
      // A trigger ends at the `;` behind the END that follows a `;`: what CASE ends never follows one.
      if (inBody && !endsBody(tokens, index)) continue;
    }
    if (index > from) statements.push(describe(tokens.slice(from, index), tokens[from - 1]?.end ?? 0));
    from = index + 1;
    trigger = false;
    inBody = false;
  }
  return statements;
}

function startsCreate(tokens: Token[], from: number): boolean {
  const first = tokens[from];
  if (first?.kind !== TOKEN.word) return false;
  if (first.text !== 'explain') return first.text === 'create';
  return tokens[from + 1]?.text === 'create' || tokens[from + 3]?.text === 'create';
}

function endsBody(tokens: Token[], semicolon: number): boolean {
  const end = tokens[semicolon - 1];
  const before = tokens[semicolon - 2];
  return end?.kind === TOKEN.word && end.text === 'end' && before?.kind === TOKEN.mark && before.text === ';';
}

function describe(tokens: Token[], from: number): Statement {
  let head = 0;
  const explain = word(tokens[0]) === 'explain';
  if (explain) head = word(tokens[1]) === 'query' && word(tokens[2]) === 'plan' ? 3 : 1;
  const verb = word(tokens[head]);
  const kind = verb === 'with' ? kindOfWith(tokens, head) : (KINDS[verb] ?? 'other');
  return { kind, verb, tokens, from, parameters: countParameters(tokens), explain };
}

/** A WITH clause may lead any of SELECT, INSERT, UPDATE and DELETE: the first of them outside parentheses decides. */
function kindOfWith(tokens: Token[], head: number): StatementKind {
  let depth = 0;
  for (let index = head + 1; index < tokens.length; index++) {
    const token = tokens[index];
    if (token === undefined) break;
    if (token.kind === TOKEN.mark) {
      if (token.text === '(') depth++;
      else if (token.text === ')') depth--;
    } else if (depth === 0 && token.kind === TOKEN.word) {
      const kind = KINDS[token.text];
      if (kind === 'read' || kind === 'write') return kind;
    }
  }
  return 'read';
}

function countParameters(tokens: Token[]): number {
  let highest = 0;
  let named: Set<string> | undefined;
  for (const token of tokens) {
    if (token.kind !== TOKEN.variable) continue;
    if (token.text === '?') {
      highest++;
    } else if (token.text.charCodeAt(0) === 63) {
      highest = Math.max(highest, Number(token.text.slice(1)));
    } else {
      named ??= new Set();
      if (!named.has(token.text)) highest++;
      named.add(token.text);
    }
  }
  return highest;
}

function word(token: Token | undefined): string {
  return token?.kind === TOKEN.word ? token.text : '';
}
