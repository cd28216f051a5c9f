/** Backups on a real S3: kept there, damaged there, and of objects whose bytes live there. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'minio';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keepNewest } from '../../host/backup/backup-store.ts';
import { createBackup } from '../../host/backup/create.ts';
import { fetchObjects, placeObjects } from '../../host/backup/objects.ts';
import { openBackupStore } from '../../host/backup/open-store.ts';
import { restoreBackup } from '../../host/backup/restore.ts';
import { callR2, StorageRig, TENANT } from '../e2e/storage-rig.ts';
import { s3Objects } from './radosgw.ts';

const PASSPHRASE = 'a passphrase for a test';
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 's3-backup-'));
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
});

function client(): Client {
  const { endpoint, accessKey, secretKey, region } = s3Objects('any');
  const { hostname, port } = new URL(endpoint);
  return new Client({ endPoint: hostname, port: Number(port), useSSL: false, accessKey, secretKey, region });
}

const open = () => openBackupStore('s3://backups/box/one', s3Objects('any'), folder);

function backup(dataFolder: string, day: number, more: Partial<Parameters<typeof createBackup>[0]> = {}) {
  return createBackup({
    dataFolder,
    store: open(),
    passphrase: PASSPHRASE,
    hostVersion: 'test',
    now: () => Date.UTC(2026, 0, day),
    copyStores: undefined,
    serviceFolders: () => new Map(),
    standStill: (_tenant, work) => work(),
    ...more,
  });
}

describe('a backup in a bucket', () => {
  test('comes back, is kept in number, and is refused when damaged', async () => {
    const data = join(folder, 'data');
    mkdirSync(join(data, 'tenants/t1/logs'), { recursive: true });
    writeFileSync(join(data, 'secrets.key'), 'secret');
    writeFileSync(join(data, 'tenants/t1/logs/current'), 'x'.repeat(6_000_000));
    for (const day of [1, 2, 3])
      expect((await backup(data, day)).location).toBe(`s3://backups/box/one/2026-01-0${day}T00-00-00Z`);
    // What was put together on this disk is gone.
    expect(readdirSync(folder)).toEqual(['data']);
    expect(await keepNewest(open(), 2, Date.UTC(2026, 5, 1))).toEqual(['2026-01-01T00-00-00Z']);
    expect(await open().list()).toEqual(['2026-01-02T00-00-00Z', '2026-01-03T00-00-00Z']);

    const restored = join(folder, 'restored');
    await restoreBackup({ store: open(), id: undefined, passphrase: PASSPHRASE, dataFolder: restored });
    expect(readFileSync(join(restored, 'secrets.key'), 'utf8')).toBe('secret');
    expect(readFileSync(join(restored, 'tenants/t1/logs/current'), 'utf8')).toHaveLength(6_000_000);

    const damaged = Buffer.from('y'.repeat(6_000_000));
    await client().putObject(
      'backups',
      'box/one/2026-01-03T00-00-00Z/files/tenants/t1/logs/current',
      damaged,
      damaged.length,
    );
    const again = restoreBackup({ store: open(), id: undefined, passphrase: PASSPHRASE, dataFolder: `${restored}2` });
    await expect(again).rejects.toMatchObject({ code: 'invalid_field' });
    expect(existsSync(`${restored}2`)).toBe(false);

    await client().removeObject('backups', 'box/one/2026-01-03T00-00-00Z/manifest.json');
    expect(await open().list()).toEqual(['2026-01-02T00-00-00Z']);
  });
});

describe('objects whose bytes live in a bucket', () => {
  test('are in the backup, and back in a bucket after the restore', async () => {
    const rig = new StorageRig({ objects: s3Objects('live') });
    await rig.startStorage();
    const value = Buffer.alloc(3_000_000, 7);
    await callR2(join(rig.sockets, 'r2.sock'), { method: 'put', object: 'kept' }, value);
    const live = { ...s3Objects('live') };
    const data = join(folder, 'object-data');
    mkdirSync(data);
    await backup(data, 9, {
      copyStores: (to) => rig.channel.call('backup', { folder: to }),
      fetchObjects: (tenants) => fetchObjects(live, tenants),
    });
    await callR2(join(rig.sockets, 'r2.sock'), { method: 'delete', object: 'kept' });
    await rig.stop();

    const other = new StorageRig({ objects: s3Objects('other') });
    const restored = join(folder, 'object-restored');
    await restoreBackup({
      store: open(),
      id: '2026-01-09T00-00-00Z',
      passphrase: PASSPHRASE,
      dataFolder: restored,
      placeObjects: (tenants) => placeObjects({ ...s3Objects('other') }, tenants),
    });
    expect(existsSync(join(restored, 'tenants', TENANT, 'r2/objects'))).toBe(false);
    await rename(join(restored, 'tenants'), other.root);
    try {
      await other.startStorage();
      const answer = await callR2(join(other.sockets, 'r2.sock'), { method: 'get', object: 'kept' });
      expect(answer.value.equals(value)).toBe(true);
    } finally {
      await other.stop();
    }
  });
});
