/**
 * A box that moves into PostgreSQL and a bucket, and out again: with money, keys, code, KV, R2 and static files, killed at
 * each step and begun again; what there is at the end is compared byte by byte with what there was.
 */
import { fork } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import Libsql from 'libsql';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { KvStore } from '../../host/bindings/kv/store.ts';
import type { R2Store } from '../../host/bindings/r2/store.ts';
import { type AllStores, storesOfBox, storesOfCluster } from '../../host/bindings/store-process/transfer-all.ts';
import { type Act, Audit } from '../../host/registry/audit.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { openRegistry, type Registry } from '../../host/registry/index.ts';
import { openPostgresRegistry } from '../../host/registry/postgres/index.ts';
import { CodeStore } from '../../host/runtime/code-store.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { loadConfig } from '../../host/supervisor/configuration.ts';
import { openFolders } from '../../host/supervisor/folders.ts';
import { moveBoxIn } from '../../host/supervisor/moving-in.ts';
import { giveUpMoveOut, moveClusterOut } from '../../host/supervisor/moving-out.ts';
import { openStores } from '../../host/supervisor/stores.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { deliver, paymentsOn } from '../registry/support/paying.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { s3Settings } from './radosgw.ts';

const PAYMENTS = 50;
const ACT: Act = { act: 'POST /blocks', subject: null, parameters: {}, reason: null, address: 'socket' };
const BINDINGS = { kv: true, d1: { DB: {}, LOG: { id: 'log' } }, r2: true, payments: false };
const CHILD = fileURLToPath(new URL('moving-child.ts', import.meta.url));
const KEY = 'k'.repeat(32);
const log = pino({ level: 'silent' });
const sha256 = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');

