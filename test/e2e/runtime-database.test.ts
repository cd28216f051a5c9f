/** A tenant's database process as the runtime runs it: lazily, in its sandbox, and back after it died. */
import { readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

let rig: RuntimeRig;

beforeAll(async () => {
  rig = await RuntimeRig.start();
  await rig.deploy(
    'data',
    `export default { async fetch(request, env) {
      const { pathname } = new URL(request.url);
      if (pathname === '/none') return new Response('none');
      if (pathname === '/put') { await env.DB.exec('CREATE TABLE IF NOT EXISTS n (v INTEGER)'); await env.DB.prepare('INSERT INTO n VALUES (1)').run(); }
      const counting = 'WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 2000000) SELECT count(*) AS n FROM c';
      const row = await env.DB.prepare(pathname === '/count' ? counting : 'SELECT count(*) AS n FROM n').first();
      return Response.json(row);
    } }`,
    { bindings: { d1: true, kv: true } },
  );
});
afterAll(() => rig?.stop());

/** SQL processes of this test: Node under a sandbox's path, with this rig's folder mounted. */
function databaseProcesses(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return (
          readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('/app/d1.mjs') &&
          readFileSync(`/proc/${pid}/mountinfo`, 'latin1').includes(rig.folder)
        );
      } catch {
        return false;
      }
    });
}

/** Where the tenant's database file is. */
function databaseFolder(): string {
  const files = readdirSync(rig.folder, { recursive: true, withFileTypes: true });
  return files.find((entry) => entry.name === 'db.sqlite')?.parentPath ?? '';
}

it('has no process until the first query', async () => {
  expect(await rig.text('data', '/none')).toBe('none');
  expect(databaseProcesses()).toEqual([]);
  expect(await rig.text('data', '/put')).toBe('{"n":1}');
  expect(databaseProcesses().length).toBeGreaterThan(0);
});

it('keeps its data when the instance ends', async () => {
  await rig.runtime.stop('data', 'stopped', { drainMs: 0 });
  await until(() => databaseProcesses().length === 0, 'the database to end with its instance');
  expect(await rig.text('data', '/')).toBe('{"n":1}');
});

it('is part of what its tenant uses of the CPU', async () => {
  const used = () =>
    rig.events.reduce((sum, one) => sum + (one.type === 'used' && one.slug === 'data' ? one.cpuMs : 0), 0);
  const before = used();
  expect(await rig.text('data', '/count')).toBe('{"n":2000000}');
  await rig.runtime.stop('data', 'stopped', { drainMs: 0 });
  expect(used() - before).toBeGreaterThan(200);
});

it('gives no file to the tenant that a link in its folder leads to', async () => {
  const folder = databaseFolder();
  const bait = path.join(rig.folder, 'bait');
  writeFileSync(bait, 'of the host');
  const owner = statSync(bait).uid;
  await rig.runtime.stop('data', 'stopped', { drainMs: 0 });
  await until(() => databaseProcesses().length === 0, 'the database to end with its instance');
  symlinkSync(bait, path.join(folder, 'link'));
  expect(await rig.text('data', '/')).toBe('{"n":1}');
  expect(statSync(bait).uid).toBe(owner);
  rmSync(path.join(folder, 'link'));
});

it('comes back by itself after its processes were killed', async () => {
  // Children first: they go with their parent.
  for (const pid of databaseProcesses().toReversed()) process.kill(pid, 'SIGKILL');
  const text = await until(async () => {
    const response = await rig.fetch('data', '/put');
    return response.status === 200 ? response.text() : undefined;
  });
  expect(JSON.parse(text).n).toBeGreaterThanOrEqual(2);
});

it('gives a tenant without the binding neither socket nor binding', async () => {
  await rig.deploy('plain', `export default { fetch: (request, env) => Response.json(Object.keys(env)) }`);
  expect(await rig.text('plain')).toBe('[]');
  const socket = rig.socketOf('plain')!;
  const services = readdirSync(socket.replace(/\/l\/http\.sock$/, '/s'));
  expect(services).toEqual(['egress.sock']);
});

it('stays reachable however often its deployment is replaced while it runs', async () => {
  const version = (count: number) =>
    `export default { async fetch(request, env) {
      const row = await env.DB.prepare('SELECT 1 AS one').first();
      return new Response('v${count} ' + row.one);
    } }`;
  await rig.deploy('often', version(0), { bindings: { d1: true } });
  expect(await rig.text('often')).toBe('v0 1');
  for (let count = 1; count <= 40; count++) {
    await rig.deploy('often', version(count), { bindings: { d1: true } });
    await rig.runtime.activate('often');
    expect(await rig.text('often')).toBe(`v${count} 1`);
  }
});
