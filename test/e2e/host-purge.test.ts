/**
 * What tenants keep, on this disk or with their SQL on a libSQL server, through the whole host: apart from each other,
 * there after a kill, and gone from every file when the grace period after a deletion is over.
 */
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SqlServer } from './d1-rig.ts';
import { deploy, type Fetch, mppFetch } from './support/callers.ts';
import { filesWith } from './support/files.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const DAY_MS = 86_400_000;
const GRACE_DAYS = 7;

/** Writes and reads the word it is given with every binding. */
const HANDLER = `
export default {
  async fetch(request, env) {
    const word = new URL(request.url).searchParams.get('word');
    if (request.method === 'POST') {
      await env.DB.batch([
        env.DB.prepare('CREATE TABLE words (word TEXT)'),
        env.DB.prepare('INSERT INTO words VALUES (?)').bind(word),
      ]);
      await env.STORE.put('word', word);
      await env.STORE.put('long', word.repeat(10_000));
      await env.BUCKET.put('word', word.repeat(10_000));
      await env.LOG.batch([
        env.LOG.prepare('CREATE TABLE words (word TEXT)'),
        env.LOG.prepare('INSERT INTO words VALUES (?)').bind(word + ' log'),
      ]);
      await env.CACHE.put('word', word + ' cache');
      await env.ATTIC.put('word', word + ' attic');
      console.log(word);
    }
    const { results } = await env.DB.prepare('SELECT word FROM words').all();
    return Response.json({
      d1: results.map((row) => row.word),
      kv: await env.STORE.get('word'),
      long: (await env.STORE.get('long'))?.length,
      r2: (await (await env.BUCKET.get('word'))?.text())?.slice(0, word.length),
      others: [
        (await env.LOG.prepare('SELECT word FROM words').all()).results[0]?.word,
        await env.CACHE.get('word'),
        await (await env.ATTIC.get('word'))?.text(),
      ],
    });
  },
};
`;

describe.each(['on this disk', 'on a libSQL server'])('SQL %s', (where) => {
  let server: SqlServer | undefined;
  let host: TestHost;
  let owner: Fetch;
  const words = { 'keeper-one': 'quetzalcoatlus', 'keeper-two': 'archaeopteryx' };
  const [one, two] = Object.values(words) as [string, string];

  beforeAll(async () => {
    if (where !== 'on this disk') server = await SqlServer.start();
    host = await startHost({
      flags: {
        'log-level': 'error',
        'slugs-grace-days': String(GRACE_DAYS),
        ...(server ? { 'storage-sql': server.url, 'storage-sql-admin': server.adminUrl } : {}),
      },
    });
    owner = mppFetch(host.network, 0);
    for (const slug of Object.keys(words)) {
      const bindings = {
        kv: { STORE: {}, CACHE: {} },
        d1: { DB: {}, LOG: {} },
        r2: { BUCKET: {}, ATTIC: { id: 'a.1' } },
      };
      await deploy(owner, host.url, { slug, code: HANDLER, bindings });
    }
  });
  afterAll(async () => {
    await host?.stop();
    await server?.stop();
    if (host) rmSync(host.data, { recursive: true, force: true });
  });

  const ask = async (slug: string, word: string, method = 'GET') =>
    (await fetch(`${host.url}/${slug}/?word=${word}`, { method })).json();
  const tenants = () => readdirSync(path.join(host.data, 'tenants'));
  const everywhere = (word: string) => [host.data, server?.folder ?? host.data].flatMap((at) => filesWith(word, at));

  it('is each tenant’s own', async () => {
    for (const [slug, word] of Object.entries(words)) {
      const others = ['log', 'cache', 'attic'].map((store) => `${word} ${store}`);
      const kept = { d1: [word], kv: word, long: word.length * 10_000, r2: word, others };
      expect(await ask(slug, word, 'POST')).toEqual(kept);
    }
    for (const [slug, word] of Object.entries(words)) expect(await ask(slug, word)).toMatchObject({ d1: [word] });
    await until(() => everywhere(one).some((file) => file.includes('/logs/')));
    if (server) {
      const sql = filesWith(one, server.folder);
      expect(sql.length).toBeGreaterThan(0);
      for (const file of sql) expect(filesWith(two, server.folder)).not.toContain(file);
      for (const tenant of tenants()) expect((await namespace(server, tenant)).status).toBe(200);
    }
  });

  it('is there after the host was killed', async () => {
    await host.kill();
    host = await host.restart();
    owner = mppFetch(host.network, 0);
    for (const [slug, word] of Object.entries(words)) {
      expect(await ask(slug, word)).toMatchObject({ d1: [word], kv: word, r2: word });
    }
  });

  it('is gone from every file when the grace period after a deletion is over, and nobody else’s is', async () => {
    const before = tenants();
    expect((await owner(`${host.url}/_admin/keeper-one`, { method: 'DELETE' })).status).toBe(200);
    expect(everywhere(one).length).toBeGreaterThan(0);
    await host.advance((GRACE_DAYS + 1) * DAY_MS);
    await until(
      () => everywhere(one).length === 0,
      () => `${everywhere(one).join('\n')}\n${host.output()}`,
    );
    await until(() => tenants().length === before.length - 1);
    const [gone = ''] = before.filter((tenant) => !tenants().includes(tenant));
    if (server) {
      expect((await namespace(server, gone)).status).toBe(404);
      expect(readdirSync(path.join(server.folder, 'data/dbs'))).not.toContain(gone);
    }
    expect(await ask('keeper-two', two)).toMatchObject({ d1: [two], kv: two, r2: two });
  });
});

const namespace = (server: SqlServer, tenant: string) => fetch(`${server.adminUrl}/v1/namespaces/${tenant}/config`);
