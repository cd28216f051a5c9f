/** Stores that deployments of one owner share because both say so: one set of data, never another owner's. */
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { withRestored } from './support/backup.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { filesWith } from './support/files.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const DAY_MS = 86_400_000;
/** `/kv/NAME/key`: PUT keeps the body, GET answers it; `/once/NAME/key` puts only where there is nothing. */
const HANDLER = `
export default {
  async fetch(request, env) {
    const [, kind, name, key] = new URL(request.url).pathname.split('/');
    const body = request.method === 'PUT' ? await request.text() : undefined;
    try {
      if (kind === 'once') return new Response((await env[name].put(key, body, { onlyIf: { etagDoesNotMatch: '*' } })) ? 'won' : 'lost');
      if (body !== undefined) await env[name].put(key, body);
      const found = await env[name].get(key);
      return new Response(found === null ? 'nothing' : typeof found === 'string' ? found : await found.text());
    } catch (error) {
      return new Response(String(error), { status: 507 });
    }
  },
};
`;
const SHARED = {
  kv: { SESSIONS: { id: 'sessions', shared: true }, OWN: {} },
  r2: { MEDIA: { id: 'media', shared: true } },
};
const QUOTA = 1_048_576;

let host: TestHost;
let owner: Fetch;
let stranger: Fetch;
beforeAll(async () => {
  host = await startHost({
    flags: {
      'log-level': 'error',
      'slugs-grace-days': '7',
      'slugs-cooldown-days': '7',
      'storage-kv-bytes': `${QUOTA}`,
    },
  });
  owner = mppFetch(host.network, 0);
  stranger = mppFetch(host.network, 1);
  await deploy(owner, host.url, { slug: 'shop', code: HANDLER, bindings: SHARED });
  const bindings = { kv: { TICKETS: { id: 'sessions', shared: true }, ALONE: { id: 'sessions' } }, r2: SHARED.r2 };
  await deploy(owner, host.url, { slug: 'backoffice', code: HANDLER, bindings });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

const put = async (place: string, body: string) =>
  (await fetch(`${host.url}/${place}`, { method: 'PUT', body })).text();
const get = async (place: string, at = host) => (await fetch(`${at.url}/${place}`)).text();

it('what one writes the other reads, whatever its binding is called; a store of its own of that id is apart', async () => {
  expect(await put('shop/kv/SESSIONS/key', 'of the shop')).toBe('of the shop');
  expect(await get('backoffice/kv/TICKETS/key')).toBe('of the shop');
  expect(await put('backoffice/kv/TICKETS/key', 'of the back office')).toBe('of the back office');
  expect(await get('shop/kv/SESSIONS/key')).toBe('of the back office');
  expect(await get('backoffice/kv/ALONE/key')).toBe('nothing');
  expect(await put('backoffice/kv/ALONE/key', 'alone')).toBe('alone');
  expect(await get('shop/kv/SESSIONS/key')).toBe('of the back office');
  expect(await put('shop/r2/MEDIA/object', 'pterodactylus')).toBe('pterodactylus');
  expect(await get('backoffice/r2/MEDIA/object')).toBe('pterodactylus');
});

it('of conditional puts of both at once one wins', async () => {
  const all = Array.from({ length: 40 }, (_, index) =>
    put(`${index % 2 ? 'shop' : 'backoffice'}/once/MEDIA/first`, `${index}`),
  );
  expect((await Promise.all(all)).filter((answer) => answer === 'won')).toHaveLength(1);
});

it('another owner who names the id has a store of another kind of owner: their own', async () => {
  await deploy(stranger, host.url, { slug: 'stranger', code: HANDLER, bindings: SHARED });
  expect(await get('stranger/kv/SESSIONS/key')).toBe('nothing');
  expect(await get('stranger/r2/MEDIA/object')).toBe('nothing');
  expect(await put('stranger/kv/SESSIONS/key', 'theirs')).toBe('theirs');
  expect(await get('shop/kv/SESSIONS/key')).toBe('of the back office');
});

it.each([
  [{ kv: { A: { shared: true } } }, '/bindings/kv/A/id is missing: deployments share a store by its id'],
  [{ d1: { DB: { id: 'db', shared: true } } }, '/bindings/d1/DB/shared is not possible for d1: a database is one file'],
])('%j is refused before it is paid', async (bindings, words) => {
  const answer = await owner(`${host.url}/_admin/deploy`, jsonPost({ slug: 'refused', code: HANDLER, bindings }));
  expect(answer.status).toBe(400);
  expect(((await answer.json()) as { detail: string }).detail).toContain(words);
});

it('an update that begins to share, and one that ends it, leave the data where it is', async () => {
  const update = async (bindings: object) =>
    (await owner(`${host.url}/_admin/code/backoffice`, jsonPut({ bindings }))).status;
  expect(await update({ kv: { ALONE: { id: 'sessions' } } })).toBe(200);
  expect(await get('backoffice/kv/ALONE/key')).toBe('alone');
  expect(await get('shop/kv/SESSIONS/key')).toBe('of the back office');
  expect(
    await update({ kv: { TICKETS: { id: 'sessions', shared: true }, ALONE: { id: 'sessions' } }, r2: SHARED.r2 }),
  ).toBe(200);
  expect(await get('backoffice/kv/TICKETS/key')).toBe('of the back office');
});

it('what is shared has a quota of its own, and usage tells of it', async () => {
  let kept = 0;
  for (; kept < 40; kept++) {
    const slug = kept % 2 ? 'shop/kv/SESSIONS' : 'backoffice/kv/TICKETS';
    const text = await put(`${slug}/fill-${kept}`, 'x'.repeat(100_000));
    if (!text.startsWith('x')) {
      expect(text).toContain('507');
      break;
    }
  }
  expect(kept).toBeGreaterThanOrEqual(7);
  expect(kept).toBeLessThanOrEqual(10);
  expect(await put('shop/kv/OWN/still', 'room')).toBe('room');
  const { storage } = (await (await owner(`${host.url}/_admin/shop/usage`)).json()) as {
    storage: Record<string, number>;
  };
  expect(storage.sharedKvBytes).toBeGreaterThan(700_000);
  expect(storage.sharedObjects).toBe(2);
  expect(storage.kvBytes).toBeLessThan(100);
});

it('it is there after a kill, and in the backup', async () => {
  await host.kill();
  host = await host.restart();
  owner = mppFetch(host.network, 0);
  expect(await get('shop/kv/SESSIONS/key')).toBe('of the back office');
  await withRestored(host, async (restored) => {
    expect(await get('backoffice/kv/TICKETS/key', restored)).toBe('of the back office');
    expect(await get('shop/r2/MEDIA/object', restored)).toBe('pterodactylus');
    expect(await get('stranger/kv/SESSIONS/key', restored)).toBe('theirs');
  });
});

it('projects for wrangler share by the ids in their files, where turnpike.json or a flag of each says so', async () => {
  const deployProject = async (name: string, files: Record<string, string>, args: string[] = []) => {
    const cwd = path.join(host.data, '..', `${path.basename(host.data)}-${name}`);
    mkdirSync(cwd, { recursive: true });
    try {
      const wrangler = {
        name,
        main: 'index.js',
        kv_namespaces: [{ binding: 'KV', id: 'aaaabbbbccccddddeeeeffff00001111' }],
      };
      const all = { 'index.js': HANDLER, 'wrangler.jsonc': JSON.stringify(wrangler), ...files };
      for (const [file, text] of Object.entries(all)) writeFileSync(path.join(cwd, file), text);
      return await turnpike(['--host-url', host.url, '--data', host.data, 'deploy', '--yes', ...args], { cwd });
    } finally {
      rmSync(cwd, { recursive: true, force: true });
    }
  };
  expect((await deployProject('project-a', { 'turnpike.json': '{ "share": ["KV"] }' })).code).toBe(0);
  expect((await deployProject('project-b', {}, ['--share', 'KV'])).code).toBe(0);
  expect((await deployProject('project-c', {})).code).toBe(0);
  const missing = await deployProject('project-d', {}, ['--share', 'NONE']);
  expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('no binding NONE')]);
  expect(await put('project-a/kv/KV/key', 'both')).toBe('both');
  expect(await get('project-b/kv/KV/key')).toBe('both');
  expect(await get('project-c/kv/KV/key')).toBe('nothing');
});

