/** The log of a database is brought into its file by a thread, while writers write on. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Libsql from 'libsql';
import pino from 'pino';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { CHECKPOINT_BYTES, Checkpoints } from '../../../host/bindings/store-process/checkpoints.ts';
import { Database } from '../../../host/bindings/store-process/database.ts';

const VALUE = Buffer.alloc(100_000, 7);
const warnings: string[] = [];
const log = pino({ level: 'warn' }, { write: (line: string) => void warnings.push(line) });
const checkpoints = new Checkpoints(log);
afterAll(() => checkpoints.close());

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'checkpoints-'));
  path = join(folder, 'x.db');
});
afterEach(() => rmSync(folder, { recursive: true }));

function open(thread: Pick<Checkpoints, 'run'>): { database: Database; put(key: number): Promise<void> } {
  const database = new Database({
    path,
    schema: 'CREATE TABLE t (key INTEGER PRIMARY KEY, value BLOB)',
    checkpoints: thread,
    sync: (_descriptor, done) => setImmediate(done, null),
  });
  const statement = database.writer('INSERT OR REPLACE INTO t VALUES (?, ?)');
  return { database, put: (key) => database.commit(() => void statement.run([key, VALUE])) };
}

/** @param bytes of values, over and over the same hundred keys */
async function fill(put: (key: number) => Promise<void>, bytes: number): Promise<void> {
  for (let i = 0; i * VALUE.length < bytes; i += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, j) => put((i + j) % 100)));
  }
}

test('a log that is long enough is brought into the file, and the database is busy until then', async () => {
  const { database, put } = open(checkpoints);
  await fill(put, CHECKPOINT_BYTES / 2);
  expect([database.busy, statSync(path).size < 100_000]).toEqual([false, true]);
  await fill(put, CHECKPOINT_BYTES);
  await expect.poll(() => database.busy).toBe(false);
  expect(statSync(path).size).toBeGreaterThan(CHECKPOINT_BYTES);
  database.close();
});

test('the log does not grow for ever, however quickly it is written', async () => {
  const { database, put } = open(checkpoints);
  await fill(put, 20 * CHECKPOINT_BYTES);
  expect(statSync(`${path}-wal`).size).toBeLessThan(5 * CHECKPOINT_BYTES);
  await expect.poll(() => database.busy).toBe(false);
  database.close();
});

test('a reader of the log stops no writer, and once it has gone the log begins anew', async () => {
  const { database, put } = open(checkpoints);
  await put(0);
  const reader = new Libsql(path);
  reader.exec('BEGIN');
  reader.exec('SELECT * FROM t');
  await fill(put, 8 * CHECKPOINT_BYTES);
  const grown = statSync(`${path}-wal`).size;
  expect(grown).toBeGreaterThan(7 * CHECKPOINT_BYTES);
  reader.exec('COMMIT');
  reader.close();
  await fill(put, 8 * CHECKPOINT_BYTES);
  expect(statSync(`${path}-wal`).size).toBeLessThan(grown + 5 * CHECKPOINT_BYTES);
  await expect.poll(() => database.busy).toBe(false);
  database.close();
});

test('a disk that refuses it loses nothing', async () => {
  let asked = 0;
  const { database, put } = open({
    // As after a refusal, which is logged: nothing was moved.
    run: async () => void asked++,
  });
  await fill(put, 6 * CHECKPOINT_BYTES);
  expect(asked).toBeGreaterThan(2);
  expect(asked).toBeLessThan(12);
  await expect.poll(() => database.busy).toBe(false);
  database.close();
  const { database: again } = open(checkpoints);
  expect(again.reader('SELECT count(*), sum(length(value)) FROM t').get([])).toEqual([100, 100 * VALUE.length]);
  again.close();
});

test('a checkpoint that fails is logged, and the next one is made', async () => {
  await checkpoints.run(join(folder, 'nowhere', 'x.db'));
  expect(warnings.join()).toContain('could not be brought into its file');
  const { database, put } = open(checkpoints);
  await fill(put, 2 * CHECKPOINT_BYTES);
  await expect.poll(() => database.busy).toBe(false);
  expect(statSync(path).size).toBeGreaterThan(CHECKPOINT_BYTES);
  database.close();
});
