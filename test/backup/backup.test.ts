import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import Database from 'libsql';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { backupId, keepNewest } from '../../host/backup/backup-store.ts';
import { bounded, readBounded, within } from '../../host/backup/bounded.ts';
import { filesBelow } from '../../host/backup/copying.ts';
import { createBackup } from '../../host/backup/create.ts';
import { runBackup, runRestore } from '../../host/backup/index.ts';
import { makeContent, manifestText, openManifest } from '../../host/backup/manifest.ts';
import { openBackupStore } from '../../host/backup/open-store.ts';
import { BackupKeys } from '../../host/backup/passphrase.ts';
import { tellingPlace } from '../../host/backup/refusals.ts';
import { restoreBackup } from '../../host/backup/restore.ts';
import { openRegistry } from '../../host/registry/index.ts';
import { readRestored } from '../../host/registry/payments/restored.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import { Secrets } from '../../host/registry/secrets.ts';

const PASSPHRASE = 'correct horse battery staple';
const SECRET = 'key-that-must-not-appear-in-a-backup';

let folder: string;
let data: string;
let target: string;
/** A registry with the number 7 in it. */
let registryFile: string;
beforeAll(async () => {
  const place = mkdtempSync(join(tmpdir(), 'backup-registry-'));
  registryFile = join(place, 'registry.db');
  const registry = await openRegistry(join(place, 'made.db'));
  await registry.client.executeMultiple('CREATE TABLE t (v); INSERT INTO t VALUES (7)');
  await registry.copyTo(registryFile);
  registry.close();
  return () => rmSync(place, { recursive: true });
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'backup-'));
  data = join(folder, 'data');
  target = join(folder, 'backups');
  fillDataFolder(data);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(path: string, text: string): void {
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, text);
}

/** A data folder as a host leaves it. */
function fillDataFolder(at: string): void {
  write(join(at, 'secrets.key'), SECRET);
  write(join(at, 'local-network.json'), `{"privateKey":"${SECRET}"}`);
  write(join(at, 'certificates/example.com/key.pem'), SECRET);
  write(join(at, 'code/aa/manifest.json'), '{}');
  write(join(at, 'code/.new-1/half'), 'unfinished');
  write(join(at, 'chain/1337/state.json'), '{"block":1}');
  write(join(at, 'run/hello/http.sock'), 'not kept');
  write(join(at, 'cache/v24/module'), 'not kept');
  write(join(at, 'lock'), '');
  write(join(at, 'tenants/t1/logs/current'), 'a line');
  write(join(at, 'tenants/t1/kv/kv.db'), 'kv');
  write(join(at, 'tenants/t1/cache/cache.db'), 'not kept');
  copyFileSync(registryFile, join(at, 'registry.db'));
  mkdirSync(join(at, 'tenants/t1/sql'), { recursive: true });
  database(join(at, 'tenants/t1/sql/db.sqlite'), 42);
}

function database(file: string, value: number): void {
  const made = new Database(file);
  made.exec('PRAGMA journal_mode=WAL; CREATE TABLE t (v)');
  made.prepare('INSERT INTO t VALUES (?)').run([value]);
  made.close();
}

function valueIn(file: string): unknown {
  const opened = new Database(file);
  try {
    return (opened.prepare('SELECT v FROM t').get([]) as { v: number }).v;
  } finally {
    opened.close();
  }
}

const store = () => openBackupStore(target, undefined, folder);
const backup = (now = Date.UTC(2026, 0, 2, 3, 4, 5)) =>
  createBackup({
    dataFolder: data,
    store: store(),
    passphrase: PASSPHRASE,
    hostVersion: '1.2.3',
    now: () => now,
    copyStores: undefined,
    standStill: (_tenant, work) => work(),
    serviceFolders: () => new Map(),
  });
const restore = (into = join(folder, 'restored'), passphrase = PASSPHRASE) =>
  restoreBackup({ store: store(), id: undefined, passphrase, dataFolder: into });

function content(derivation: BackupKeys['derivation'], files: { path: string; bytes: number; sha256: string }[]) {
  return makeContent({ id: 'x', hostVersion: '1', startedAt: '', finishedAt: '', objects: 'disk', derivation, files });
}

