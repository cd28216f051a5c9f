/**
 * Refuses SQL that would reach beyond the tenant's tables: the host's files, other databases, the connection's settings.
 * libSQL 0.5 has no usable authorizer, so this decides on tokens. It is one of two walls; the sandbox is the other.
 */
import { type Statement, splitStatements } from './statements.ts';
import { TOKEN, type Token, tokenize } from './tokenizer.ts';

/**
 * Functions of libSQL 0.5.29 that touch files, run SQL from text, load code or configure encryption.
 * A test compares the list with the functions of the installed libSQL, so that a new one cannot slip in.
 */
export const DENIED_FUNCTIONS: ReadonlySet<string> = new Set([
  'edit',
  'fts3_tokenizer',
  'fts5',
  'fts5_source_id',
  'libsql_vector_idx',
  'load_extension',
  'lsmode',
  'readfile',
  'rtreecheck',
  'rtreedepth',
  'rtreenode',
  'sha3_query',
  'sqlite3mc_codec_data',
  'sqlite3mc_config',
  'sqlite3mc_config_table',
  'sqlite3mc_version',
  'sqlite_compileoption_get',
  'sqlite_compileoption_used',
  'sqlite_crypt',
  'sqlite_log',
  'sqlite_source_id',
  'writefile',
]);

/** Tables that exist without being created, and show files, raw pages or other statements. All `pragma_*` but the allowed too. */
export const DENIED_TABLES: ReadonlySet<string> = new Set([
  'carray',
  'dbstat',
  'fsdir',
  'fts3tokenize',
  'fts4aux',
  'sqlite3mc_config_table',
  'sqlite_dbpage',
  'sqlite_stmt',
]);

/** What CREATE VIRTUAL TABLE may use; D1 has fts5 only as well. */
export const ALLOWED_MODULES: ReadonlySet<string> = new Set(['fts5', 'fts5vocab']);

/** D1's published PRAGMAs: https://developers.cloudflare.com/d1/sql-api/sql-statements/#compatible-pragma-statements */
export const ALLOWED_PRAGMAS: ReadonlySet<string> = new Set([
  'case_sensitive_like',
  'data_version',
  'defer_foreign_keys',
  'foreign_key_check',
  'foreign_key_list',
  'foreign_keys',
  'ignore_check_constraints',
  'index_info',
  'index_list',
  'index_xinfo',
  'legacy_alter_table',
  'optimize',
  'quick_check',
  'recursive_triggers',
  'reverse_unordered_selects',
  'table_info',
  'table_list',
  'table_xinfo',
]);

export const NOT_AUTHORIZED = 'not authorized: SQLITE_AUTH';
const NO_TRANSACTIONS =
  'To execute a transaction, please use the batch() API instead of the SQL BEGIN TRANSACTION or SAVEPOINT statements: ' +
  'it rolls back by itself when a statement fails.';

/** Why a text was refused, in D1's words. */
export class RefusedSql extends Error {}

/**
 * Reads and checks a text of one or more statements.
 * @throws RefusedSql when it is not allowed, UnreadableSql when no SQLite would read it
 */
export function guard(sql: string): Statement[] {
  const statements = splitStatements(tokenize(sql));
  for (const statement of statements) check(statement);
  return statements;
}

function check(statement: Statement): void {
  const { tokens, kind, verb } = statement;
  if (kind === 'transaction') throw new RefusedSql(NO_TRANSACTIONS);
  if (kind === 'forbidden') throw new RefusedSql(NOT_AUTHORIZED);
  if (kind === 'pragma') checkPragma(tokens);
  if (verb === 'create' || verb === 'drop') checkObject(tokens, verb);
  checkCalls(tokens, verb === 'create');
  checkTables(tokens, verb === 'create' && wordBehind(tokens, verb) === 'virtual');
}

function checkPragma(tokens: Token[]): void {
  const at = indexOfWord(tokens, 'pragma');
  const name = isMark(tokens[at + 2], '.') ? tokens[at + 3] : tokens[at + 1];
  if (name === undefined || !ALLOWED_PRAGMAS.has(name.text.toLowerCase())) throw new RefusedSql(NOT_AUTHORIZED);
}

/** CREATE and DROP: no temporary objects (as in D1), no functions, of virtual tables only the allowed modules. */
function checkObject(tokens: Token[], verb: string): void {
  const object = wordBehind(tokens, verb);
  if (object === 'temp' || object === 'temporary' || object === 'function') throw new RefusedSql(NOT_AUTHORIZED);
  if (verb !== 'create') return;
  const dot = tokens.findIndex((token) => isMark(token, '.') || isMark(token, '('));
  const schema = isMark(tokens[dot], '.') ? tokens[dot - 1] : undefined;
  if (schema?.text.toLowerCase() === 'temp') throw new RefusedSql(NOT_AUTHORIZED);
  if (object !== 'virtual') return;
  const module = tokens[indexOfWord(tokens, 'using') + 1];
  if (module === undefined || !ALLOWED_MODULES.has(module.text.toLowerCase())) throw new RefusedSql(NOT_AUTHORIZED);
}

