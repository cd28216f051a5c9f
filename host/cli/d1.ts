/** `turnpike d1`: SQL on a deployment's D1 databases, and their migrations, which are files as wrangler has them. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { Command } from 'commander';
import { readJson } from './answer.ts';
import { addDataOptions, type DataFlags, type DataStore, openDataStore } from './data-store.ts';
import { isInside, pathInside, readRegularFile } from './project/regular-file.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface D1Result {
  results: Record<string, unknown>[];
  meta: { rows_read?: number; rows_written?: number; changes?: number; duration?: number };
}
interface Statement {
  sql: string;
  params?: unknown[];
}

/** Text of one query, bytes: a little below what D1 takes. */
const QUERY_BYTES = 90_000;
const MIGRATIONS_DIR = 'migrations';
/** wrangler's name for it, so that a database that comes from there knows what was applied. */
const MIGRATIONS_TABLE = 'd1_migrations';
/** Bytes. */
const LARGEST_MIGRATION = 10 * 1024 * 1024;
/** Rows read at a time by an export. */
const PAGE = 500;

export function d1Command(deps?: CommandDeps): Command {
  const command = new Command('d1').description('SQL databases of your deployment');
  addDataOptions(command.command('execute').description('run SQL'))
    .argument(
      '[database]',
      'name of the binding, or of the database in wrangler’s configuration; default: the only one',
    )
    .option('--command <sql>', 'the SQL')
    .option('--file <path>', 'a file of SQL')
    .action(withSession(deps, execute));
  addDataOptions(command.command('export').description('write the whole database as SQL'))
    .argument('[database]')
    .option('--output <path>', 'file; default: stdout')
    .action(withSession(deps, exportAll));
  const migrations = command.command('migrations').description('changes of the schema, one file each, applied once');
  addDataOptions(migrations.command('create').description('make an empty file for the next one'))
    .argument('<database>')
    .argument('<message>', 'becomes a part of its name')
    .action(withSession(deps, createMigration));
  addDataOptions(migrations.command('list').description('show those that are not applied'))
    .argument('[database]')
    .action(withSession(deps, listMigrations));
  addDataOptions(migrations.command('apply').description('apply those that are not applied, each whole or not at all'))
    .argument('[database]')
    .action(withSession(deps, applyMigrations));
  return command;
}

async function run(store: DataStore, statements: Statement[]): Promise<D1Result[]> {
  return (await readJson(await store.ask('POST', '', {}, { statements }))) as D1Result[];
}

async function execute(
  session: Session,
  database: string | undefined,
  flags: DataFlags & { command?: string; file?: string },
): Promise<void> {
  if ((flags.command === undefined) === (flags.file === undefined))
    throw new Failure('usage', 'Give --command, or --file.');
  const sql = flags.command ?? (await readText(resolve(session.terminal.cwd, flags.file ?? '')));
  const store = await openDataStore(session, 'd1', database, flags);
  const results: D1Result[] = [];
  for (const part of await parts(sql)) results.push(...(await run(store, [{ sql: part }])));
  const { printer } = session;
  printer.result(results, results.map(resultText).join('\n'));
}

function resultText({ results, meta }: D1Result): string {
  const [first] = results;
  if (!first) return `${meta.changes ?? 0} rows changed`;
  const columns = Object.keys(first);
  return table([columns, ...results.map((row) => columns.map((name) => shown(row[name])))]);
}

function shown(value: unknown): string {
  if (value === null) return 'NULL';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Text in parts that D1 takes, each of whole statements. @throws Failure `usage` */
async function parts(sql: string): Promise<string[]> {
  if (Buffer.byteLength(sql) <= QUERY_BYTES) return sql.trim() === '' ? [] : [sql];
  const [{ tokenize }, { splitStatements }] = await Promise.all([
    import('../bindings/d1/tokenizer.ts'),
    import('../bindings/d1/statements.ts'),
  ]);
  const found: string[] = [];
  for (const { tokens } of splitStatements(tokenize(sql))) {
    const text = `${sql.slice(tokens[0]?.start, tokens.at(-1)?.end)};\n`;
    const last = found.at(-1);
    if (last !== undefined && Buffer.byteLength(last) + Buffer.byteLength(text) <= QUERY_BYTES)
      found[found.length - 1] = last + text;
    else found.push(text);
  }
  return found;
}

async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new Failure('usage', `${path} cannot be read (${error.code}); give the path of a file that can.`);
  });
}

interface Migrations {
  folder: string;
  table: string;
  /** Of the files, in their order. */
  names: string[];
}

/**
 * The migrations of a database. Somebody else may have written the project: its files alone are sent.
 * @throws Failure `usage`
 */