describe('a backup', () => {
  it('brings back everything that is kept, on an empty box', async () => {
    const made = await backup();
    expect(made).toMatchObject({ id: '2026-01-02T03-04-05Z', location: join(target, '2026-01-02T03-04-05Z') });
    rmSync(data, { recursive: true });
    const restored = await restore(data);
    expect(restored).toMatchObject({ id: made.id, files: made.files, hostVersion: '1.2.3' });
    expect((await filesBelow(data)).filter((file) => !file.endsWith('-wal'))).toEqual([
      'certificates/example.com/key.pem',
      'chain/1337/state.json',
      'code/aa/manifest.json',
      'local-network.json',
      'registry.db',
      'secrets.key',
      'tenants/t1/kv/kv.db',
      'tenants/t1/logs/current',
      'tenants/t1/sql/db.sqlite',
    ]);
    expect(readFileSync(join(data, 'secrets.key'), 'utf8')).toBe(SECRET);
    expect(statSync(join(data, 'secrets.key')).mode & 0o777).toBe(0o600);
    expect(valueIn(join(data, 'registry.db'))).toBe(7);
    expect(valueIn(join(data, 'tenants/t1/sql/db.sqlite'))).toBe(42);
  });

  it('tells the books that money may have moved since, so that nothing is paid twice', async () => {
    const now = Date.UTC(2026, 0, 2, 3, 4, 5);
    await backup(now);
    await restore();
    const restored = await openRegistry(join(folder, 'restored/registry.db'));
    expect(await readRestored(restored.db)).toEqual({ since: now, line: 0 });
    restored.close();
  });

  it('shows no key to who has no passphrase', async () => {
    const { location } = await backup();
    for (const file of await filesBelow(location))
      expect(readFileSync(join(location, file), 'latin1')).not.toContain(SECRET);
    await expect(restore(data.concat('2'), 'another passphrase')).rejects.toThrow('passphrase');
    expect(existsSync(`${data}2`)).toBe(false);
  });

  it('holds what is only in the log of a database that was not closed', async () => {
    const file = join(data, 'tenants/t1/sql/db.sqlite');
    const open = new Database(file);
    open.prepare('UPDATE t SET v = ?').run([43]);
    await backup();
    await restore();
    open.close();
    expect(valueIn(join(folder, 'restored/tenants/t1/sql/db.sqlite'))).toBe(43);
  });

  it('asks the storage process for the stores where one runs', async () => {
    await createBackup({
      dataFolder: data,
      store: store(),
      passphrase: PASSPHRASE,
      hostVersion: '1',
      now: Date.now,
      copyStores: async (to) => write(join(to, 't1/kv/kv.db'), 'kv by the storage process'),
      standStill: (_tenant, work) => work(),
      serviceFolders: () => new Map(),
    });
    await restore();
    expect(readFileSync(join(folder, 'restored/tenants/t1/kv/kv.db'), 'utf8')).toBe('kv by the storage process');
  });

  it('copies the index of objects again when objects of it are gone', async () => {
    let copies = 0;
    const gone = [2, 1, 0];
    await createBackup({
      dataFolder: data,
      store: store(),
      passphrase: PASSPHRASE,
      hostVersion: '1',
      now: Date.now,
      copyStores: async () => copies++,
      standStill: (_tenant, work) => work(),
      serviceFolders: () => new Map(),
      fetchObjects: async () => gone.shift() ?? 0,
    });
    expect(copies).toBe(3);
  });

  it('that fails leaves nothing that looks like one', async () => {
    const failing = createBackup({
      dataFolder: data,
      store: store(),
      passphrase: PASSPHRASE,
      hostVersion: '1',
      now: Date.now,
      copyStores: () => Promise.reject(new Error('no space')),
      standStill: (_tenant, work) => work(),
      serviceFolders: () => new Map(),
    });
    await expect(failing).rejects.toThrow('no space');
    expect(await store().list()).toEqual([]);
    expect(readdirSync(target)).toEqual([]);
  });

  it('is made while keys are written anew and removed', async () => {
    const names = Array.from({ length: 30 }, (_, number) => join(data, `certificates/passing-${number}.pem`));
    const made = backup();
    const ended = made.then(
      () => true,
      () => true,
    );
    for (let turn = 0; (await Promise.race([ended, setImmediate(false)])) === false; turn++) {
      const name = names[turn % names.length] ?? '';
      if (existsSync(name)) rmSync(name);
      else write(name, 'passing');
    }
    await made;
    await restore();
    expect(readFileSync(join(folder, 'restored/secrets.key'), 'utf8')).toBe(SECRET);
  });

  it('holds the keys of the secrets as the registry in it has them, whatever is rotated meanwhile', async () => {
    rmSync(join(data, 'registry.db'));
    const registry = await openRegistry(join(data, 'registry.db'));
    rmSync(join(data, 'secrets.key'));
    const secrets = new Secrets(registry.db, await SecretBox.open(join(data, 'secrets.key')));
    await registry.client.execute('PRAGMA foreign_keys=OFF');
    for (const { name, keyId, sealed } of secrets.seal('t1', { API_KEY: 'mine' })) {
      await registry.client.execute({
        sql: 'INSERT INTO secrets (tenant, name, key_id, sealed) VALUES (?, ?, ?, ?)',
        args: ['t1', name, keyId, sealed],
      });
    }
    await createBackup({
      dataFolder: data,
      store: store(),
      passphrase: PASSPHRASE,
      hostVersion: '1',
      now: Date.now,
      // Of a large host this takes long.
      copyStores: () => secrets.rotate(),
      standStill: (_tenant, work) => work(),
      serviceFolders: () => new Map(),
    });
    registry.close();
    await restore();
    const restored = await openRegistry(join(folder, 'restored/registry.db'));
    const box = await SecretBox.open(join(folder, 'restored/secrets.key'));
    expect(await new Secrets(restored.db, box).reveal('t1')).toEqual({ API_KEY: 'mine' });
    restored.close();
  });

  it('keeps no file of interrupted work', async () => {
    write(join(data, 'certificates/example.com/key.pem.1f2e.tmp'), SECRET);
    write(join(data, 'local-network.json.1f2e.tmp'), SECRET);
    await backup();
    await restore();
    expect((await filesBelow(join(folder, 'restored'))).filter((file) => file.endsWith('.tmp'))).toEqual([]);
  });

  it('removes what interrupted ones left, once that is a day old', async () => {
    const left = ['.unfinished-2026-01-01T03-04-04Z', '.removed-2025-12-31T00-00-00Z'];
    const kept = ['.unfinished-2026-01-01T03-04-06Z', '.unfinished-of-somebody', '.ssh'];
    for (const name of [...left, ...kept]) write(join(target, name, 'file'), '');
    await backup();
    expect(readdirSync(target).sort()).toEqual([...kept, '2026-01-02T03-04-05Z'].sort());
  });

  it('says where it cannot be written, in the words of the system', async () => {
    write(join(target, '..', 'file'), '');
    target = join(folder, 'file');
    await expect(backup()).rejects.toMatchObject({
      code: 'invalid_config',
      message: expect.stringMatching(/^No backup was made: ENOTDIR.* Make room in .*file\/2026-01-02T03-04-05Z/),
    });
  });

  it('says so where its disk is full', async () => {
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    await expect(tellingPlace('No backup was made', '/backups', () => Promise.reject(full))).rejects.toMatchObject({
      code: 'disk_full',
      message: expect.stringMatching(/^No backup was made: ENOSPC.* Make room in \/backups/),
    });
  });

  it('needs a passphrase worth the name', async () => {
    await expect(BackupKeys.create('short')).rejects.toThrow('at least 12 characters');
  });
});