it('goes with the last deployment that named it, and nobody finds it under the slug', async () => {
  const tenants = path.join(host.data, 'tenants');
  const everywhere = () => filesWith('pterodactylus', tenants);
  const remove = async (slug: string) => {
    expect((await owner(`${host.url}/_admin/${slug}`, { method: 'DELETE' })).status).toBe(200);
    const before = readdirSync(tenants).length;
    await host.advance(8 * DAY_MS);
    await until(
      () => readdirSync(tenants).length < before,
      () => host.output(),
    );
  };
  await remove('shop');
  expect(await get('backoffice/r2/MEDIA/object')).toBe('pterodactylus');
  expect(await get('backoffice/kv/TICKETS/key')).toBe('of the back office');
  stranger = mppFetch(host.network, 1);
  await deploy(stranger, host.url, { slug: 'shop', code: HANDLER, bindings: SHARED });
  expect(await get('shop/r2/MEDIA/object')).toBe('nothing');
  expect(await get('shop/kv/SESSIONS/key')).toBe('theirs');
  expect(everywhere().length).toBeGreaterThan(0);
  await remove('backoffice');
  await until(
    () => everywhere().length === 0,
    () => everywhere().join('\n'),
  );
  expect(await get('stranger/kv/SESSIONS/key')).toBe('theirs');
  expect(await get('project-b/kv/KV/key')).toBe('both');
});