async function migrationsOf({ project, binding }: DataStore, make = false): Promise<Migrations> {
  const { migrationsDir = MIGRATIONS_DIR, migrationsTable = MIGRATIONS_TABLE } = project.wrangler?.d1[binding] ?? {};
  const wanted = resolve(project.wrangler ? dirname(project.wrangler.path) : project.folder, migrationsDir);
  const fail = (error: NodeJS.ErrnoException): never => {
    const why = {
      ENOENT: `There is no folder ${wanted}: turnpike d1 migrations create makes it.`,
      EOUTSIDE: `The migrations are to be in ${wanted}, outside of the project.`,
    }[error.code ?? ''];
    throw new Failure('usage', why ?? `${wanted} cannot be read (${error.code}).`);
  };
  if (make && isInside(project.folder, wanted)) await mkdir(wanted, { recursive: true });
  const folder = await pathInside(project.folder, relative(project.folder, wanted)).catch(fail);
  const names = await readdir(folder).catch(fail);
  return { folder, table: migrationsTable, names: names.filter((name) => name.endsWith('.sql')).sort() };
}

async function createMigration(session: Session, database: string, message: string, flags: DataFlags): Promise<void> {
  const store = await openDataStore(session, 'd1', database, flags);
  const { folder, names } = await migrationsOf(store, true);
  const last = Math.max(0, ...names.map((name) => Number(/^(\d+)/.exec(name)?.[1] ?? 0)));
  const name = `${String(last + 1).padStart(4, '0')}_${message.trim().replace(/\W+/g, '_').slice(0, 100)}.sql`;
  const path = join(folder, name);
  await writeFile(path, `-- Migration ${name}\n`, { flag: 'wx' });
  session.printer.result({ file: path }, path);
}

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;

async function readMigration(folder: string, name: string): Promise<string> {
  const read = async () => String(await readRegularFile(await pathInside(folder, name), LARGEST_MIGRATION));
  return read().catch((error: NodeJS.ErrnoException) => {
    throw new Failure('usage', `The migration ${join(folder, name)} cannot be read (${error.code}).`);
  });
}

/** As wrangler makes it. */
function tableSql(name: string): string {
  return `CREATE TABLE IF NOT EXISTS ${quoted(name)}(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)`;
}

async function unapplied(store: DataStore): Promise<Migrations> {
  const { names, ...migrations } = await migrationsOf(store);
  const table = quoted(migrations.table);
  const [, applied] = await run(store, [{ sql: tableSql(migrations.table) }, { sql: `SELECT name FROM ${table}` }]);
  const done = new Set((applied?.results ?? []).map((row) => row.name));
  return { ...migrations, names: names.filter((file) => !done.has(file)) };
}

async function listMigrations(session: Session, database: string | undefined, flags: DataFlags): Promise<void> {
  const { names } = await unapplied(await openDataStore(session, 'd1', database, flags));
  session.printer.result({ unapplied: names }, names.join('\n') || 'all are applied');
}

async function applyMigrations(session: Session, database: string | undefined, flags: DataFlags): Promise<void> {
  const { printer } = session;
  const store = await openDataStore(session, 'd1', database, flags);
  const { folder, table: name, names } = await unapplied(store);
  const applied: string[] = [];
  for (const file of names) {
    const statements = (await parts(await readMigration(folder, file))).map((sql) => ({ sql }));
    const record = { sql: `INSERT INTO ${quoted(name)} (name) VALUES (?)`, params: [file] };
    await run(store, [...statements, record]).catch((error) => {
      const { exit, message, document } = error instanceof Failure ? error : new Failure('unexpected', String(error));
      const before = applied.length > 0 ? ` Applied before it: ${applied.join(', ')}.` : '';
      throw new Failure(exit, `${file} was not applied: ${message}${before}`, document);
    });
    applied.push(file);
    printer.progress(`applied ${file}`);
  }
  printer.result({ applied }, applied.length > 0 ? applied.join('\n') : 'all were applied already');
}

async function exportAll(
  session: Session,
  database: string | undefined,
  flags: DataFlags & { output?: string },
): Promise<void> {
  const store = await openDataStore(session, 'd1', database, flags);
  const [schema] = await run(store, [
    {
      sql: "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '_cf_%' ORDER BY type <> 'table', rowid",
    },
  ]);
  const lines = ['PRAGMA defer_foreign_keys=TRUE;'];
  for (const { type, name, sql } of schema?.results ?? []) {
    lines.push(`${sql};`);
    if (type !== 'table') continue;
    const [about] = await run(store, [{ sql: `PRAGMA table_info(${quoted(String(name))})` }]);
    const columns = (about?.results ?? []).map((row) => quoted(String(row.name)));
    const values = columns.map((column) => `quote(${column})`).join(" || ', ' || ");
    for (let from = 0; ; from += PAGE) {
      const [page] = await run(store, [
        { sql: `SELECT ${values} AS line FROM ${quoted(String(name))} LIMIT ${PAGE} OFFSET ${from}` },
      ]);
      const rows = page?.results ?? [];
      for (const { line } of rows)
        lines.push(`INSERT INTO ${quoted(String(name))} (${columns.join(', ')}) VALUES (${line});`);
      if (rows.length < PAGE) break;
    }
  }
  const text = `${lines.join('\n')}\n`;
  if (flags.output === undefined) {
    session.printer.result({ sql: text }, text);
    return;
  }
  const path = resolve(session.terminal.cwd, flags.output);
  await writeFile(path, text);
  session.printer.result({ file: path }, `written to ${path}`);
}
