/** Backup under write load to KV and D1, restore elsewhere: what is there is a moment within the backup's time. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { cp, mkdir, rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createBackup } from '../../host/backup/create.ts';
import { openBackupStore } from '../../host/backup/open-store.ts';
import { restoreBackup } from '../../host/backup/restore.ts';
import { copySql } from '../../host/bindings/d1/copy.ts';
import { bundleHandler, SqlRig, sqlProgram } from './d1-rig.ts';
import { callSocket, StorageRig, TENANT } from './storage-rig.ts';

const PASSPHRASE = 'a passphrase for a test';
const program = await sqlProgram();
const handler = await bundleHandler();
let folder: string;
let sql: SqlRig;
let storage: StorageRig;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'backup-load-'));
  // The database lies where a host keeps it.
  await mkdir(join(folder, 'data/tenants', TENANT, 'sql'), { recursive: true });
  sql = await SqlRig.start(program, { database: join(folder, 'data/tenants', TENANT, 'sql/db.sqlite') }, handler);
  storage = new StorageRig();
  await storage.startStorage();
  await sql.query('CREATE TABLE w (id INTEGER PRIMARY KEY, a TEXT, b TEXT)');
  await sql.query('CREATE TABLE ticks (t)');
});
afterAll(async () => {
  await sql.stop();
  await storage.stop();
  program.remove();
  rmSync(folder, { recursive: true, force: true });
});

/** Writes numbers in order to both, as fast as they are acknowledged, until stopped. */
function startWriting() {
  const acknowledged = { sql: -1, kv: -1 };
  let over = false;
  const rows = async (): Promise<void> => {
    const [{ next }] = await sql.query('SELECT coalesce(max(id), -1) + 1 AS next FROM w');
    for (let id = next; !over; id++) {
      const filler = 'x'.repeat(2_000);
      await sql.query('INSERT INTO w VALUES (?, ?, ?)', [id, filler, filler]);
      acknowledged.sql = id;
    }
  };
  const keys = async (): Promise<void> => {
    const socket = join(storage.sockets, 'kv.sock');
    for (let id = 0; !over; id++) {
      await callSocket(socket, `/k${id}?urlencoded=true`, { method: 'PUT', body: Buffer.from(`v${id}`) });
      acknowledged.kv = id;
    }
  };
  const work = Promise.all([rows(), keys()]);
  return {
    acknowledged,
    async stop(): Promise<void> {
      over = true;
      await work;
    },
  };
}

test('every store equals a moment within the time of the backup', async () => {
  const writing = startWriting();
  await expect.poll(() => Math.min(writing.acknowledged.sql, writing.acknowledged.kv)).toBeGreaterThan(50);
  const before = { ...writing.acknowledged };
  const store = openBackupStore(join(folder, 'backups'), undefined, folder);
  await createBackup({
    dataFolder: join(folder, 'data'),
    store,
    passphrase: PASSPHRASE,
    hostVersion: 'test',
    now: Date.now,
    copyStores: (to) => storage.channel.call('backup', { folder: to }),
    standStill: (_tenant, work) => work(),
    serviceFolders: () => new Map([[TENANT, dirname(sql.socket)]]),
  });
  const after = { ...writing.acknowledged };
  await writing.stop();
  expect(after.sql).toBeGreaterThan(before.sql);

  const restored = join(folder, 'restored');
  await restoreBackup({ store, id: undefined, passphrase: PASSPHRASE, dataFolder: restored });
  const otherSql = await SqlRig.start(
    program,
    { database: join(restored, 'tenants', TENANT, 'sql/db.sqlite') },
    handler,
  );
  const otherStorage = new StorageRig();
  try {
    expect(await otherSql.query('PRAGMA quick_check')).toEqual([{ quick_check: 'ok' }]);
    const [{ n, last }] = await otherSql.query('SELECT count(*) AS n, max(id) AS last FROM w');
    // A prefix of what was written, without a hole: one moment.
    expect(n).toBe(last + 1);
    expect(last).toBeGreaterThanOrEqual(before.sql);
    expect(last).toBeLessThanOrEqual(after.sql + 1);

    await rename(join(restored, 'tenants'), otherStorage.root);
    await otherStorage.startStorage();
    const socket = join(otherStorage.sockets, 'kv.sock');
    let found = 0;
    while ((await callSocket(socket, `/k${found}?urlencoded=true`)).status === 200) found++;
    expect(found - 1).toBeGreaterThanOrEqual(before.kv);
    expect(found - 1).toBeLessThanOrEqual(after.kv + 1);
  } finally {
    await otherSql.stop();
    await otherStorage.stop();
  }
});

describe('the copy of a database that is written to', () => {
  test('is whole each time, with and without asking its process to hold still', async () => {
    const from = join(folder, 'data/tenants', TENANT, 'sql');
    const writing = startWriting();
    for (const [round, socket] of [sql.socket, undefined, sql.socket, undefined].entries()) {
      const before = writing.acknowledged.sql;
      const to = join(folder, `copy${round}`);
      await copySql(from, to, socket);
      const after = writing.acknowledged.sql;
      const rig = await SqlRig.start(program, { database: join(to, 'db.sqlite') }, handler);
      try {
        expect(await rig.query('PRAGMA quick_check')).toEqual([{ quick_check: 'ok' }]);
        const [{ n, last }] = await rig.query('SELECT count(*) AS n, max(id) AS last FROM w');
        expect(n).toBe(last + 1);
        if (before >= 0) expect(last).toBeGreaterThanOrEqual(before);
        if (after >= 0) expect(last).toBeLessThanOrEqual(after + 1);
      } finally {
        await rig.stop();
      }
    }
    await writing.stop();
  });

  test('of no database is nothing', async () => {
    await copySql(join(folder, 'nowhere'), join(folder, 'nothing'), undefined);
    expect(existsSync(join(folder, 'nothing'))).toBe(false);
  });

  test('a file that only looks like one is copied as it is: nothing opens it', async () => {
    await mkdir(join(folder, 'odd'));
    await cp(join(import.meta.dirname, 'd1-backup.test.ts'), join(folder, 'odd/db.sqlite'));
    await copySql(join(folder, 'odd'), join(folder, 'odd-copy'), undefined);
    expect(existsSync(join(folder, 'odd-copy/db.sqlite'))).toBe(true);
  });
});