describe('moving in and out', () => {
  let server: PostgresServer;
  let url: string;
  let root: string;
  let folder: string;
  let box: Registry;
  let env: Record<string, string>;
  let databases = 0;

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    url = server.create(`moved${++databases}`);
    root = mkdtempSync(path.join(tmpdir(), 'tp-move-'));
    folder = path.join(root, 'box');
    mkdirSync(folder);
    const { endpoint, bucket, accessKey, secretKey } = s3Settings(`moved${databases}`);
    env = {
      TURNPIKE_CLUSTER_DATABASE: url,
      TURNPIKE_CLUSTER_KEY: KEY,
      TURNPIKE_CLUSTER_STORAGE_ENDPOINT: endpoint,
      TURNPIKE_CLUSTER_STORAGE_BUCKET: bucket,
      TURNPIKE_CLUSTER_STORAGE_ACCESS_KEY: accessKey,
      TURNPIKE_CLUSTER_STORAGE_SECRET_KEY: secretKey,
      TURNPIKE_PUBLIC_URL: 'https://example.com',
      TURNPIKE_PAYMENTS_NETWORK: 'none',
      TURNPIKE_BUILTIN_TENANTS_ENABLED: '',
    };
    box = await openRegistry(path.join(folder, 'registry.db'));
  });
  afterEach(async () => {
    await box.close();
    rmSync(root, { recursive: true });
  });

  const config = () => loadConfig({ folder, env, flags: [] });

  /** Begins a move in a process of its own, and kills it where it says this. */
  async function killAt(direction: 'in' | 'out', at: string, line: string): Promise<void> {
    const child = fork(CHILD, [direction, at, line], { env: { PATH: process.env.PATH, ...env } });
    const exited = once(child, 'exit');
    const [said] = await Promise.race([once(child, 'message'), exited.then(() => ['it ended before'])]);
    expect(said).toContain(line);
    child.kill('SIGKILL');
    await exited;
  }

  async function rowsOf(registry: Pick<Registry, 'client'>, table: string): Promise<string[]> {
    // Those of nodes were made for the move.
    const which = table === 'settings' ? "WHERE name NOT LIKE 'key:%' AND name NOT LIKE 'cluster:%'" : '';
    const { rows } = await registry.client.execute(`SELECT * FROM ${table} ${which}`);
    return rows.map((row) => JSON.stringify(Object.values(row))).sort();
  }

  test('databases that nodes would not have as they are are named, and all is as it was', async () => {
    const deployment = newDeployment({ slug: 'keeper', settings: { bindings: BINDINGS } });
    await new Deployments(box.db).create(deployment, 0);
    const own = path.join(folder, 'tenants', deployment.tenant, 'sql.log');
    mkdirSync(own, { recursive: true });
    const database = new Libsql(path.join(own, 'db.sqlite'));
    database.exec("CREATE VIEW v AS SELECT regexp('a', 'b') AS a");
    database.close();
    await expect(moveBoxIn(config(), folder)).rejects.toThrow(/: keeper\/log \(v read: no such function: regexp/);
    expect(existsSync(path.join(folder, 'registry.db'))).toBe(true);
    await expect(moveClusterOut(config(), path.join(root, 'out'))).rejects.toThrow(/holds no host/);
    await (await openPostgresRegistry(url)).end();
  });

  test('all of it, killed six times on the way in and five on the way out', async () => {
    const tenant = await fill(box, folder);
    const data = await contents(await storesOfBox(path.join(folder, 'tenants'), undefined, log), tenant);
    expect(data).toHaveLength(KV_KEYS + R2_KEYS);

    await killAt('in', folder, `store ${tenant}/kv`);
    await expect(moveClusterOut(config(), folder)).rejects.toThrow(/is not empty/);
    let killed: Promise<void> | undefined;
    const cut = moveBoxIn(config(), folder, (line) => {
      if (line.startsWith('code')) killed ??= server.kill();
    });
    await expect(cut).rejects.toThrow(/call the command again once that is mended/);
    await killed;
    await server.start();
    await changeOnBox(folder, tenant, data);
    for (const line of [`store ${tenant}/r2`, 'database first:', 'every row is copied', 'every row is copied'])
      await killAt('in', folder, line);
    expect(existsSync(path.join(folder, 'registry.db'))).toBe(false);
    await expect(openPostgresRegistry(url)).rejects.toThrow(/being moved into/);
    const alone = { ...config(), cluster: { ...config().cluster, database: '' } };
    await expect(openStores(alone, openFolders(folder), '1')).rejects.toThrow(/has moved into a cluster/);
    copyFileSync(path.join(folder, 'registry.db.moved'), path.join(folder, 'registry.db'));
    await expect(moveBoxIn(config(), folder)).rejects.toThrow(/has a registry.db beside/);
    rmSync(path.join(folder, 'registry.db'));
    await killAt('in', folder, 'in PostgreSQL');
    const moved = await moveBoxIn(config(), folder);
    expect(moved).toMatchObject({
      rows: { deployments: 1, payments: PAYMENTS, secrets: 1, audit: 1 },
      code: 1,
      stores: { stores: 3, rows: KV_KEYS + R2_KEYS + 5 },
      databases: { databases: 2, rows: 2 * (DATABASE_ROWS + 1) },
      assets: { files: 2 },
    });
    expect(await moveBoxIn(config(), folder)).toEqual(moved);
    const there = env.TURNPIKE_CLUSTER_DATABASE;
    env.TURNPIKE_CLUSTER_DATABASE = server.create(`other${databases}`);
    await expect(moveBoxIn(config(), folder)).rejects.toThrow(/has moved into another/);
    env.TURNPIKE_CLUSTER_DATABASE = there as string;

    const { database, storage } = config().cluster;
    const inCluster = await storesOfCluster({ database, storage }, folder, log);
    expect(await contents(inCluster, tenant)).toEqual(data);
    const tables = [
      'ledger',
      'payments',
      'payment_outgoing',
      'secrets',
      'versions',
      'deployments',
      'settings',
      'audit',
    ];
    const node = await openPostgresRegistry(url);
    for (const table of tables) expect(await rowsOf(node, table), table).toEqual(await rowsOf(box, table));
    await new Audit(node.db, new AdjustableClock()).begin(ACT);
    expect((await node.client.execute('SELECT id FROM audit ORDER BY id')).rows.map(({ id }) => id)).toEqual([1, 2]);

    const out = path.join(root, 'out');
    await expect(moveClusterOut(config(), out)).rejects.toThrow(/These nodes run/);
    await node.end();
    for (const line of [`store ${tenant}/kv`, `store ${tenant}/r2`, 'database first:', 'every row is copied'])
      await killAt('out', out, line);
    await expect(openPostgresRegistry(url)).rejects.toThrow(/being moved out/);
    await expect(moveClusterOut(config(), path.join(root, 'other'))).rejects.toThrow(/being moved out/);
    await giveUpMoveOut(config());
    const again = await openPostgresRegistry(url);
    await again.end();
    await killAt('out', out, 'the cluster is closed');
    expect(existsSync(path.join(out, 'registry.db'))).toBe(false);
    await expect(giveUpMoveOut(config())).rejects.toThrow(/not being moved out/);
    const movedOut = await moveClusterOut(config(), out);
    expect(await moveClusterOut(config(), out)).toEqual(movedOut);
    await expect(openPostgresRegistry(url)).rejects.toThrow(/has moved out/);
    await expect(moveBoxIn(config(), folder)).rejects.toThrow(/has moved out/);
    await expect(moveClusterOut(config(), folder)).rejects.toThrow(/is not empty/);

    const last = await openRegistry(path.join(out, 'registry.db'));
    try {
      for (const table of tables.filter((name) => name !== 'audit'))
        expect(await rowsOf(last, table), table).toEqual(await rowsOf(box, table));
      expect(await rowsOf(last, 'audit')).toHaveLength(2);
      const { rows } = await last.client.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name");
      const before = await box.client.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name");
      expect(rows).toEqual(before.rows);
      await new Audit(last.db, new AdjustableClock()).begin(ACT);
      expect((await last.client.execute('SELECT max(id) AS id FROM audit')).rows[0]?.id).toBe(3);
    } finally {
      last.close();
    }
    expect(await contents(await storesOfBox(path.join(out, 'tenants'), undefined, log), tenant)).toEqual(data);
    for (const name of DATABASES)
      expect(databaseRows(path.join(out, 'tenants', tenant, name))).toEqual(
        databaseRows(path.join(folder, 'tenants', tenant, name)),
      );
    const same = ['secrets.key', `tenants/${tenant}/assets/files/${sha256('page')}`];
    for (const name of same) expect(readFileSync(path.join(out, name))).toEqual(readFileSync(path.join(folder, name)));
    const code = new CodeStore(path.join(out, 'code'));
    expect(await code.list()).toEqual(await new CodeStore(path.join(folder, 'code')).list());
    await finishUpload(path.join(out, 'tenants'), tenant);
  });
});

