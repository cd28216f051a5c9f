/**
 * The registry of a cluster, copied into the file of one box: all rows of one snapshot, in one transaction. No node may
 * run, or it would pay what the box pays, too.
 */
import type { Client, Transaction } from '@libsql/client/sqlite3';
import { checkCount, insertRows, OF_HOST, PAGE, tablesOf } from './copy-rows.ts';

/**
 * @param from closed for this move
 * @param to an empty registry
 * @returns rows by table
 */
export async function moveOut(from: Client, to: Client): Promise<Record<string, number>> {
  const [source, target] = [await from.transaction('read'), await to.transaction('write')];
  try {
    // What they note or refuse was noted and refused in the cluster.
    const { rows: triggers } = await target.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'");
    for (const { name } of triggers) await target.executeMultiple(`DROP TRIGGER "${name}"`);
    const counts: Record<string, number> = {};
    for (const table of await tablesOf(source)) counts[table] = await copy(source, target, table);
    // The box is no node: to it, what a node was at work on is its own.
    await target.execute('UPDATE payments SET node = NULL WHERE node IS NOT NULL');
    for (const { sql } of triggers) await target.executeMultiple(String(sql));
    await target.commit();
    return counts;
  } finally {
    if (!source.closed) await source.rollback();
    if (!target.closed) await target.rollback();
  }
}

async function copy(from: Transaction, to: Transaction, table: string): Promise<number> {
  const { rows: keys } = await from.execute(
    `SELECT attname AS name FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
      WHERE indisprimary AND indrelid = '"${table}"'::regclass ORDER BY array_position(indkey::int2[], attnum)`,
  );
  const order = keys.length > 0 ? `ORDER BY ${keys.map(({ name }) => `"${name}"`).join(', ')}` : '';
  const which = table === 'settings' ? `WHERE ${OF_HOST}` : '';
  await from.execute(`DECLARE moved NO SCROLL CURSOR FOR SELECT * FROM "${table}" ${which} ${order}`);
  let count = 0;
  for (;;) {
    const { rows, columns } = await from.execute(`FETCH ${PAGE} FROM moved`);
    if (rows.length === 0) break;
    count += await insertRows(to, table, columns, rows);
  }
  await from.execute('CLOSE moved');
  await checkCount(to, table, count);
  return count;
}
