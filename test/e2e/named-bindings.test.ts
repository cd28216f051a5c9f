/** Several bindings of a kind by names of the owner's own: apart from each other, found again by their ids, one quota. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { withRestored } from './support/backup.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';

/** `/kv/CACHE/key`: PUT keeps the body, GET answers it. */
const HANDLER = `
export default {
  async fetch(request, env) {
    const [, kind, name, key] = new URL(request.url).pathname.split('/');
    if (kind === 'env') return Response.json({ names: Object.keys(env).sort(), greeting: env.GREETING, limits: env.LIMITS });
    const store = env[name];
    const put = request.method === 'PUT';
    const body = put ? await request.text() : undefined;
    try {
      if (kind === 'kv') return new Response(put ? (await store.put(key, body), 'kept') : await store.get(key));
      if (kind === 'r2') return new Response(put ? (await store.put(key, body), 'kept') : await (await store.get(key))?.text());
      await store.exec('CREATE TABLE IF NOT EXISTS t (key TEXT PRIMARY KEY, value TEXT)');
      if (put) await store.prepare('INSERT INTO t VALUES (?, ?)').bind(key, body).run();
      return new Response(put ? 'kept' : await store.prepare('SELECT value FROM t WHERE key = ?').bind(key).first('value'));
    } catch (error) {
      return new Response(String(error), { status: 507 });
    }
  },
};
`;
const BINDINGS = {
  kv: { CACHE: {}, SESSIONS: { id: 'sessions' } },
  d1: { FIRST: {}, SECOND: { id: 'b2f6a4c0-7f0e-4b0f-9a53-0d1d4ce0a001' } },
  r2: { MEDIA: {}, ATTIC: { id: 'attic.v1' } },
};
const VARS = { GREETING: 'hi "there"\n', LIMITS: { most: 3, of: ['a', null] } };

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error' } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'named', code: HANDLER, bindings: BINDINGS, vars: VARS });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

const put = async (place: string, body: string, slug = 'named') =>
  (await fetch(`${host.url}/${slug}/${place}`, { method: 'PUT', body })).text();
const get = async (place: string, at = host) => (await fetch(`${at.url}/named/${place}`)).text();
const update = async (change: object) => owner(`${host.url}/_admin/code/named`, jsonPut(change));

it('each is its own, and vars are text or JSON', async () => {
  for (const [kind, names] of Object.entries(BINDINGS))
    for (const name of Object.keys(names)) expect(await put(`${kind}/${name}/key`, `value of ${name}`)).toBe('kept');
  for (const [kind, names] of Object.entries(BINDINGS))
    for (const name of Object.keys(names)) expect(await get(`${kind}/${name}/key`)).toBe(`value of ${name}`);
  expect(JSON.parse(await get('env'))).toEqual({
    names: ['ATTIC', 'CACHE', 'FIRST', 'GREETING', 'LIMITS', 'MEDIA', 'SECOND', 'SESSIONS'],
    greeting: VARS.GREETING,
    limits: VARS.LIMITS,
  });
});

it('everybody may know what it has, but not its vars', async () => {
  const { bindings, ...rest } = (await (await owner(`${host.url}/_admin/get/named`)).json()) as Record<string, unknown>;
  expect(bindings).toEqual({ ...BINDINGS, payments: false });
  expect(JSON.stringify(rest)).not.toMatch(/GREETING|hi /);
});

it('a binding that is renamed finds its data by the id; one store may have two names', async () => {
  const bindings = {
    kv: { TICKETS: { id: 'sessions' }, ALSO: { id: 'sessions' }, CACHE: {} },
    d1: { FIRST: {}, ORDERS: { id: BINDINGS.d1.SECOND.id } },
    r2: { MEDIA: {}, CELLAR: { id: 'attic.v1' } },
  };
  expect((await update({ bindings })).status).toBe(200);
  expect(await get('kv/TICKETS/key')).toBe('value of SESSIONS');
  expect(await put('kv/ALSO/key', 'changed')).toBe('kept');
  expect(await get('kv/TICKETS/key')).toBe('changed');
  expect(await get('kv/CACHE/key')).toBe('value of CACHE');
  expect(await get('d1/ORDERS/key')).toBe('value of SECOND');
  expect(await get('r2/CELLAR/key')).toBe('value of ATTIC');
  expect((await update({ bindings: BINDINGS, vars: {} })).status).toBe(200);
  expect(JSON.parse(await get('env')).names).not.toContain('GREETING');
});

