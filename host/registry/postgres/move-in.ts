/**
 * The registry of one box, copied into an empty PostgreSQL: all rows in one transaction, each compared with what was
 * stored of it.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Client, InValue, Row, Transaction } from '@libsql/client/sqlite3';
import { Problem } from '../../shared/problem.ts';

/** Of nodes, not of their host. */
const NOT_MOVED = ['changes', 'leases', 'migrations', 'nodes'];
/** Others refer to these. */
const FIRST = ['deployments', 'payments', 'payment_channels'];
/** Statements take so many values on both databases. */
const VALUES = 4_000;

/**
 * @param from registry of the box, which nobody else uses
 * @param beforeCommit once all is copied, before any of it counts
 * @returns rows by table
 * @throws Problem conflict where the PostgreSQL holds a host already
 */
export async function moveIn(
  from: Client,
  to: Client,
  beforeCommit: () => Promise<void>,
): Promise<Record<string, number>> {
  const transaction = await to.transaction('write');
  try {
    await refuseFilled(transaction);
    const tables = await tablesOf(transaction);
    const counts: Record<string, number> = {};
    for (const table of tables) {
      // What they note or refuse was noted and refused on the box.
      await transaction.executeMultiple(`ALTER TABLE "${table}" DISABLE TRIGGER USER`);
      counts[table] = await copy(from, transaction, table);
    }
    for (const table of tables) await transaction.executeMultiple(`ALTER TABLE "${table}" ENABLE TRIGGER USER`);
    await beforeCommit();
    await transaction.commit();
    return counts;
  } catch (error) {
    if (!transaction.closed) await transaction.rollback();
    throw error;
  }
}

async function refuseFilled(to: Transaction): Promise<void> {
  const { rows } = await to.execute(
    `SELECT (SELECT count(*) FROM deployments) + (SELECT count(*) FROM payments) + (SELECT count(*) FROM nodes)
      + (SELECT count(*) FROM settings WHERE name NOT LIKE 'key:%' AND name NOT LIKE 'cluster:%') AS filled`,
  );
  if (rows[0]?.filled !== 0) {
    throw new Problem(
      'conflict',
      'This PostgreSQL holds a host already: move in before the first node starts, or give an empty database. Nothing was changed.',
    );
  }
}

async function tablesOf(to: Transaction): Promise<string[]> {
  const { rows } = await to.execute(
    `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name`,
  );
  const names = rows.map(({ name }) => String(name)).filter((name) => !NOT_MOVED.includes(name));
  return [...FIRST, ...names.filter((name) => !FIRST.includes(name))];
}

async function copy(from: Client, to: Transaction, table: string): Promise<number> {
  let count = 0;
  let after: InValue = Number.MIN_SAFE_INTEGER;
  for (;;) {
    const { rows, columns } = await from.execute(
      `SELECT rowid AS moved_rowid, * FROM "${table}" WHERE rowid > ? ORDER BY rowid LIMIT 200`,
      [after],
    );
    const last = rows.at(-1);
    if (!last) break;
    after = last.moved_rowid as number;
    const names = columns.filter((name) => name !== 'moved_rowid');
    const width = Math.max(1, Math.floor(VALUES / names.length));
    for (let at = 0; at < rows.length; at += width) await insert(to, table, names, rows.slice(at, at + width));
    count += rows.length;
  }
  const stored = await to.execute(`SELECT count(*) AS count FROM "${table}"`);
  // Keys of nodes are there before.
  if (table !== 'settings' && stored.rows[0]?.count !== count) throw differs(table);
  await continueIds(to, table);
  return count;
}

async function insert(to: Transaction, table: string, names: string[], rows: Row[]): Promise<void> {
  const list = names.map((name) => `"${name}"`).join(', ');
  const places = `(${names.map(() => '?').join(', ')})`;
  const given = rows.map((row) => names.map((name) => plain(row[name])));
  const { rows: stored } = await to.execute({
    sql: `INSERT INTO "${table}" (${list}) VALUES ${rows.map(() => places).join(', ')} RETURNING ${list}`,
    args: given.flat() as InValue[],
  });
  const found = stored.map((row) => names.map((name) => plain(row[name])));
  if (!isDeepStrictEqual(found, given)) throw differs(table);
}

/** As both databases give it. */
function plain(value: unknown): unknown {
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  // PostgreSQL's text holds no NUL.
  return typeof value === 'string' ? value.replaceAll('\0', '\ufffd') : value;
}

/** The next row gets the id after the last one. */
async function continueIds(to: Transaction, table: string): Promise<void> {
  const { rows } = await to.execute(
    `SELECT column_name AS name FROM information_schema.columns
      WHERE table_schema = 'public' AND table_name = '${table}' AND is_identity = 'YES'`,
  );
  for (const { name } of rows)
    await to.execute(
      `SELECT setval(pg_get_serial_sequence('${table}', '${name}'), coalesce(max("${name}"), 1), max("${name}") IS NOT NULL) AS next
        FROM "${table}"`,
    );
}

function differs(table: string): Error {
  return new Error(`PostgreSQL has other rows of ${table} than were sent; nothing was changed`);
}
