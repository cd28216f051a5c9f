/** `turnpike d1`, `kv` and `r2` on a real deployment: what the commands write, its handler reads, and the other way round. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { jsonPost, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';

const HANDLER = `
export default {
  async fetch(request, env) {
    const { results } = await env.ORDERS.prepare('SELECT id, name, price, raw FROM orders ORDER BY id').all();
    await env.CACHE.put('from the handler', 'é', { metadata: { by: 'handler' } });
    await env.MEDIA.put('a/b c.txt', 'an object', { httpMetadata: { contentType: 'text/plain' } });
    return Response.json({ results, kv: await env.CACHE.get('key'), r2: await (await env.MEDIA.get('up'))?.text() });
  },
};
`;

let folder: string;
let host: TestHost;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-data-'));
  host = await startHost({ flags: { 'log-level': 'error' } });
  const config = {
    name: 'shop',
    main: 'index.js',
    compatibility_date: '2026-01-01',
    kv_namespaces: [{ binding: 'CACHE', id: 'cache' }],
    r2_buckets: [{ binding: 'MEDIA', bucket_name: 'media' }],
    d1_databases: [{ binding: 'ORDERS', database_name: 'orders-db', migrations_dir: 'sql' }],
  };
  writeFileSync(path.join(folder, 'wrangler.json'), JSON.stringify(config));
  writeFileSync(path.join(folder, 'index.js'), HANDLER);
  expect((await command('deploy', '--yes')).stderr).toBe('');
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
});

const command = (...args: string[]) =>
  turnpike(['--host-url', host.url, '--data', host.data, ...args], { cwd: folder });
async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await command(...args);
  expect(stderr).toBe('');
  expect(code).toBe(0);
  return stdout.trimEnd();
}

it('migrations are made, listed and applied, each once and whole', async () => {
  expect(await ok('d1', 'migrations', 'create', 'orders-db', 'make orders')).toMatch(/sql\/0001_make_orders\.sql$/);
  const file = (name: string) => path.join(folder, 'sql', name);
  writeFileSync(
    file('0001_make_orders.sql'),
    `-- The first one; it has a semicolon; and a trigger.
CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, price REAL, raw BLOB);
CREATE TABLE log (what TEXT);
CREATE TRIGGER logged AFTER INSERT ON orders BEGIN
  INSERT INTO log VALUES ('a;b');
END;
`,
  );
  await ok('d1', 'migrations', 'create', 'ORDERS', 'fill');
  writeFileSync(
    file('0002_fill.sql'),
    "INSERT INTO orders (name, price, raw) VALUES ('it''s', 1.5, x'00ff'), (NULL, 2, NULL);",
  );
  expect(await ok('d1', 'migrations', 'list', 'orders-db')).toBe('0001_make_orders.sql\n0002_fill.sql');
  expect(await ok('d1', 'migrations', 'apply', 'orders-db')).toBe('0001_make_orders.sql\n0002_fill.sql');
  expect(await ok('d1', 'migrations', 'apply')).toBe('all were applied already');

  writeFileSync(file('0003_broken.sql'), "INSERT INTO orders (name) VALUES ('half'); INSERT INTO nowhere VALUES (1);");
  const broken = await command('d1', 'migrations', 'apply');
  expect(broken.code).not.toBe(0);
  expect(broken.stderr).toMatch(/0003_broken\.sql was not applied: .*nowhere/);
  expect(await ok('d1', 'execute', '--command', 'SELECT count(*) AS n FROM orders')).toBe('n\n2');
  expect(await ok('d1', 'migrations', 'list')).toBe('0003_broken.sql');
  rmSync(file('0003_broken.sql'));
  symlinkSync('/etc/passwd', file('0003_link.sql'));
  const link = await command('d1', 'migrations', 'apply');
  expect(link.code).toBe(2);
  expect(link.stderr).toMatch(/0003_link\.sql cannot be read \(EOUTSIDE\)/);
  rmSync(file('0003_link.sql'));
  expect(readdirSync(path.join(folder, 'sql'))).toHaveLength(2);
});

it('the handler sees what SQL, kv and r2 did', async () => {
  await ok('kv', 'put', 'key', 'a value', '--metadata', '{"a":1}');
  writeFileSync(path.join(folder, 'up.bin'), 'sent by the command');
  writeFileSync(path.join(folder, 'raw.bin'), Buffer.from([0, 255, 10]));
  await ok('r2', 'put', 'raw', 'raw.bin');
  await ok('r2', 'put', 'up', 'up.bin', '--content-type', 'text/x-up');
  const seen = (await (await fetch(`${host.url}/shop/`)).json()) as Record<string, unknown>;
  expect(seen).toEqual({
    results: [
      { id: 1, name: "it's", price: 1.5, raw: [0, 255] },
      { id: 2, name: null, price: 2, raw: null },
    ],
    kv: 'a value',
    r2: 'sent by the command',
  });
});

it('the commands see what the handler did', async () => {
  expect(await ok('kv', 'list')).toBe('from the handler\nkey');
  expect(await ok('kv', 'list', '--prefix', 'from')).toBe('from the handler');
  expect(await ok('kv', 'get', 'from the handler')).toBe('é');
  expect(await ok('r2', 'list')).toMatch(/^a\/b c\.txt +9 +\d{4}-.*\nraw +3 +.*\nup +19 +\d{4}-/);
  expect(await ok('r2', 'get', 'a/b c.txt', '--file', 'got.txt')).toMatch(/written to .*got\.txt/);
  expect(readFileSync(path.join(folder, 'got.txt'), 'utf8')).toBe('an object');
  const bytes = await command('--json', 'r2', 'get', 'raw');
  expect(Buffer.from(bytes.json().base64, 'base64')).toEqual(Buffer.from([0, 255, 10]));
  await ok('r2', 'get', 'raw', '--file', 'raw.out');
  expect(readFileSync(path.join(folder, 'raw.out'))).toEqual(Buffer.from([0, 255, 10]));
  await ok('r2', 'delete', 'raw');
  await ok('kv', 'delete', 'key', 'from the handler');
  await ok('r2', 'delete', 'up');
  expect(await ok('kv', 'list')).toBe('');
  const gone = await command('r2', 'get', 'up');
  expect(gone.code).not.toBe(0);
  expect(gone.stderr).toContain('MEDIA has no such key');
});

it('an export is the database as SQL, and a file of SQL may be larger than a query', async () => {
  const many = Array.from({ length: 3_000 }, (_, i) => `INSERT INTO log VALUES ('row ${i} ${'x'.repeat(60)}');`).join(
    '\n',
  );
  writeFileSync(path.join(folder, 'many.sql'), many);
  await ok('d1', 'execute', 'ORDERS', '--file', 'many.sql');
  await ok('d1', 'export', '--output', 'dump.sql');
  const dump = readFileSync(path.join(folder, 'dump.sql'), 'utf8');
  expect(dump).toContain(
    'INSERT INTO "orders" ("id", "name", "price", "raw") VALUES (1, \'it\'\'s\', 1.5, X\'00FF\');',
  );
  expect(dump.match(/INSERT INTO "log"/g)).toHaveLength(3_002);
  expect(dump.indexOf('CREATE TRIGGER')).toBeGreaterThan(dump.lastIndexOf('INSERT INTO "log"'));
  mkdirSync(path.join(folder, 'copy'));
  const copy = {
    slug: 'copy',
    entry: 'index.js',
    bindings: { kv: { CACHE: {} }, r2: { MEDIA: {} }, d1: { ORDERS: {} } },
  };
  writeFileSync(path.join(folder, 'copy/turnpike.json'), JSON.stringify(copy));
  writeFileSync(path.join(folder, 'copy/index.js'), HANDLER);
  const inCopy = (...args: string[]) =>
    turnpike(['--host-url', host.url, '--data', host.data, ...args], { cwd: path.join(folder, 'copy') });
  expect((await inCopy('deploy', '--yes')).stderr).toBe('');
  expect((await inCopy('d1', 'execute', '--file', '../dump.sql')).stderr).toBe('');
  const { results } = (await (await fetch(`${host.url}/copy/`)).json()) as { results: unknown[] };
  expect(results).toHaveLength(2);
});

it('only the owner, only what there is, and only what the binding takes', async () => {
  const stranger = mppFetch(host.network, 3);
  const at = (binding: string) => `${host.url}/_admin/shop/data/${binding}`;
  expect((await stranger(at('CACHE'))).status).toBe(403);
  const owner = mppFetch(host.network, 0);
  const refused = async (answer: Promise<Response>) => {
    const { status, code, detail } = (await (await answer).json()) as { status: number; code: string; detail: string };
    return `${status} ${code} ${detail}`;
  };
  expect(await refused(owner(at('NOTHING')))).toMatch(
    /^404 not_found shop has no data under the name NOTHING\. It has: CACHE, ORDERS, MEDIA/,
  );
  expect(await refused(owner(at('ORDERS')))).toMatch(/^400 bad_request ORDERS is SQL/);
  expect(await refused(owner(`${at('CACHE')}/value`))).toMatch(/^400/);
  expect(await refused(owner(at('ORDERS'), jsonPost({ statements: [{ sql: 'ATTACH DATABASE "x" AS y' }] })))).toMatch(
    /^400 bad_request /,
  );
  expect(await refused(owner(at('ORDERS'), jsonPost({})))).toMatch(/^400/);
  expect((await fetch(at('CACHE'))).status).toBe(402);
});