const KV_KEYS = 453;
const R2_KEYS = 36;
const DATABASES = ['sql', 'sql.log'];
const DATABASE_ROWS = 2_000;
/** Parts of R2 have that at least. */
const PART = 5 * 1024 * 1024;

let upload = { uploadId: '', etag: '' };

/** A tenant with some of everything. */
async function fill(box: Registry, folder: string): Promise<string> {
  const bundle = {
    modules: [{ name: 'a.js', type: 'esm', body: Buffer.from('export default {}') }],
    sourceMap: undefined,
  };
  const digest = await new CodeStore(path.join(folder, 'code')).put(bundle as never);
  const secrets = [{ name: 'KEY', keyId: 'k1', sealed: Buffer.from([0, 1, 255]).toString('base64') }];
  const code = { digest, bytes: 10, handlers: ['fetch'] };
  const deployment = newDeployment({ slug: 'first', secrets, code, settings: { bindings: BINDINGS } });
  const { tenant } = deployment;
  await new Deployments(box.db).create(deployment, 0);
  const payments = paymentsOn(box);
  for (let at = 0; at < PAYMENTS; at++) await deliver(payments, `credential ${at}`, {});
  await new Audit(box.db, new AdjustableClock()).begin(ACT);
  writeFileSync(path.join(folder, 'secrets.key'), '{"current":"","keys":{}}');
  const assets = path.join(folder, 'tenants', tenant, 'assets');
  const list = JSON.stringify({ files: { '/index.html': sha256('page') } });
  for (const [kind, text] of [
    ['files', 'page'],
    ['lists', list],
  ] as const) {
    mkdirSync(path.join(assets, kind), { recursive: true });
    writeFileSync(path.join(assets, kind, sha256(text)), text);
  }
  for (const name of DATABASES) fillDatabase(path.join(folder, 'tenants', tenant, name));
  const stores = await storesOfBox(path.join(folder, 'tenants'), undefined, log);
  const put = (store: KvStore, at: number) =>
    store.put(
      Buffer.from(`key ${at}`),
      known(randomBytes(at % 40 === 0 ? 70_000 + at : at)),
      at % 5 === 0 ? 2_000_000_000 + at : null,
      at % 7 === 0 ? Buffer.from(`{"at":${at}}`) : null,
    );
  await stores.using({ tenant, name: 'kv' }, async (store) => {
    await Promise.all(Array.from({ length: KV_KEYS - 1 }, (_, at) => put(store as unknown as KvStore, at)));
  });
  await stores.using({ tenant, name: 'kv.other' }, (store) => put(store as unknown as KvStore, 1));
  await stores.using({ tenant, name: 'r2' }, async (store) => {
    const r2 = store as unknown as R2Store;
    for (const [at, size] of [0, 1, 20_000, 128 * 1024, 200_000, ...Array(30).fill(40_000)].entries())
      await r2.put(
        { object: `a/${at}`, httpFields: { contentType: 'text/plain' }, customFields: [{ k: 'a', v: 'ü' }] } as never,
        known(randomBytes(size)),
      );
    const parts = await putParts(r2, 'whole', [PART, 100]);
    await r2.uploads.complete({ object: 'whole', ...parts } as never);
    const open = await putParts(r2, 'open', [300]);
    upload = { uploadId: open.uploadId, etag: open.parts[0]?.etag ?? '' };
  });
  await stores.close();
  return tenant;
}

