/**
 * Databases of D1 of a box as nodes have them, and of nodes as a box does: what either has written is read by the other, row
 * by row and with all that hangs on the schema. What the other does not take is named.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Libsql from 'libsql';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DATABASES_ID } from '../../host/bindings/d1/binding.ts';
import { nodeReader, runOnCopies } from '../../host/bindings/durable-objects/copied-databases.ts';
import { objectsFolder } from '../../host/bindings/durable-objects/folder.ts';
import { BucketGateway } from '../../host/bindings/objects-bucket/gateway.ts';
import { takeObjects } from '../../host/bindings/objects-bucket/move-out.ts';
import { namesOfNamespaces } from '../../host/bindings/objects-bucket/namespaces.ts';
import { BucketRecords } from '../../host/bindings/objects-bucket/records.ts';
import { DiskBlobs } from '../../host/bindings/store-process/blobs/disk.ts';
import { DATA_PATH } from '../../host/runtime/system-worker.ts';
import { workerdBinary } from '../../host/runtime/workerd-binary.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';
import { NO_OTHERS } from '../../host/shared/others.ts';
import { putDatabases, refuseLostDatabases, takeDatabases } from '../../host/supervisor/moving-databases.ts';
import { pgPool } from '../bindings/objects-bucket/support/pg-pool.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { postgresPrograms } from './support/databases.ts';
import { requestSocket } from './support/host.ts';

const TENANT = 't1';
/** On the nodes. */
const POINTS_BYTES = 4_000_000;
const SLUG = 'moved';
const DEPLOYMENT = {
  slug: SLUG,
  tenant: TENANT,
  bindings: { d1: { DB: {}, SECOND: { id: 'second' }, EMPTY: {} }, analytics: { VISITS: {} } },
};
const CODE = `
export default {
  async fetch(request, env) {
    const [name, queries] = await request.json();
    if (name === 'VISITS') {
      for (const [text, count] of queries)
        for (let at = 0; at < count; at++) env.VISITS.writeDataPoint({ indexes: [text], blobs: ['x'.repeat(7_000)], doubles: [at] });
      return Response.json([]);
    }
    try {
      return Response.json(await env[name].batch(queries.map(([sql, ...values]) => env[name].prepare(sql).bind(...values))));
    } catch (error) {
      return Response.json(error.message, { status: 400 });
    }
  },
};`;
const names = (count: number) => Array.from({ length: count }, (_, at) => `c${at}`).join(', ');
const BIG = 'ä'.repeat(600_000);
const SCHEMA = [
  'CREATE TABLE "odd ""name""" ("a""b" INTEGER PRIMARY KEY AUTOINCREMENT, [c d] TEXT DEFAULT (upper(\'x\')), e REAL, f BLOB)',
  'CREATE TABLE keyed (a TEXT, b INTEGER, PRIMARY KEY (b, a)) WITHOUT ROWID',
  "CREATE TABLE made (a INTEGER CHECK (a < 100), b AS (a * 2), c AS (a || '!') STORED, UNIQUE (a))",
  `CREATE TABLE wide (${names(60)})`,
  'CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES made (a) ON DELETE CASCADE)',
  'CREATE TABLE logged (what TEXT)',
  'CREATE INDEX "some index" ON made (a + 1) WHERE a > 2',
  'CREATE VIEW "the view" AS SELECT a, sum(b) OVER () AS s FROM made',
  'CREATE VIEW broken AS SELECT * FROM gone',
  "CREATE TRIGGER noted AFTER INSERT ON made BEGIN INSERT INTO logged VALUES ('made ' || new.a); END",
  "CREATE VIRTUAL TABLE found USING fts5(text, tokenize = 'porter')",
];
const READS = [
  'SELECT "a""b", "c d", e, hex(f), typeof(e) FROM "odd ""name"""',
  'SELECT * FROM keyed',
  'SELECT rowid, * FROM made',
  'SELECT * FROM "the view"',
  'SELECT count(*), max(c59) FROM wide',
  'SELECT * FROM logged',
  "SELECT text FROM found WHERE found MATCH 'runs'",
  'SELECT * FROM sqlite_sequence',
  'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name',
];