describe('a damaged backup is refused', () => {
  const damages: [string, (location: string) => void][] = [
    ['a byte of a database', (at) => flip(join(at, 'files/tenants/t1/sql/db.sqlite'), 100)],
    ['a byte of a sealed key', (at) => flip(join(at, 'sealed/secrets.key'), 20)],
    ['a missing file', (at) => rmSync(join(at, 'files/code/aa/manifest.json'))],
    ['a file cut short', (at) => writeFileSync(join(at, 'files/registry.db'), '')],
    [
      'a manifest cut short',
      (at) => writeFileSync(join(at, 'manifest.json'), readFileSync(join(at, 'manifest.json')).subarray(0, 200)),
    ],
    [
      'a manifest that fits the damage',
      (at) => {
        const manifest = JSON.parse(readFileSync(join(at, 'manifest.json'), 'utf8'));
        manifest.content.files = manifest.content.files.slice(1);
        writeFileSync(join(at, 'manifest.json'), JSON.stringify(manifest));
      },
    ],
    [
      'a manifest that leads elsewhere',
      (at) => {
        const manifest = JSON.parse(readFileSync(join(at, 'manifest.json'), 'utf8'));
        manifest.content.files[0].path = 'files/../../escaped';
        writeFileSync(join(at, 'manifest.json'), JSON.stringify(manifest));
      },
    ],
    ['a pipe', (at) => replaced(join(at, 'files/tenants/t1/kv/kv.db'), (file) => execFileSync('mkfifo', [file]))],
    ['a link to a file', (at) => linked(join(at, 'files/tenants/t1/kv/kv.db'))],
    ['a link on the way to a file', (at) => linked(join(at, 'files/tenants/t1/kv'))],
    ['a device', (at) => replaced(join(at, 'files/tenants/t1/kv/kv.db'), (file) => symlinkSync('/dev/zero', file))],
    ['a folder', (at) => replaced(join(at, 'files/tenants/t1/kv/kv.db'), (file) => mkdirSync(file))],
    ['a file of a terabyte', (at) => truncateSync(join(at, 'files/tenants/t1/kv/kv.db'), 2 ** 40)],
    ['a manifest of a terabyte', (at) => truncateSync(join(at, 'manifest.json'), 2 ** 40)],
  ];

  function replaced(path: string, make: (path: string) => void): void {
    rmSync(path, { recursive: true });
    make(path);
  }

  /** The same bytes, but elsewhere. */
  function linked(path: string): void {
    renameSync(path, join(folder, 'data', 'elsewhere'));
    symlinkSync(join(folder, 'data', 'elsewhere'), path);
  }

  it.each(damages)('%s', async (_, damage) => {
    const { location } = await backup();
    damage(location);
    await expect(restore()).rejects.toMatchObject({ code: 'invalid_field' });
    expect(readdirSync(folder).sort()).toEqual(['backups', 'data']);
  });

  it('another one under its name', async () => {
    const { location } = await backup();
    renameSync(location, join(target, '2027-01-01T00-00-00Z'));
    await expect(restore()).rejects.toMatchObject({ code: 'invalid_field', message: expect.stringContaining('2026') });
  });

  it.each([
    ['twice the same', ['files/a', 'files/a']],
    ['sealed and not', ['files/a', 'sealed/a']],
    ['names that differ in case', ['files/tenants/A', 'files/tenants/a']],
    ['names that differ in form', ['files/tenants/\u00e9', 'files/tenants/e\u0301']],
    ['a file where a folder is', ['files/a', 'files/a/b']],
  ])('a manifest with %s', async (_, paths) => {
    const keys = await BackupKeys.create(PASSPHRASE);
    const files = paths.map((path) => ({ path, bytes: 0, sha256: '0'.repeat(64) }));
    const text = JSON.stringify({ content: content(keys.derivation, files), proof: '' });
    await expect(openManifest(text, PASSPHRASE)).rejects.toThrow('damaged');
  });

  it('one that asks for more memory than a guess is worth', async () => {
    const keys = await BackupKeys.create(PASSPHRASE);
    const derivation = { ...keys.derivation, cost: 2 ** 20, blockSize: 16 };
    const text = JSON.stringify({ content: content(derivation, []), proof: '' });
    await expect(openManifest(text, PASSPHRASE)).rejects.toThrow('cannot read');
  });

  it('what is longer is not read to its end, and what does not go on is given up', async () => {
    let given = 0;
    const endless = new Readable({
      read() {
        given += 65_536;
        this.push(Buffer.alloc(65_536));
      },
    });
    await expect(readBounded(endless, 100_000)).rejects.toThrow('longer');
    expect(endless.destroyed).toBe(true);
    expect(given).toBeLessThan(1_000_000);
    const silent = new Readable({ read() {} });
    const reading = async () => {
      for await (const part of bounded(silent, 1, undefined, 20)) void part;
    };
    await expect(reading()).rejects.toThrow('no data arrived');
    await expect(within(new Promise(() => {}), 20)).rejects.toThrow('no answer');
  });

  it('one that the disk cannot hold, before anything is copied', async () => {
    const { location } = await backup();
    const text = readFileSync(join(location, 'manifest.json'), 'utf8');
    const { content: made, keys } = await openManifest(text, PASSPHRASE);
    const files = made.files.map((file) => ({ ...file, bytes: 2 ** 50 }));
    writeFileSync(join(location, 'manifest.json'), manifestText({ ...made, files }, keys));
    await expect(restore()).rejects.toMatchObject({
      code: 'invalid_config',
      message: expect.stringContaining('needs'),
    });
  });

  it('without its manifest it is none', async () => {
    const { location } = await backup();
    rmSync(join(location, 'manifest.json'));
    expect(await store().list()).toEqual([]);
    await expect(restore()).rejects.toMatchObject({ code: 'not_found' });
  });

  it('a manifest is proved only by the passphrase that made it', async () => {
    const keys = await BackupKeys.create(PASSPHRASE);
    const made = content(keys.derivation, [{ path: 'files/a', bytes: 1, sha256: '0'.repeat(64) }]);
    const text = manifestText(made, keys);
    expect((await openManifest(text, PASSPHRASE)).content).toEqual(made);
    await expect(openManifest(text.replace('"bytes": 1', '"bytes": 2'), PASSPHRASE)).rejects.toThrow('was changed');
    await expect(openManifest(text.replace(/"cost": \d+/, '"cost": 1073741824'), PASSPHRASE)).rejects.toThrow();
  });
});

