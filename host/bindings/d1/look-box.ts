/**
 * Run by Node in a sandbox, on the copy of a database: puts its log into its file, makes of an object of the nodes what the
 * SQL process of one box has, and says what libSQL finds. Arguments: the file, libSQL's binding, and where it comes from.
 */
import { isUtf8 } from 'node:buffer';
import { CAREFUL_APPLICATION_ID } from './careful.ts';
import { look, type Run, type Said } from './look.ts';
import { Libsql } from './native.ts';

const [file = '', native = '', from] = process.argv.slice(1);
const say = (said: Said): void => console.log(JSON.stringify(said));
try {
  const libsql = new Libsql(native);
  const database = libsql.open(file);
  const run: Run = (sql, onRow) => {
    const statement = libsql.prepare(database, sql);
    if (!onRow) return;
    libsql.rows(statement, [], (rows) => {
      for (const row of rows) onRow(row);
      rows.length = 0;
      return true;
    });
  };
  const ask = (sql: string): unknown[][] => {
    const rows: unknown[][] = [];
    run(sql, (row) => rows.push(row));
    return rows;
  };
  // As the SQL process has it.
  libsql.execute(database, 'PRAGMA trusted_schema=ON; PRAGMA cell_size_check=ON');
  if (from === 'cluster') {
    // workerd's own.
    const own = ask("SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 4) = '_cf_'");
    for (const [name] of own) libsql.execute(database, `DROP TABLE "${String(name).replaceAll('"', '""')}"`);
  }
  let careful = false;
  look(run, say, (text) => {
    careful ||= text.includes(0) || !isUtf8(text);
  });
  if (careful && from === 'cluster') libsql.execute(database, `PRAGMA application_id=${CAREFUL_APPLICATION_ID}`);
  ask('PRAGMA wal_checkpoint(TRUNCATE)');
  libsql.close(database);
} catch (error) {
  say(['unreadable', String((error as Error).message)]);
}
