import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fdatasync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Client } from '@libsql/client/sqlite3';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { openClient } from '../../host/registry/client.ts';
import { openRegistry } from '../../host/registry/index.ts';

/** Has the file for itself for a moment, and says so. */
const HOLDS = `
import { DatabaseSync } from 'node:sqlite';
const database = new DatabaseSync(process.argv[1]);
database.exec('CREATE TABLE t (id TEXT) STRICT; PRAGMA journal_mode = WAL; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
database.exec("INSERT INTO t VALUES ('a')");
console.log('held');
setTimeout(() => { database.exec('ROLLBACK'); database.close(); }, 300);
`;

let folder: string;
let client: Client;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'turnpike-client-'));
  client = await openClient(path.join(folder, 'a.db'));
  await client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0), bytes BLOB) STRICT');
});

afterEach(async () => {
  client.close();
  await rm(folder, { recursive: true });
});

const rows = async (sql: string) => (await client.execute(sql)).rows.map((row) => ({ ...row }));
const insert = (id: string, n: unknown) => ({
  sql: 'INSERT INTO t (id, n) VALUES (?, ?)',
  args: [id, n as number],
});

test('gives rows by name and by index, and what a write changed', async () => {
  const written = await client.execute({
    sql: 'INSERT INTO t VALUES (:id, @n, $bytes)',
    args: { id: 'a', '@n': 2 ** 53 - 1, bytes: new Uint8Array([1, 2]) },
  });
  expect(written).toMatchObject({ rowsAffected: 1, lastInsertRowid: 1n, rows: [] });
  const read = await client.execute('SELECT id, n, bytes FROM t');
  expect(read.columns).toEqual(['id', 'n', 'bytes']);
  expect(read.columnTypes).toEqual(['TEXT', 'INTEGER', 'BLOB']);
  const [row] = read.rows;
  expect({ ...row }).toEqual({ id: 'a', n: 2 ** 53 - 1, bytes: new Uint8Array([1, 2]).buffer });
  expect([row?.length, row?.[0], row?.[1]]).toEqual([3, 'a', 2 ** 53 - 1]);
});

test('runs the same text again and again with other values', async () => {
  for (let n = 0; n < 400; n++) {
    await client.execute(insert(`a${n}`, n));
    // More texts than stay prepared.
    expect(await rows(`SELECT n FROM t WHERE n = ${n}`)).toEqual([{ n }]);
  }
  expect(await rows('SELECT count(*) AS n FROM t')).toEqual([{ n: 400 }]);
});

test('sees a column that was added after a statement was prepared', async () => {
  await client.execute(insert('a', 1));
  expect(await rows('SELECT * FROM t')).toEqual([{ id: 'a', n: 1, bytes: null }]);
  await client.executeMultiple("ALTER TABLE t ADD COLUMN more TEXT NOT NULL DEFAULT 'x'; CREATE INDEX m ON t (more)");
  expect(await rows('SELECT * FROM t')).toEqual([{ id: 'a', n: 1, bytes: null, more: 'x' }]);
});

test('writes a batch whole or not at all, and works on after it', async () => {
  await expect(client.batch([insert('a', 1), insert('b', -1)])).rejects.toMatchObject({
    code: 'SQLITE_CONSTRAINT',
    extendedCode: 'SQLITE_CONSTRAINT_CHECK',
    message: expect.stringContaining('CHECK constraint failed'),
  });
  await expect(client.batch([insert('a', 1), 'SELECT nonsense'])).rejects.toMatchObject({ code: 'SQLITE_ERROR' });
  expect(await rows('SELECT id FROM t')).toEqual([]);
  const results = await client.batch([insert('a', 1), ['SELECT id FROM t'], 'SELECT 1 AS one']);
  expect(results.map((result) => result.rows.map((row) => ({ ...row })))).toEqual([[], [{ id: 'a' }], [{ one: 1 }]]);
});

/** Commits in the write-ahead log: frames that name the size of the database (https://sqlite.org/fileformat2.html#walformat). */
async function commits(): Promise<number> {
  const log = await readFile(path.join(folder, 'a.db-wal'));
  const frame = 24 + log.readUInt32BE(8);
  let count = 0;
  for (let at = 32; at + frame <= log.length; at += frame) if (log.readUInt32BE(at + 4) > 0) count++;
  return count;
}

