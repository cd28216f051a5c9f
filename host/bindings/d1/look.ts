/**
 * What a database has, as the engine that has it open sees it: which statements its schema allows, and a digest of each
 * table's rows. It runs where the database is, in a sandbox, in libSQL and in workerd: what both say is compared.
 */
import { createHash, type Hash } from 'node:crypto';

/** Prepares a statement; runs it where somebody takes its rows. @throws Error with SQLite's message */
export type Run = (sql: string, onRow?: (row: unknown[]) => void) => void;

/** A line of what is said. */
export type Said =
  | ['unreadable', string]
  /** Of a table or view: whether the statement is possible; empty: it is. */
  | ['statement', string, string, string]
  /** Rows and their digest. */
  | ['table', string, number, string];

/** Columns of one query: workerd's SQLite answers at most 100. */
const MOST_COLUMNS = 25;
const OWN = /^sqlite_/i;
/** Values of `hidden` in PRAGMA table_xinfo. */
const PLAIN = 0;
const STORED = 3;

/** @param onText is given each text in a table */
export function look(run: Run, say: (said: Said) => void, onText?: (text: Buffer) => void): void {
  const relations: { name: string; type: string; withoutRowId: boolean }[] = [];
  run('PRAGMA table_list', ([schema, name, type, , withoutRowId]) => {
    if (schema === 'main' && name !== 'sqlite_schema')
      relations.push({ name: String(name), type: String(type), withoutRowId: Number(withoutRowId) === 1 });
  });
  relations.sort((one, other) => (one.name < other.name ? -1 : 1));
  const schema =
    "(SELECT type AS a, name AS b, tbl_name AS c, sql AS d FROM sqlite_schema WHERE substr(tbl_name, 1, 4) <> '_cf_')";
  digest(run, 'sqlite_schema', schema, ['a', 'b', 'c', 'd'], say);
  for (const { name, type, withoutRowId } of relations) {
    const columns = columnsOf(run, name);
    // What a virtual table answers is in its shadow tables.
    if (type !== 'shadow' && !OWN.test(name)) tryStatements(run, name, columns, say);
    if (type !== 'table' && type !== 'shadow') continue;
    const kept = (columns ?? []).filter(({ hidden }) => hidden === PLAIN || hidden === STORED);
    const texts = [...(withoutRowId ? [] : ['_rowid_']), ...kept.map((column) => quoted(column.name))];
    digest(run, name, `${quoted(name)} NOT INDEXED`, texts, say, onText);
  }
}

/** Compiles everything that hangs on a table or a view: its query, defaults, constraints, indexes and triggers. */
function tryStatements(run: Run, name: string, columns: Column[] | undefined, say: (said: Said) => void): void {
  const table = quoted(name);
  const settable = (columns ?? []).filter(({ hidden }) => hidden === PLAIN).map((column) => quoted(column.name));
  const all = [
    ['read', `SELECT * FROM ${table}`],
    ['insert', `INSERT INTO ${table} DEFAULT VALUES`],
    ['delete', `DELETE FROM ${table}`],
    ...parts(settable).map((part) => [
      'update',
      `UPDATE ${table} SET ${part.map((one) => `${one} = ${one}`).join(', ')}`,
    ]),
  ] as [string, string][];
  for (const [verb, sql] of all) say(['statement', name, verb, failureOf(() => run(`EXPLAIN ${sql}`))]);
}

function digest(
  run: Run,
  name: string,
  from: string,
  columns: string[],
  say: (said: Said) => void,
  onText?: (text: Buffer) => void,
): void {
  const hash = createHash('sha256');
  let rows = 0;
  const failure = failureOf(() => {
    for (const [index, part] of parts(columns).entries()) {
      const values = part.map(
        (column) =>
          `CASE typeof(${column}) WHEN 'text' THEN CAST(${column} AS BLOB) WHEN 'integer' THEN CAST(${column} AS TEXT) ELSE ${column} END`,
      );
      run(`SELECT ${[...part.map((column) => `typeof(${column})`), ...values].join(', ')} FROM ${from}`, (row) => {
        if (index === 0) rows++;
        for (let at = 0; at < part.length; at++) add(hash, String(row[at]), row[part.length + at], onText);
      });
    }
  });
  // What cannot be read has no digest that another engine could have.
  say(['table', name, rows, failure === '' ? hash.digest('hex') : failure]);
}

function add(hash: Hash, type: string, value: unknown, onText?: (text: Buffer) => void): void {
  const bytes = bytesOf(value);
  hash.update(`${type} ${bytes.length} `);
  hash.update(bytes);
  if (type === 'text') onText?.(bytes);
}

function bytesOf(value: unknown): Buffer {
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleBE(value);
    return bytes;
  }
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return Buffer.from(value === null ? '' : String(value));
}

interface Column {
  name: string;
  hidden: number;
}

/** @returns undefined for a view that is broken */
function columnsOf(run: Run, name: string): Column[] | undefined {
  const columns: Column[] = [];
  const failure = failureOf(() =>
    run(`PRAGMA table_xinfo(${quoted(name)})`, (row) => columns.push({ name: String(row[1]), hidden: Number(row[6]) })),
  );
  return failure === '' ? columns : undefined;
}

function failureOf(work: () => void): string {
  try {
    work();
    return '';
  } catch (error) {
    return String((error as Error).message) || 'it fails';
  }
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function parts<T>(all: T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / MOST_COLUMNS) }, (_, index) =>
    all.slice(index * MOST_COLUMNS, (index + 1) * MOST_COLUMNS),
  );
}