/** Some of it is in the log yet: its process was killed. */
function fillDatabase(folder: string): void {
  mkdirSync(folder);
  const made = `${folder}-made`;
  const database = new Libsql(made);
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE a (id INTEGER PRIMARY KEY, b BLOB)');
  const insert = database.prepare('INSERT INTO a (b) VALUES (randomblob(700))');
  for (let at = 0; at < DATABASE_ROWS; at++) insert.run();
  for (const end of ['', '-wal']) copyFileSync(`${made}${end}`, path.join(folder, `db.sqlite${end}`));
  database.close();
  rmSync(made);
}

function databaseRows(folder: string): unknown[] {
  const database = new Libsql(path.join(folder, 'db.sqlite'));
  try {
    return database.prepare('SELECT id, hex(b) AS b FROM a').all();
  } finally {
    database.close();
  }
}

async function putParts(r2: R2Store, object: string, sizes: number[]) {
  const uploadId = await r2.uploads.create({ object } as never);
  const parts: { part: number; etag: string }[] = [];
  for (const [at, size] of sizes.entries()) {
    const request = { object, uploadId, partNumber: at + 1 } as never;
    parts.push({ part: at + 1, etag: await r2.uploads.putPart(request, known(randomBytes(size))) });
  }
  return { uploadId, parts };
}

/** The box went on after a move that was given up: one value is another, one is new, one is gone. */
async function changeOnBox(folder: string, tenant: string, data: string[]): Promise<void> {
  const stores = await storesOfBox(path.join(folder, 'tenants'), undefined, log);
  await stores.using({ tenant, name: 'kv' }, async (store) => {
    const kv = store as unknown as KvStore;
    await kv.put(Buffer.from('key 0'), known(randomBytes(70_000)), null, null);
    await kv.delete(Buffer.from('key 1'));
    await kv.put(Buffer.from('key new'), known(Buffer.from('new')), null, null);
  });
  await stores.close();
  data.splice(
    0,
    data.length,
    ...(await contents(await storesOfBox(path.join(folder, 'tenants'), undefined, log), tenant)),
  );
}

/** Each value with all that is told of it, by what handlers read with. */
async function contents(stores: AllStores, tenant: string): Promise<string[]> {
  const found: string[] = [];
  for (const name of ['kv', 'kv.other'])
    await stores.using({ tenant, name }, async (store) => {
      const kv = store as unknown as KvStore;
      for (const { key, expiration, metadata } of await kv.list({ prefix: Buffer.alloc(0), limit: 1_000 } as never)) {
        const entry = await kv.get(key);
        const value = entry?.value ?? (entry && (await bytesOf(kv.read(entry))));
        found.push([name, key, expiration, metadata, sha256(value ?? '')].join(' '));
      }
    });
  await stores.using({ tenant, name: 'r2' }, async (store) => {
    const r2 = store as unknown as R2Store;
    for (const row of await r2.database.read(() => r2.index.page(Buffer.from(''), Buffer.from('~'), 1_000))) {
      const { range, segments } = await r2.get({ object: row.key.toString() } as never);
      const { blob: _blob, inline: _inline, ...told } = row;
      found.push(JSON.stringify({ ...told, sha256: sha256(await bytesOf(r2.read(row, range, segments))) }));
    }
  });
  await stores.close();
  return found;
}

/** An upload that was begun on the box is completed after all. */
async function finishUpload(root: string, tenant: string): Promise<void> {
  const stores = await storesOfBox(root, undefined, log);
  await stores.using({ tenant, name: 'r2' }, async (store) => {
    const r2 = store as unknown as R2Store;
    const { uploadId, etag } = upload;
    const row = await r2.uploads.complete({ object: 'open', uploadId, parts: [{ part: 1, etag }] } as never);
    expect(row.size).toBe(300);
    expect(r2.totals.items).toBe(R2_KEYS + 1);
  });
  await stores.close();
}

function known(bytes: Buffer) {
  return { length: bytes.length, chunks: [bytes] };
}

async function bytesOf(given: unknown): Promise<Buffer> {
  const bytes = (await given) as Buffer | AsyncIterable<Buffer>;
  return Buffer.isBuffer(bytes) ? bytes : Buffer.concat(await Array.fromAsync(bytes));
}