describe('a restore', () => {
  it('never touches a folder that holds something', async () => {
    await backup();
    await expect(restore(data)).rejects.toMatchObject({ code: 'conflict' });
    expect(readFileSync(join(data, 'secrets.key'), 'utf8')).toBe(SECRET);
  });

  it('into a link to an empty folder fills that folder', async () => {
    await backup();
    const disk = join(folder, 'disk');
    const link = join(folder, 'link');
    mkdirSync(disk);
    symlinkSync(disk, link);
    await restore(link);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(disk, 'secrets.key'), 'utf8')).toBe(SECRET);
    expect(readdirSync(disk).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('takes a fresh disk for empty, and leaves its lost+found alone', async () => {
    await backup();
    const disk = join(folder, 'disk');
    write(join(disk, 'lost+found/#12'), 'what fsck found');
    await restore(disk);
    expect(readFileSync(join(disk, 'secrets.key'), 'utf8')).toBe(SECRET);
    expect(readFileSync(join(disk, 'lost+found/#12'), 'utf8')).toBe('what fsck found');
  });

  it('refuses a link to nowhere before it copies anything', async () => {
    await backup();
    const link = join(folder, 'link');
    symlinkSync(join(folder, 'nowhere'), link);
    await expect(restore(link)).rejects.toThrow(`${link} is a link to a folder that does not exist`);
    expect(readdirSync(folder).sort()).toEqual(['backups', 'data', 'link']);
  });

  it('leaves a folder alone that is named like one of its own', async () => {
    await backup();
    const mine = join(folder, 'restored.restoring', 'mine');
    write(mine, 'not to be lost');
    await restore();
    expect(readFileSync(mine, 'utf8')).toBe('not to be lost');
    expect(readdirSync(folder).sort()).toEqual(['backups', 'data', 'restored', 'restored.restoring']);
  });

  it('that fails leaves an empty folder empty', async () => {
    await backup();
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    await expect(restore(empty, 'another passphrase')).rejects.toThrow('passphrase');
    const { location } = await backup(Date.UTC(2026, 0, 3));
    flip(join(location, 'files/code/aa/manifest.json'), 0);
    await expect(restore(empty)).rejects.toMatchObject({ code: 'invalid_field' });
    expect(readdirSync(empty)).toEqual([]);
  });

  it.runIf(mayMount())('fills a disk that is mounted there', async () => {
    await backup();
    const disk = join(folder, 'disk');
    mkdirSync(disk);
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', disk]);
    try {
      await restore(disk);
      expect(readFileSync(join(disk, 'secrets.key'), 'utf8')).toBe(SECRET);
      expect(valueIn(join(disk, 'registry.db'))).toBe(7);
      expect(readdirSync(folder).sort()).toEqual(['backups', 'data', 'disk']);
    } finally {
      execFileSync('umount', ['--lazy', disk]);
    }
  });

  it('takes the newest, or the one that is named', async () => {
    const first = await backup(Date.UTC(2026, 0, 1));
    write(join(data, 'tenants/t1/logs/current'), 'another line');
    await backup(Date.UTC(2026, 0, 2));
    const restored = join(folder, 'restored');
    expect((await restore(restored)).id).toBe('2026-01-02T00-00-00Z');
    expect(readFileSync(join(restored, 'tenants/t1/logs/current'), 'utf8')).toBe('another line');
    const named = await restoreBackup({
      store: store(),
      id: first.id,
      passphrase: PASSPHRASE,
      dataFolder: `${restored}2`,
    });
    expect(named.id).toBe(first.id);
    expect(readFileSync(join(`${restored}2`, 'tenants/t1/logs/current'), 'utf8')).toBe('a line');
  });
});

describe('kept backups', () => {
  it('are the newest ones', async () => {
    const kept = store();
    for (const day of [3, 1, 2]) {
      const staging = kept.staging(backupId(Date.UTC(2026, 0, day)));
      mkdirSync(staging, { recursive: true });
      await kept.publish(backupId(Date.UTC(2026, 0, day)), staging, '{}');
    }
    mkdirSync(kept.staging(backupId(Date.UTC(2026, 0, 4))));
    expect(await keepNewest(kept, 2, Date.UTC(2026, 5, 1))).toEqual(['2026-01-01T00-00-00Z']);
    expect(await kept.list()).toEqual(['2026-01-02T00-00-00Z', '2026-01-03T00-00-00Z']);
  });

  it('are not pushed out by those of a clock that was ahead, and these stay', async () => {
    const kept = store();
    for (const year of [2026, 2027, 2126, 2127]) {
      const id = backupId(Date.UTC(year, 0, 1));
      mkdirSync(kept.staging(id), { recursive: true });
      await kept.publish(id, kept.staging(id), '{}');
    }
    expect(await keepNewest(kept, 2, Date.UTC(2027, 0, 2))).toEqual([]);
    expect(await keepNewest(kept, 1, Date.UTC(2027, 0, 2))).toEqual(['2026-01-01T00-00-00Z']);
  });

  it('by configuration: target, passphrase and number', async () => {
    const passphraseFile = join(folder, 'passphrase');
    writeFileSync(passphraseFile, `${PASSPHRASE}\n`);
    const config = {
      backup: { schedule: '', target, keep: 1, passphraseFile },
      storage: { objects: 'disk', sql: 'local' },
    } as unknown as Parameters<typeof runBackup>[0]['config'];
    const request = { config, dataFolder: data, hostVersion: '1', live: undefined };
    await backup(Date.UTC(2026, 0, 1));
    const made = await runBackup(request);
    expect(made.removed).toEqual(['2026-01-01T00-00-00Z']);
    expect(made.lacks).toEqual([]);
    const restored = await runRestore({ config, source: made.location, dataFolder: join(folder, 'restored') });
    expect(restored.id).toBe(made.id);
    await expect(runBackup({ ...request, passphraseFile: join(folder, 'nowhere') })).rejects.toMatchObject({
      code: 'invalid_config',
    });
    await expect(
      runBackup({ ...request, config: { ...config, backup: { ...config.backup, passphraseFile: '' } } }),
    ).rejects.toThrow('at least 12 characters');
    await expect(runBackup({ ...request, target: '' })).rejects.toMatchObject({ code: 'invalid_config' });
    const remote = { ...config, storage: { ...config.storage, sql: 'http://127.0.0.1:8080' } };
    const { lacks } = await runBackup({ ...request, config: remote, target: join(folder, 'elsewhere') });
    expect(lacks).toEqual([expect.stringContaining('SQL databases')]);
  });
});

function flip(file: string, at: number): void {
  const bytes = readFileSync(file);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(file, bytes);
}

function mayMount(): boolean {
  const at = mkdtempSync(join(tmpdir(), 'mount-'));
  const isMounted = spawnSync('mount', ['-t', 'tmpfs', 'tmpfs', at]).status === 0;
  if (isMounted) execFileSync('umount', [at]);
  rmSync(at, { recursive: true });
  return isMounted;
}