test('what is written in one turn of the event loop shares a commit, and each has its own answer', async () => {
  const before = await commits();
  const [one, two, read, bad, rest] = await Promise.allSettled([
    client.execute(insert('a', 1)),
    client.batch([insert('b', 2), insert('c', 3)]),
    rows('SELECT id FROM t ORDER BY id'),
    client.batch([insert('d', 4), insert('a', 5)]),
    client.batch([insert('e', 6), ['SELECT count(*) AS n FROM t']]),
  ]);
  expect(one).toMatchObject({ value: { rowsAffected: 1 } });
  expect(two).toMatchObject({ value: [{ rowsAffected: 1 }, { rowsAffected: 1 }] });
  // In the order in which they were asked for.
  expect(read).toEqual({ status: 'fulfilled', value: [{ id: 'a' }, { id: 'b' }, { id: 'c' }] });
  expect(bad).toMatchObject({ reason: { code: 'SQLITE_CONSTRAINT' } });
  expect(rest).toMatchObject({ value: [{}, { rows: [{ n: 4 }] }] });
  expect(await rows('SELECT id FROM t ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }, { id: 'e' }]);
  expect(await commits()).toBe(before + 1);
});

test('where a shared commit cannot be, each is done by itself', async () => {
  await client.executeMultiple(
    `CREATE TABLE child (id TEXT REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED) STRICT;
     CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.id = 'no' BEGIN SELECT RAISE(ROLLBACK, 'no'); END`,
  );
  for (const [wrong, code] of [
    ["INSERT INTO child VALUES ('nobody')", 'SQLITE_CONSTRAINT'],
    [insert('no', 1), 'SQLITE_CONSTRAINT'],
  ] as const) {
    const [first, failed, last] = await Promise.allSettled([
      client.batch([insert('a', 1), insert('b', 2)]),
      client.batch([wrong]),
      client.execute(insert('c', 3)),
    ]);
    expect([first.status, last.status]).toEqual(['fulfilled', 'fulfilled']);
    expect(failed).toMatchObject({ reason: { code } });
    expect(await rows('SELECT id FROM t ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
    await client.execute('DELETE FROM t');
  }
});

test('while another connection writes, a turn waits for it once, and reads all the same', async () => {
  await client.execute('PRAGMA busy_timeout=100');
  const other = await openClient(path.join(folder, 'a.db'));
  try {
    const writing = await other.transaction();
    const took = async (work: () => Promise<unknown>) => {
      const from = performance.now();
      await work();
      return performance.now() - from;
    };
    const one = await took(() => expect(client.execute(insert('a', 1))).rejects.toMatchObject({ code: 'SQLITE_BUSY' }));
    let group: PromiseSettledResult<unknown>[] = [];
    const all = await took(async () => {
      const writes = Array.from({ length: 20 }, (_, index) => client.execute(insert(`${index}`, 1)));
      group = await Promise.allSettled([...writes, rows('SELECT count(*) AS count FROM t')]);
    });
    expect(group.slice(0, 20).every(({ status }) => status === 'rejected')).toBe(true);
    expect(group[20]).toMatchObject({ status: 'fulfilled', value: [{ count: 0 }] });
    expect(all).toBeLessThan(8 * one);
    await writing.commit();
    await Promise.all([client.execute(insert('b', 1)), client.execute(insert('c', 1))]);
    expect(await rows('SELECT id FROM t')).toEqual([{ id: 'b' }, { id: 'c' }]);
  } finally {
    other.close();
  }
});

test('writes before and after a transaction stay in their order', async () => {
  const before = client.execute(insert('a', 1));
  const opening = client.transaction();
  const after = client.batch([insert('c', 3), ['SELECT id FROM t ORDER BY id']]);
  await before;
  const transaction = await opening;
  expect((await transaction.execute('SELECT id FROM t')).rows.map((row) => row.id)).toEqual(['a']);
  await transaction.execute(insert('b', 2));
  await transaction.commit();
  expect((await after)[1]?.rows.map((row) => row.id)).toEqual(['a', 'b', 'c']);
});

test('refuses values that SQLite would keep as others', async () => {
  await expect(client.execute(insert('a', Number.NaN))).rejects.toThrow(RangeError);
  await expect(client.execute(insert('a', undefined))).rejects.toThrow(TypeError);
  await client.execute({ sql: 'INSERT INTO t (id, n) VALUES (?, ?)', args: ['big', 2n ** 60n] });
  await expect(client.execute('SELECT n FROM t')).rejects.toThrow(RangeError);
});

test('lets nobody else in between the statements of a transaction', async () => {
  const transaction = await client.transaction();
  await transaction.execute(insert('a', 1));
  const outside = rows('SELECT id FROM t');
  const second = client.transaction();
  await transaction.execute(insert('b', 1));
  await transaction.rollback();
  expect(transaction.closed).toBe(true);
  await expect(transaction.execute('SELECT 1')).rejects.toMatchObject({ code: 'TRANSACTION_CLOSED' });
  expect(await outside).toEqual([]);
  const next = await second;
  await next.execute(insert('c', 1));
  await next.commit();
  expect(await rows('SELECT id FROM t')).toEqual([{ id: 'c' }]);
});

test('a transaction whose commit fails is over, and holds nobody up', async () => {
  await client.executeMultiple(
    'CREATE TABLE child (id TEXT REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED) STRICT; PRAGMA foreign_keys = ON',
  );
  const transaction = await client.transaction();
  await transaction.execute("INSERT INTO child VALUES ('nobody')");
  await expect(transaction.commit()).rejects.toMatchObject({ code: 'SQLITE_CONSTRAINT' });
  expect(transaction.closed).toBe(true);
  expect(await rows('SELECT * FROM child')).toEqual([]);
});

test('a statement of which no row was read any more stands in no one’s way', async () => {
  await client.batch(Array.from({ length: 250 }, (_, n) => insert(`a${n}`, n)));
  expect((await client.execute('SELECT * FROM t')).rows).toHaveLength(250);
  await client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
  expect(await rows('PRAGMA wal_checkpoint(TRUNCATE)')).toEqual([{ busy: 0, log: 0, checkpointed: 0 }]);
});

test('opens a file that somebody else is just letting go of', async () => {
  const file = path.join(folder, 'held.db');
  const program = ['--input-type=module', '--eval', HOLDS, file];
  const other = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(other, 'exit');
  expect(await Promise.race([once(other.stdout, 'data').then(() => 'held'), exited])).toBe('held');
  const opened = await openClient(file);
  expect((await opened.execute('SELECT id FROM t')).rows).toHaveLength(0);
  opened.close();
  await exited;
});

test('says so when it is closed, and when a file is no database', async () => {
  client.close();
  expect(client.closed).toBe(true);
  await expect(client.execute('SELECT 1')).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
  const file = path.join(folder, 'b.db');
  await writeFile(file, 'nonsense '.repeat(1000));
  await expect(openClient(file)).rejects.toMatchObject({ code: 'SQLITE_NOTADB' });
});

test('a registry that a newer version has changed is left alone', async () => {
  const file = path.join(folder, 'registry.db');
  const registry = await openRegistry(file);
  await registry.client.execute("INSERT INTO migrations (name, applied_at) VALUES ('9999_future.sql', 1)");
  registry.close();
  await expect(openRegistry(file)).rejects.toMatchObject({
    code: 'invalid_config',
    message: expect.stringMatching(/newer version .*9999_future\.sql/),
  });
});

/** A disk whose syncs end when the test says so. */
async function slowDisk() {
  const syncs: ((error: Error | null) => void)[] = [];
  const begun: (() => void)[] = [];
  const slow = await openClient(path.join(folder, 'a.db'), (descriptor, done) => {
    syncs.push((error) => (error ? done(error) : fdatasync(descriptor, done)));
    for (const tell of begun.splice(0)) tell();
  });
  onTestFinished(() => slow.close());
  const next = async () => {
    while (syncs.length === 0) await new Promise<void>((resolve) => begun.push(resolve));
    return syncs.shift() as (error: Error | null) => void;
  };
  return { slow, next };
}

test('answers nothing before what was committed is on the disk, and goes on meanwhile', async () => {
  const { slow, next } = await slowDisk();
  const answered: string[] = [];
  const note = (name: string) => () => void answered.push(name);
  const first = slow.execute(insert('a', 1)).then(note('first'));
  const end = await next();
  // A second write, a failure and what is read afterwards all depend on the first, which may yet be lost.
  const second = slow.execute(insert('b', 2)).then(note('second'));
  const failed = slow.batch([insert('a', 3)]).catch(note('failed'));
  const read = slow.execute('SELECT id FROM t').then(({ rows }) => answered.push(String(rows.map(({ id }) => id))));
  const transaction = await slow.transaction();
  const inside = await transaction.execute('SELECT id FROM t ORDER BY id');
  expect(inside.rows.map(({ id }) => id)).toEqual(['a', 'b']);
  const back = transaction.rollback().then(note('back'));
  expect(answered).toEqual([]);
  end(null);
  await first;
  (await next())(null);
  await Promise.all([second, failed, read, back]);
  expect(answered).toEqual(['first', 'second', 'failed', 'a,b', 'back']);
  expect((await slow.execute('SELECT count(*) AS n FROM t')).rows).toMatchObject([{ n: 2 }]);
});

test('after a disk that failed, nothing is answered as if it were kept', async () => {
  const { slow, next } = await slowDisk();
  const first = slow.execute(insert('a', 1));
  const end = await next();
  const meanwhile = Promise.allSettled([first, slow.execute(insert('b', 2)), slow.execute('SELECT id FROM t')]);
  expect(slow.failure).toBe(undefined);
  end(new Error('EIO'));
  (await next())(null);
  const later = Promise.allSettled([slow.execute('SELECT 1'), slow.execute(insert('c', 3)), slow.transaction()]);
  const refused = { code: 'SQLITE_IOERR', message: expect.stringMatching(/EIO.*Start the host again/) };
  for (const one of [...(await meanwhile), ...(await later)])
    expect(one).toMatchObject({ status: 'rejected', reason: refused });
  expect(slow.failure).toMatchObject(refused);
});

test('a file that is closed during a sync keeps its descriptor until the sync has ended', async () => {
  const { slow, next } = await slowDisk();
  const write = slow.execute(insert('a', 1));
  const end = await next();
  slow.close();
  end(null);
  await write;
  expect(await rows('SELECT id FROM t')).toEqual([{ id: 'a' }]);
});