it('names that mean two things are refused, and cost nothing', async () => {
  const refused = async (change: object, words: string) => {
    const answer = await update(change);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { detail: string }).detail).toContain(words);
  };
  await refused({ vars: { CACHE: 'x' } }, '/vars/CACHE names CACHE, which is a binding (kv) already');
  await refused({ secretChanges: { MEDIA: 'x' } }, '/secrets names MEDIA, which is a binding (r2) already');
  await refused({ bindings: { kv: { A: { id: '../../x' } } } }, '/bindings/kv/A/id is an invalid id');
  const dear = await owner(
    `${host.url}/_admin/deploy`,
    jsonPost({ slug: 'twice', code: HANDLER, bindings: { kv: { A: {} }, r2: { A: {} } } }),
  );
  expect(dear.status).toBe(400);
  expect((await fetch(`${host.url}/twice/`)).status).toBe(404);
});

it('a binding that is called value is looked at as any other', async () => {
  const bindings = { kv: { value: {} } };
  await deploy(owner, host.url, { slug: 'odd', code: HANDLER, bindings });
  expect(await put('kv/value/key', 'kept in value', 'odd')).toBe('kept');
  const data = `${host.url}/_admin/odd/data/value`;
  expect(await (await owner(data)).json()).toMatchObject({ keys: [{ name: 'key' }] });
  expect(await (await owner(`${data}/value?key=key`)).text()).toBe('kept in value');
});

it('are in the backup of the host, and come back', async () => {
  await withRestored(host, async (other) => {
    expect(await get('kv/SESSIONS/key', other)).toBe('changed');
    expect(await get('kv/CACHE/key', other)).toBe('value of CACHE');
    expect(await get('d1/SECOND/key', other)).toBe('value of SECOND');
    expect(await get('r2/ATTIC/key', other)).toBe('value of ATTIC');
    expect(await get('r2/MEDIA/key', other)).toBe('value of MEDIA');
  });
});

it('all stores of a kind share one quota, whoever fills it', async () => {
  const flags = { 'storage-kv-bytes': '1048576', 'storage-object-bytes': '1048576', 'storage-sql-bytes': '4194304' };
  const small = await startHost({ flags: { 'log-level': 'error', ...flags } });
  try {
    await deploy(mppFetch(small.network, 0), small.url, { slug: 'small', code: HANDLER, bindings: BINDINGS });
    /** Fills one and the other in turn. @returns how much was kept before the first refusal, and that refusal */
    const fill = async (kind: string, names: string[], size: number): Promise<[number, string]> => {
      for (let count = 0; count < 100; count++) {
        const place = `small/${kind}/${names[count % 2]}/${count}`;
        const answer = await fetch(`${small.url}/${place}`, { method: 'PUT', body: 'x'.repeat(size) });
        const text = await answer.text();
        if (text !== 'kept') return [count * size, text];
      }
      throw new Error(`${kind} is without end`);
    };
    const [kv, why] = await fill('kv', ['CACHE', 'SESSIONS'], 100_000);
    expect(kv).toBeLessThanOrEqual(1_048_576);
    expect(kv).toBeGreaterThanOrEqual(700_000);
    expect(why).toContain('507');
    const [r2] = await fill('r2', ['MEDIA', 'ATTIC'], 100_000);
    expect(r2).toBeLessThanOrEqual(1_048_576);
    expect(r2).toBeGreaterThanOrEqual(700_000);
    const [d1] = await fill('d1', ['FIRST', 'SECOND'], 100_000);
    expect(d1).toBeLessThanOrEqual(4_194_304);
    expect(d1).toBeGreaterThanOrEqual(2_000_000);
  } finally {
    await small.stop();
    rmSync(small.data, { recursive: true, force: true });
  }
});
