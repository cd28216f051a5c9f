import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Database } from '../../../host/bindings/store-process/database.ts';
import { Refusal } from '../../../host/bindings/store-process/refusal.ts';

let folder: string;
/** Syncs that were asked for and wait to be finished by the test. */
let syncs: ((error: Error | null) => void)[];
let database: Database;
let insert: (value: number) => void;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'database-'));
  syncs = [];
  database = new Database({
    path: join(folder, 'x.db'),
    schema: 'CREATE TABLE t (a INTEGER UNIQUE)',
    checkpoints: { run: async () => {} },
    sync: (_descriptor, done) => syncs.push(done),
  });
  const statement = database.writer('INSERT INTO t VALUES (?)');
  insert = (value) => void statement.run([value]);
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

const rows = () => database.reader('SELECT a FROM t ORDER BY a').all([]).flat();

async function nextSync(): Promise<(error: Error | null) => void> {
  await expect.poll(() => syncs.length).toBeGreaterThan(0);
  return syncs.shift() as (error: Error | null) => void;
}

test('a write is acknowledged after the sync that follows it, not before', async () => {
  let done = false;
  const write = database
    .commit(() => insert(1))
    .then(() => {
      done = true;
    });
  const sync = await nextSync();
  expect(rows()).toEqual([1]);
  await new Promise((resolve) => setImmediate(resolve));
  expect([done, database.busy]).toEqual([false, true]);
  sync(null);
  await write;
  expect([done, database.busy]).toEqual([true, false]);
});

test('writes of one turn share a transaction and a sync; those that come meanwhile share the next', async () => {
  const first = [database.commit(() => insert(1)), database.commit(() => insert(2))];
  const sync = await nextSync();
  const second = [database.commit(() => insert(3)), database.commit(() => insert(4))];
  await new Promise((resolve) => setImmediate(resolve));
  expect(rows()).toEqual([1, 2]);
  sync(null);
  await Promise.all(first);
  (await nextSync())(null);
  await Promise.all(second);
  expect([rows(), syncs.length]).toEqual([[1, 2, 3, 4], 0]);
});

test('a refusal concerns only itself', async () => {
  const refused = database.commit(() => {
    throw new Refusal('no');
  });
  const written = database.commit(() => {
    insert(1);
    return 'result';
  });
  await expect(refused).rejects.toThrow('no');
  (await nextSync())(null);
  expect([await written, rows()]).toEqual(['result', [1]]);
});

test('any other error takes the whole transaction back, and says so to those who remember', async () => {
  let rolledBack = 0;
  database.rollbackListeners.push(() => rolledBack++);
  const writes = [database.commit(() => insert(1)), database.commit(() => insert(1))];
  await Promise.all(writes.map((write) => expect(write).rejects.toThrow(/UNIQUE/)));
  expect([rows(), rolledBack]).toEqual([[], 1]);
  const next = database.commit(() => insert(5));
  (await nextSync())(null);
  await next;
  expect(rows()).toEqual([5]);
});

test('after a failed sync nothing is acknowledged any more', async () => {
  const write = database.commit(() => insert(1));
  const sync = await nextSync();
  const waiting = database.commit(() => insert(2));
  sync(new Error('EIO'));
  await expect(write).rejects.toThrow('EIO');
  await expect(waiting).rejects.toThrow('EIO');
  await expect(database.commit(() => insert(3))).rejects.toThrow('EIO');
  expect(database.failure?.message).toBe('EIO');
});

test('totals are saved with the transaction that changes them', async () => {
  let total = 0;
  database.beforeCommit = () => insert(100 + total);
  const write = database.commit(() => {
    insert(1);
    total = 7;
  });
  (await nextSync())(null);
  await write;
  expect(rows()).toEqual([1, 107]);
});