describe.skipIf(!postgresPrograms())('databases that move', () => {
  let server: PostgresServer;
  let folder: string;
  let records: BucketRecords;
  let pool: ReturnType<typeof pgPool>;
  let namespace: string;

  beforeAll(async () => {
    server = await PostgresServer.start();
    folder = mkdtempSync(path.join(tmpdir(), 'tp-databases-'));
    pool = pgPool(server.create('objects'));
    records = await BucketRecords.open(pool, (tenant) => new DiskBlobs(path.join(folder, 'blobs', tenant)));
    const names = await namesOfNamespaces(workerdBinary(), records, [DATABASES_ID], folder);
    namespace = names.get(DATABASES_ID) as string;
  });
  afterAll(async () => {
    records?.close();
    await pool?.end();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  type Query = [string, ...unknown[]];
  const asker = async (rig: RuntimeRig) => {
    await rig.deploy(SLUG, CODE, { tenant: TENANT, bindings: DEPLOYMENT.bindings });
    return async (name: string, ...queries: (string | Query)[]) => {
      const body = JSON.stringify([name, queries.map((query) => (typeof query === 'string' ? [query] : query))]);
      const answer = await rig.fetch(SLUG, '/', { method: 'POST', body });
      const found = (await answer.json()) as { results: Record<string, unknown>[] }[] | string;
      if (typeof found === 'string') throw new Error(found);
      return found.map(({ results }) => results);
    };
  };
  /** As the owner's API asks. */
  const points = async (
    rig: RuntimeRig,
    query = 'SELECT index1, count() AS n, max(double1) AS m FROM VISITS GROUP BY index1',
  ) => {
    const socket = (rig.socketOf(SLUG) as string).replace('http.sock', 'system.sock');
    const { text } = await requestSocket(socket, 'POST', `${DATA_PATH}analytics/VISITS`, { query });
    return JSON.parse(text);
  };
  const foldersOf = ({ folder: data, tenants }: { folder: string; tenants: string }) => ({
    data,
    tenants,
    run: folder,
  });
  const config = { runtime: { sandbox: 'auto' } } as never;
  const said: string[] = [];
  const say = (line: string) => void said.push(line);

  test('from a box into a cluster and back, with all that SQLite keeps', async () => {
    const box = await RuntimeRig.start();
    const onBox = await asker(box);
    await onBox('DB', ...SCHEMA);
    await onBox(
      'DB',
      ['INSERT INTO "odd ""name""" (e, f) VALUES (1e308, x\'00ff\'), (-0.0, NULL), (9007199254740993, zeroblob(3))'],
      ['INSERT INTO "odd ""name""" VALUES (1000000000000000, ?, 0.1, ?)', BIG, 'a\0b'],
      'DELETE FROM "odd ""name""" WHERE "a""b" > 1000',
      ['INSERT INTO "odd ""name""" ("c d") VALUES (?)', BIG],
      "INSERT INTO keyed VALUES ('ü', -9223372036854775808), ('', 0)",
      'INSERT INTO made (a) VALUES (1), (2), (3)',
      'INSERT INTO child VALUES (1, 2)',
      `INSERT INTO wide (c0, c59) VALUES (1, 'last')`,
      "INSERT INTO found VALUES ('he runs'), ('she walks')",
    );
    await onBox('SECOND', 'CREATE TABLE only (a)', "INSERT INTO only VALUES ('second')");
    await onBox('VISITS', ['on the box', 3]);
    const boxPoints = { index1: 'on the box', n: 3, m: 2 };
    await expect.poll(() => points(box)).toMatchObject({ data: [boxPoints] });
    const before = await onBox('DB', ...READS);
    expect(before[6]).toEqual([{ text: 'he runs' }]);
    await box.runtime.stop(SLUG, 'idle');
    const folders = foldersOf(box);
    await refuseLostDatabases(config, folders, [DEPLOYMENT]);
    expect(await putDatabases(config, folders, [DEPLOYMENT], records, namespace, say)).toMatchObject({ databases: 3 });
    expect(readdirSync(box.folder)).not.toContain('moving-databases');
    await box.stop();

    const bucket = new BucketGateway({ records, log: pino({ level: 'silent' }) });
    const dialPeer = () => {
      throw new Error('there is one node');
    };
    const storage = { analyticsBytes: POINTS_BYTES };
    const node = await RuntimeRig.start({
      storage,
      cluster: { node: 1, secret: Buffer.alloc(32, 9), bucket, dialPeer, others: NO_OTHERS },
    });
    const onNode = await asker(node);
    expect(await onNode('DB', ...READS)).toEqual(before);
    expect(await onNode('SECOND', 'SELECT * FROM only')).toEqual([[{ a: 'second' }]]);
    await expect(onNode('DB', 'INSERT INTO made (a) VALUES (100)')).rejects.toThrow('CHECK constraint failed');
    await onNode(
      'DB',
      'INSERT INTO made (a) VALUES (4)',
      'DELETE FROM made WHERE a = 2',
      ['INSERT INTO logged VALUES (?)', 'with\0nul'],
      "INSERT INTO found VALUES ('it runs')",
    );
    await onNode('VISITS', ['on a node', 5]);
    const nodePoints = { index1: 'on a node', n: 5, m: 4 };
    await expect.poll(() => points(node)).toMatchObject({ data: [nodePoints, boxPoints], rows: 2 });
    expect(await points(node, 'SELECT missing FROM VISITS')).toEqual({
      error: expect.stringContaining('no such column'),
    });
    expect(await points(node, 'DELETE FROM VISITS')).toEqual({ error: expect.any(String) });
    for (let at = 0; at < 20; at++) await onNode('SECOND', ['INSERT INTO only VALUES (?)', at]);
    await onNode('EMPTY', 'CREATE TABLE now (a)');
    // Past the quota the oldest go.
    const most = POINTS_BYTES / 7_000;
    for (let sent = 0; sent < 2 * most; sent += 100) {
      await onNode('VISITS', [`${sent}`, 100]);
      await expect
        .poll(() => points(node, `SELECT count() AS n FROM VISITS WHERE index1 = '${sent}'`))
        .toMatchObject({ data: [{ n: 100 }] });
    }
    const [{ n }] = (await points(node, 'SELECT count() AS n FROM VISITS')).data;
    expect(n).toBeLessThanOrEqual(most);
    expect(n).toBeGreaterThan(most / 2);
    const between = await onNode('DB', ...READS);
    expect(between[2]?.map(({ b }) => b)).toEqual([2, 6, 8]);
    await node.stop();

    const back = await RuntimeRig.start();
    const stale = path.join(back.tenants, TENANT, 'sql.second');
    mkdirSync(stale, { recursive: true });
    writeFileSync(path.join(stale, 'db.sqlite-wal'), 'of an earlier move');
    const ids = new Map([[namespace, DATABASES_ID]]);
    await takeObjects(records, TENANT, ids, objectsFolder(back.tenants, TENANT));
    expect(await takeDatabases(config, foldersOf(back), [DEPLOYMENT], say)).toMatchObject({ databases: 4 });
    const again = await asker(back);
    expect(await again('DB', ...READS)).toEqual(between);
    expect(await again('DB', 'SELECT * FROM child')).toEqual([[]]);
    expect(await again('SECOND', 'SELECT count(*) AS n FROM only')).toEqual([[{ n: 21 }]]);
    expect(await again('EMPTY', 'SELECT * FROM now')).toEqual([[]]);
    expect((await points(back, 'SELECT count() AS n FROM VISITS')).data).toEqual([{ n }]);
    await again('DB', 'INSERT INTO "odd ""name""" (e) VALUES (1)', 'INSERT INTO made (a) VALUES (5)');
    await back.stop();
    expect(said.filter((line) => line.startsWith('database '))).toHaveLength(7);
  });

  describe('what nodes do not take', () => {
    const place = () => {
      const data = mkdtempSync(path.join(folder, 'box-'));
      const own = path.join(data, 'tenants', TENANT, 'sql');
      mkdirSync(own, { recursive: true });
      return { folders: { data, tenants: path.join(data, 'tenants'), run: folder }, file: path.join(own, 'db.sqlite') };
    };
    const refusal = (folders: ReturnType<typeof place>['folders']) =>
      refuseLostDatabases(config, folders, [DEPLOYMENT]);
    const made = (...sql: string[]) => {
      const { folders, file } = place();
      const database = new Libsql(file);
      for (const one of sql) database.exec(one);
      database.close();
      return folders;
    };

    test.each<[string, RegExp, ...string[]]>([
      [
        'a function in a view',
        /moved \(v read: no such function: regexp/,
        "CREATE VIEW v AS SELECT regexp('a', 'b') AS a",
      ],
      [
        'one in a trigger',
        /t insert: no such function/,
        'CREATE TABLE t (a)',
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT regexp('a', 'b'); END",
      ],
      ['one in a constraint', /t insert: unknown function: regexp/, "CREATE TABLE t (a CHECK (regexp('a', a)))"],
      ['a name that is reserved', /_cf_t read: access to _cf_t.a is prohibited/, 'CREATE TABLE _cf_t (a)'],
      ['a schema', /cannot be opened/, 'CREATE TABLE t (a) RANDOM ROWID'],
      ['more columns', /t .*too many columns|cannot be opened/, `CREATE TABLE t (${names(101)})`],
      ['pages of another size', /its pages have 8192 bytes/, 'PRAGMA page_size = 8192', 'CREATE TABLE t (a)'],
    ])('%s', async (_what, message, ...sql) => {
      await expect(refusal(made(...sql))).rejects.toThrow(message);
    });

    test('what is broken on both sides stays as it is', async () => {
      await refusal(
        made(
          'CREATE VIEW v AS SELECT regexp(a, a) FROM gone',
          'CREATE TABLE t (a REFERENCES gone (b))',
          'CREATE TABLE big AS SELECT zeroblob(2500000) AS a',
        ),
      );
    });

    test('a link that a program leaves among the copies', async () => {
      const copies = mkdtempSync(path.join(folder, 'copies-'));
      const reader = nodeReader(
        "import fs from 'node:fs'; fs.symlinkSync('/etc/passwd', process.argv[1] + '/x.sqlite')",
      );
      const run = runOnCopies(await detectSandbox('auto'), {
        tenant: TENANT,
        folder: copies,
        reader,
        fileBytes: 1,
        timeout: 30_000,
      });
      await expect(run).rejects.toThrow(/x.sqlite is no file|cannot be read/);
    });

    test('no database, another file, and a link', async () => {
      const { folders, file } = place();
      await refusal(folders);
      writeFileSync(file, 'no database at all'.repeat(500));
      await expect(refusal(folders)).rejects.toThrow(/moved \(/);
      rmSync(file);
      symlinkSync('/etc/passwd', file);
      await refusal(folders);
    });
  });
});
