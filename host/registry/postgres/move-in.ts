/**
 * The registry of one box, copied into an empty PostgreSQL: all rows in one transaction, which also says whose they are and
 * opens the cluster to nodes.
 */
import type { Client, InValue, Transaction } from '@libsql/client/sqlite3';
import { Problem } from '../../shared/problem.ts';
import { close, holdsHost, open, readClosed, refuseClosed } from './closed.ts';
import { checkCount, insertRows, PAGE, tablesOf } from './copy-rows.ts';

/** Which move filled this database, and what it brought. */
const MOVED_IN = 'cluster:moved-in';

/**
 * Keeps nodes out until `moveIn`.
 * @param move id that the folder of the box has, too
 * @param isRenamed a move of the box has come to its last transaction before: wherever that was, its debts may be there
 * @returns what a move of that id brought that has come to its end
 * @throws Problem conflict where the PostgreSQL holds a host already
 */
export async function beginMoveIn(to: Client, move: string, isRenamed: boolean): Promise<unknown> {
  const { rows } = await to.execute(`SELECT value FROM settings WHERE name = '${MOVED_IN}'`);
  const done = rows[0] && (JSON.parse(String(rows[0].value)) as { move: string; brought: unknown });
  if (done?.move === move) {
    await refuseClosed(to);
    return done.brought;
  }
  if (isRenamed && (await readClosed(to))?.move !== move) {
    throw new Problem(
      'conflict',
      'This box has moved into another PostgreSQL, or was about to, and what it owes must not be paid twice: give cluster.database as it was then. Nothing was changed.',
    );
  }
  await close(to, { why: 'moving in', move }, refuseFilled);
  return undefined;
}

/**
 * @param from registry of the box, which nobody else uses
 * @param beforeCommit once all is copied, before any of it counts @returns what the move brought
 * @throws Problem conflict where the PostgreSQL holds a host already
 */
export async function moveIn(
  from: Client,
  to: Client,
  move: string,
  beforeCommit: (rows: Record<string, number>) => Promise<unknown>,
): Promise<void> {
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
    const brought = await beforeCommit(counts);
    await transaction.execute({
      sql: `INSERT INTO settings (name, value) VALUES ('${MOVED_IN}', ?)`,
      args: [JSON.stringify({ move, brought })],
    });
    await open(transaction);
    await transaction.commit();
  } finally {
    if (!transaction.closed) await transaction.rollback();
  }
}

async function refuseFilled(to: Transaction): Promise<void> {
  if (await holdsHost(to)) {
    throw new Problem(
      'conflict',
      'This PostgreSQL holds a host already: move in before the first node starts, or give an empty database. Nothing was changed.',
    );
  }
}

async function copy(from: Client, to: Transaction, table: string): Promise<number> {
  let count = 0;
  let after: InValue = Number.MIN_SAFE_INTEGER;
  for (;;) {
    const { rows, columns } = await from.execute(
      `SELECT rowid AS moved_rowid, * FROM "${table}" WHERE rowid > ? ORDER BY rowid LIMIT ${PAGE}`,
      [after],
    );
    const last = rows.at(-1);
    if (!last) break;
    after = last.moved_rowid as number;
    const names = columns.filter((name) => name !== 'moved_rowid');
    count += await insertRows(to, table, names, rows);
  }
  await checkCount(to, table, count);
  await continueIds(to, table);
  return count;
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