/** Words behind which a name with a parenthesis is a table and its columns, or a module, and not a call. */
const BEFORE_TABLE = new Set(['into', 'table', 'exists', 'references', 'using']);

function checkCalls(tokens: Token[], creates: boolean): void {
  for (let index = 1; index < tokens.length; index++) {
    if (!isMark(tokens[index], '(')) continue;
    const name = nameOf(tokens[index - 1]);
    if (name === undefined || !DENIED_FUNCTIONS.has(name)) continue;
    const before = wordOf(tokens[index - 2]);
    if (BEFORE_TABLE.has(before)) continue;
    // CREATE INDEX i ON edit(a): its first ON precedes a table.
    if (creates && before === 'on' && indexOfWord(tokens, 'on') === index - 2 && indexOfWord(tokens, 'index') > 0)
      continue;
    throw new RefusedSql(
      name === 'load_extension' ? NOT_AUTHORIZED : `not authorized to use function: ${name}: SQLITE_ERROR`,
    );
  }
}

/** @param anywhere in CREATE VIRTUAL TABLE every token counts: fts5 opens the table of its `content=` option by itself */
function checkTables(tokens: Token[], anywhere: boolean): void {
  for (let index = 0; index < tokens.length; index++) {
    const name = nameOf(tokens[index]);
    if (name === undefined || !isDeniedTable(name)) continue;
    // No tenant's column has such a name; a string may, and is a table only where a table is expected.
    if (tokens[index]?.kind === TOKEN.string && !anywhere && !isTablePosition(tokens, index)) continue;
    throw new RefusedSql(name.startsWith('pragma_') ? NOT_AUTHORIZED : `no such table: ${name}: SQLITE_ERROR`);
  }
}

/** Words in front of a value; behind any other word a string may be a table's name. */
const EXPECTS_VALUE = new Set(
  (
    'select distinct all where and or not like glob match regexp is between when then else case having by limit offset ' +
    'values set on default returning escape collate as check'
  ).split(' '),
);
/** Words that open a list of values, walking back from a comma. */
const LISTS_VALUES = new Set(['select', 'distinct', 'values', 'set', 'by', 'where', 'having', 'limit', 'returning']);

/** Whether SQLite could read the string at `at` as a table's name: behind FROM, IN and the like, or in their lists. */
function isTablePosition(tokens: Token[], at: number): boolean {
  const before = tokens[at - 1];
  if (before === undefined) return false;
  if (isMark(tokens[at + 1], '(')) return true;
  if (before.kind === TOKEN.word) return !EXPECTS_VALUE.has(before.text);
  if (isMark(before, '.')) return true;
  if (!isMark(before, ',') && !isMark(before, '(')) return false;
  let depth = 0;
  for (let index = at - 1; index >= 0; index--) {
    const token = tokens[index];
    if (isMark(token, ')')) {
      depth++;
    } else if (isMark(token, '(')) {
      if (depth > 0) {
        depth--;
        continue;
      }
      // The list we are in begins here: a join's, a nested one, or the arguments and values of something.
      const opener = tokens[index - 1];
      if (wordOf(opener) === 'from' || wordOf(opener) === 'join') return true;
      if (!isMark(opener, '(') && !isMark(opener, ',')) return false;
    } else if (depth === 0 && token?.kind === TOKEN.word) {
      if (token.text === 'from' || token.text === 'join') return true;
      if (LISTS_VALUES.has(token.text)) return false;
    }
  }
  return false;
}

function isDeniedTable(name: string): boolean {
  return DENIED_TABLES.has(name) || (name.startsWith('pragma_') && !ALLOWED_PRAGMAS.has(name.slice(7)));
}

function nameOf(token: Token | undefined): string | undefined {
  if (token === undefined) return undefined;
  if (token.kind === TOKEN.word) return token.text;
  return token.kind === TOKEN.quoted || token.kind === TOKEN.string ? token.text.toLowerCase() : undefined;
}

function indexOfWord(tokens: Token[], text: string): number {
  return tokens.findIndex((token) => token.kind === TOKEN.word && token.text === text);
}

function wordBehind(tokens: Token[], verb: string): string {
  return wordOf(tokens[indexOfWord(tokens, verb) + 1]);
}

function wordOf(token: Token | undefined): string {
  return token?.kind === TOKEN.word ? token.text : '';
}

function isMark(token: Token | undefined, text: string): boolean {
  return token?.kind === TOKEN.mark && token.text === text;
}
