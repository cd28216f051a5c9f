/** Rows of the registry on their way between a box and a cluster: each is compared with what was stored of it. */
import { isDeepStrictEqual } from 'node:util';
import type { InValue, Row, Transaction } from '@libsql/client/sqlite3';

/** Rows in a page. */
export const PAGE = 200;
/** Of nodes, not of their host; and what a box keeps in files. */
const NOT_MOVED = ['certificates', 'changes', 'leases', 'migrations', 'nodes', 'payment_shares'];
/** Others refer to these. */
const FIRST = ['deployments', 'payments', 'payment_channels'];
/** Statements take so many values on both databases. */
const VALUES = 4_000;

/** What of the settings is of nodes, not of their host. */
export const OF_HOST = "name NOT LIKE 'key:%' AND name NOT LIKE 'cluster:%'";

/** Tables of the host, in an order in which they can be filled. @param postgres of the cluster */
export async function tablesOf(postgres: Transaction): Promise<string[]> {
  const { rows } = await postgres.execute(
    `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name`,
  );
  const names = rows.map(({ name }) => String(name)).filter((name) => !NOT_MOVED.includes(name));
  return [...FIRST, ...names.filter((name) => !FIRST.includes(name))];
}

/** @returns how many @throws Error where the other database has something else than was sent */
export async function insertRows(to: Transaction, table: string, names: string[], rows: Row[]): Promise<number> {
  const width = Math.max(1, Math.floor(VALUES / names.length));
  for (let at = 0; at < rows.length; at += width) await insert(to, table, names, rows.slice(at, at + width));
  return rows.length;
}

/** Whether the table has so many rows. @throws Error */
export async function checkCount(to: Transaction, table: string, count: number): Promise<void> {
  const { rows } = await to.execute(
    `SELECT count(*) AS count FROM "${table}" ${table === 'settings' ? `WHERE ${OF_HOST}` : ''}`,
  );
  if (rows[0]?.count !== count) throw differs(table);
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

function differs(table: string): Error {
  return new Error(`the rows of ${table} are others than were sent; nothing was changed`);
}
