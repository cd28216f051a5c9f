/** Durable Objects on a whole host: deployed, refused, counted, in the backup, gone with their deployment. */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { withRestored } from './support/backup.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';

const HANDLER = `
import { DurableObject } from 'cloudflare:workers';
export class Log extends DurableObject {
  add() {
    const { sql } = this.ctx.storage;
    sql.exec('CREATE TABLE IF NOT EXISTS lines (n INTEGER PRIMARY KEY, text TEXT)');
    sql.exec('INSERT INTO lines (text) VALUES (?)', 'x'.repeat(2000));
    return sql.exec('SELECT count(*) AS n, max(n) AS last FROM lines').one();
  }
  check() { return this.ctx.storage.sql.exec('PRAGMA quick_check').one(); }
}
export default {
  async fetch(request, env) {
    const [, name, method] = new URL(request.url).pathname.split('/');
    try { return Response.json(await env.LOGS.getByName(name)[method]()); }
    catch (error) { return new Response(String(error), { status: 500 }); }
  },
};
`;
const BINDINGS = { durableObjects: { LOGS: { class: 'Log' } } };

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error' } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'logs', code: HANDLER, bindings: BINDINGS });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

const tenants = () => readdirSync(join(host.data, 'tenants'));
const add = async (name: string, at = host) =>
  (await (await fetch(`${at.url}/logs/${name}/add`, { method: 'POST' })).json()) as { n: number; last: number };
const read = async () => (await (await owner(`${host.url}/_admin/get/logs`)).json()) as Record<string, unknown>;

it('a class that the code does not export is refused before anything is paid', async () => {
  const bindings = { durableObjects: { LOGS: { class: 'Missing' } } };
  const answer = await owner(`${host.url}/_admin/deploy`, jsonPost({ slug: 'missing', code: HANDLER, bindings }));
  expect(answer.status).toBe(422);
  expect(((await answer.json()) as { detail: string }).detail).toMatch(/exports no class Missing/);
  expect((await fetch(`${host.url}/missing/`)).status).toBe(404);
});

it.each([
  [{ LOGS: { class: 'no class' } }, /LOGS\/class/],
  [{ LOGS: { class: 'Log', id: '../up' } }, /LOGS\/id/],
  [{ LOGS: {} }, /"class"/],
  [{ LOGS: { class: 'Log' }, MORE: { class: 'Log', id: 'other' } }, /one class two ids/],
  [{ LOGS: { class: 'Log' }, MORE: { class: 'Other', id: 'Log' } }, /one id to two classes/],
  [{ LOGS: { class: 'Log' }, MORE: { id: 'Log', deleted: true } }, /one id to two classes/],
  [true, /names of your own/],
])('%j is refused', async (durableObjects, words) => {
  const answer = await owner(`${host.url}/_admin/code/logs`, jsonPut({ bindings: { durableObjects } }));
  expect(answer.status).toBe(400);
  expect(((await answer.json()) as { detail: string }).detail).toMatch(words);
});

it('is in the metadata, with its bytes and its limit', async () => {
  await add('counted');
  const found = JSON.stringify(await read());
  expect(found).toContain('"durableObjects":{"LOGS":{"class":"Log"}}');
  expect(found).toMatch(/"durableObjectBytes":1073741824/);
  const usage = JSON.stringify(await (await owner(`${host.url}/_admin/logs/usage`)).json());
  expect(Number(/"durableObjectBytes":(\d+)/.exec(usage)?.[1])).toBeGreaterThan(1_000);
});

it('a backup under writes holds all that was acknowledged before it, whole', async () => {
  let stop = false;
  const counts = new Map<string, number>();
  const writer = async (name: string) => {
    while (!stop) counts.set(name, (await add(name)).n);
  };
  const writers = ['a', 'b', 'c'].map(writer);
  await expect.poll(() => Math.min(...['a', 'b', 'c'].map((name) => counts.get(name) ?? 0))).toBeGreaterThan(20);
  const before = new Map(counts);
  await withRestored(host, async (other) => {
    stop = true;
    await Promise.all(writers);
    for (const [name, count] of before) {
      expect(await (await fetch(`${other.url}/logs/${name}/check`)).json()).toEqual({ quick_check: 'ok' });
      const { n, last } = await add(name, other);
      expect(n).toBeGreaterThan(count);
      expect(last).toBe(n);
      expect(n - 1).toBeLessThanOrEqual(counts.get(name) ?? 0);
    }
  });
});

it('goes with its deployment', async () => {
  const folders = () => tenants().filter((tenant) => existsSync(join(host.data, 'tenants', tenant, 'durableObjects')));
  expect(folders()).toHaveLength(1);
  expect((await owner(`${host.url}/_admin/logs`, { method: 'DELETE' })).status).toBe(200);
  await host.advance(31 * 24 * 3_600_000);
  await expect.poll(folders).toEqual([]);
});
