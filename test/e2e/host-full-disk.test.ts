/** A disk that is full to the last byte while the host runs: what is refused, what goes on, and what is there afterwards. */
import { closeSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch, mppSessionFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

/** What each kind of write comes to. */
const HANDLER = `
const write = {
  kv: (env, id) => env.STORE.put(id, 'x'.repeat(9_000)),
  r2: (env, id) => env.BUCKET.put(id, 'x'.repeat(9_000)),
  d1: (env, id) => env.DB.prepare('INSERT INTO t VALUES (?, ?)').bind(id, 'x'.repeat(9_000)).run(),
};
const read = async (env, id) => [
  (await env.STORE.get(id))?.length,
  (await (await env.BUCKET.get(id))?.text())?.length,
  (await env.DB.prepare('SELECT length(v) AS n FROM t WHERE id = ?').bind(id).first())?.n,
].join(' ');
export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    const [, kind, id] = pathname.split('/');
    if (kind === 'setup') await env.DB.exec('CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT)');
    if (kind === 'read') return new Response(await read(env, id));
    const said = await write[kind]?.(env, id).then(() => 'kept', (error) => error.message);
    return new Response(said ?? 'served');
  },
};
`;
const KINDS = ['kv', 'r2', 'd1'];
/** One deposit pays for twenty calls. Another deposit would need the local chain, which is on the full disk, too. */
const CALLS = 15;

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ disk: '96m' });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, {
    slug: 'disk',
    code: HANDLER,
    bindings: { kv: true, r2: true, d1: true },
    paidRoutes: [{ method: 'GET', path: '/paid', price: '0.01', mode: 'metered' }],
  });
  await text('setup');
});
afterAll(() => host?.stop());

async function text(what: string): Promise<string> {
  return (await fetch(`${host.url}/disk/${what}`)).text();
}

/** Of the registry, as the head of its file has them (sqlite.org/fileformat.html): once they are on the disk. */
function freePages(): number {
  return readFileSync(path.join(host.data, 'registry.db')).readUInt32BE(36);
}

/** To the last byte. */
function fill(): void {
  const filler = openSync(path.join(host.data, 'filler'), 'a');
  const bytes = Buffer.alloc(1_048_576);
  for (const step of [bytes.length, 4096, 1]) {
    try {
      while (writeSync(filler, bytes, 0, step) === step);
    } catch {
      // Less than a step is left.
    }
  }
  closeSync(filler);
}

test('payments go on, everything else says what is wrong, and goes on when there is room', async () => {
  const session = await mppSessionFetch(host.network, 1);
  const pay = async () => (await session(`${host.url}/disk/paid`)).status;
  expect(await pay()).toBe(200);
  for (const kind of KINDS) expect(await text(`${kind}/before`), kind).toBe('kept');
  await host.advance(60_000);
  await until(() => freePages() >= 4096);

  fill();
  expect(await text('other')).toBe('served');
  const said = await Promise.all(KINDS.map((kind) => text(`${kind}/full`)));
  expect(said).toEqual([
    'KV PUT failed: 507 Insufficient Storage: the disk of this host is full.',
    'put: The disk of this host is full. Try again when its operator has made room. (10507)',
    'D1_ERROR: Exceeded maximum DB size: SQLITE_FULL',
  ]);
  for (let call = 0; call < CALLS; call++) expect(await pay()).toBe(200);
  // Larger than what the host gives up of its own meanwhile.
  const large = `export const large = () => '${'x'.repeat(2_000_000)}';`;
  const body = { slug: 'later', code: `export default { fetch: () => new Response('later') };${large}` };
  for (const refused of [
    await owner(`${host.url}/_admin/deploy`, jsonPost(body)),
    await owner(`${host.url}/_admin/code/disk`, jsonPut({ code: `${HANDLER}${large}` })),
  ]) {
    expect(refused.status).toBe(507);
    expect(await refused.json()).toMatchObject({ code: 'disk_full' });
  }
  expect(await text('read/before')).toBe('9000 9000 9000');

  rmSync(path.join(host.data, 'filler'));
  for (const kind of KINDS) expect(await text(`${kind}/after`), kind).toBe('kept');
  expect(await text('read/before')).toBe('9000 9000 9000');
  expect(await text('read/after')).toBe('9000 9000 9000');
  await deploy(owner, host.url, body);
  const { json } = await host.operator('GET', '/payments');
  expect(json).toMatchObject({ open: [], summary: [{ operations: '0.40' }] });
});
