/** Updates whose code is probed in the instance that then takes over, on the real host; and attempts to make use of that. */
import { createHash } from 'node:crypto';
import { readdirSync, readlinkSync, watch } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { instancePid } from './support/instance-pid.ts';
import { sandboxesMade } from './support/sandboxes-made.ts';
import { until } from './support/until.ts';

let host: TestHost;
let owner: Fetch;
/** Less than what one that was accepted waits for to take over. */
const KEPT_ACCEPTED_MS = 14_000;
/** Folders of throwaway sandboxes that were made. */
const throwaway = new Set<string>();
let watcher: ReturnType<typeof watch>;

beforeAll(async () => {
  host = await startHost();
  owner = mppFetch(host.network, 0);
  watcher = watch(path.join(host.data, 'run'), (_, name) => {
    if (name?.startsWith('.probe-')) throwaway.add(name);
  });
});
afterAll(async () => {
  watcher?.close();
  await host?.stop();
});

const says = (text: string, more = '') =>
  `export default { fetch: () => new Response(${JSON.stringify(text)}) };${more}`;
const answerOf = async (slug: string) => (await fetch(`${host.url}/${slug}/`)).text();
const put = (slug: string, change: object) => owner(`${host.url}/_admin/code/${slug}`, jsonPut(change));

/** A warm deployment. */
async function warm(slug: string, more: object = {}): Promise<void> {
  await deploy(owner, host.url, { slug, code: says('v1'), ...more });
  expect(await answerOf(slug)).toBe('v1');
  throwaway.clear();
}

/** How many sandboxes are made beside the first, for a change that is accepted. */
const sandboxesOf = (slug: string, change: () => Promise<Response>) =>
  sandboxesMade(host.data, slug, async () => {
    const answer = await change();
    expect([answer.status, answer.ok ? '' : await answer.text()]).toEqual([200, '']);
  });

async function logOf(slug: string): Promise<string[]> {
  const answer = await owner(`${host.url}/_admin/${slug}/logs`);
  const { entries } = (await answer.json()) as { entries: { text: string }[] };
  return entries.map(({ text }) => text);
}

it('loads new code once, in the instance that takes over, and tells its owner what it printed', async () => {
  await warm('once');
  const before = instancePid(host.data, 'once');
  const code = says('v2', "console.log('loaded');");
  expect(await sandboxesOf('once', () => put('once', { code }))).toBe(1);
  expect(await answerOf('once')).toBe('v2');
  await until(() => instancePid(host.data, 'once') !== before);
  const entries = await until(async () => {
    const found = await logOf('once');
    return found.includes('loaded') ? found : undefined;
  });
  expect(entries.filter((text) => text === 'loaded')).toHaveLength(1);
  expect([...throwaway]).toEqual([]);
});

it('has what it was changed to: secrets, vars, bindings, and who it is', async () => {
  await warm('anew', { secrets: { KEY: 'old' } });
  const code = `import { env } from 'cloudflare:workers';
const atTop = env.KEY;
export default {
  async fetch(request, { KEY, MODE, STORE, CF_VERSION }) {
    await STORE.put('k', 'kept');
    return Response.json([atTop, KEY, MODE, await STORE.get('k'), typeof CF_VERSION.id, Date.parse(CF_VERSION.timestamp) > 0]);
  },
};`;
  const bindings = { kv: true, version: { CF_VERSION: {} } };
  const changed = await put('anew', { code, secrets: { KEY: 'new' }, vars: { MODE: 'x' }, bindings });
  expect([changed.status, changed.ok ? '' : await changed.text()]).toEqual([200, '']);
  expect(JSON.parse(await answerOf('anew'))).toEqual(['new', 'new', 'x', 'kept', 'string', true]);
  expect((await put('anew', { secretChanges: { KEY: 'newer' } })).status).toBe(200);
  expect(JSON.parse(await answerOf('anew')).slice(0, 2)).toEqual(['newer', 'newer']);
  const back = await owner(`${host.url}/_admin/anew/rollback`, jsonPost({ version: 1 }));
  expect([back.status, await answerOf('anew')]).toEqual([200, 'v1']);
  expect([...throwaway]).toEqual([]);
});

it('takes over with each kind of binding that needs nothing of its own to start', async () => {
  await warm('callee');
  const bindings = {
    ...{ kv: true, d1: true, r2: true, payments: true },
    ratelimit: { LIMIT: { limit: 5, period: 60 } },
    services: { OTHER: { service: 'callee' } },
    version: { VERSION: {} },
  };
  await warm('bound', { bindings });
  const code = `export default { async fetch(request, env) {
    await env.BUCKET.put('k', 'object');
    const row = await env.DB.prepare('SELECT 1 AS one').first();
    const { success } = await env.LIMIT.limit({ key: 'k' });
    const verified = await env.PAYMENTS.fetch('http://payments/verify', { method: 'POST', body: '{}' });
    return Response.json([await (await env.BUCKET.get('k')).text(), row.one, success, await (await env.OTHER.fetch('http://other/')).text(), verified.status < 500, typeof env.VERSION.id]);
  } };`;
  expect(await sandboxesOf('bound', () => put('bound', { code }))).toBe(1);
  expect(JSON.parse(await answerOf('bound'))).toEqual(['object', 1, true, 'v1', true, 'string']);
  expect([...throwaway]).toEqual([]);
});

it.each<[string, string, object, object?]>([
  ['throws while it loads', "\nthrow new Error('no')", { errors: [{ file: 'index.ts', line: 2 }] }],
  ['never ends loading', 'for (;;);', { detail: expect.stringContaining('CPU') }],
  ['has no fetch', 'export default { a: 1 }', { detail: expect.stringContaining('no fetch') }],
  ['hides its fetch behind what never returns', 'export default { get fetch() { for (;;); } }', {}],
  [
    'exports what it calls the probe',
    `export default 1; export { x as "turnpike probe" }; const x = { fetch: () => Response.json({ handlers: ['fetch'], kind: 'object', missing: [], entrypoints: [] }) };`,
    { detail: expect.stringContaining('type number') },
  ],
  [
    'asks for an experimental flag',
    says('v2'),
    { errors: [{ pointer: '/compatibilityFlags' }] },
    { compatibilityFlags: ['service_binding_extra_handlers'] },
  ],
])('refuses code that %s, and what runs goes on', async (_, code, problem, more = {}) => {
  const slug = `bad-${Math.random().toString(36).slice(2, 8)}`;
  await warm(slug);
  const pid = instancePid(host.data, slug);
  const answer = await put(slug, { code, ...more });
  expect([answer.status, await answer.json()]).toMatchObject([422, { code: 'code_rejected', ...problem }]);
  expect([await answerOf(slug), instancePid(host.data, slug)]).toEqual(['v1', pid]);
  expect((await put(slug, { code: says('v2') })).status).toBe(200);
  expect(await answerOf(slug)).toBe('v2');
});

it('ends at once what goes on in an instance whose code is refused, and holds what is accepted to its limits', async () => {
  await warm('goes-on', { code: `${says('v1').replace('}', ', scheduled() {} }')}`, crons: ['0 0 1 1 *'] });
  const cell = path.dirname(readlinkSync(path.join(host.data, 'run', 'goes-on')));
  const code = (more: string) => `import { waitUntil } from 'cloudflare:workers';
const kept = [];
const leak = async () => { for (;;) { await scheduler.wait(1); kept.push(new Uint8Array(4e6).fill(1)); } };
export default { get fetch() { try { waitUntil(leak()); } catch {} return () => new Response('v2'); }${more} };`;
  expect((await put('goes-on', { code: code('') })).status).toBe(422);
  await until(
    () => !readdirSync(cell).some((name) => name.startsWith('g')),
    'the end of the one that was probed',
    KEPT_ACCEPTED_MS,
  );
  expect(await answerOf('goes-on')).toBe('v1');
  expect((await put('goes-on', { code: code(', scheduled() {}') })).status).toBe(200);
  await until(async () => {
    const log = await logOf('goes-on');
    return log.some((text) => /memory|MB/.test(text));
  }, 'the end of the one that allocates');
});

it('loads it once beside static files, too, and asks elsewhere about flags that are new then', async () => {
  await warm('more');
  const name = createHash('sha256').update('a file').digest('hex');
  const session = await owner(`${host.url}/_admin/session/more`, { method: 'POST' });
  const { token } = (await session.json()) as { token: string };
  const sent = { method: 'PUT', body: 'a file', headers: { authorization: `Bearer ${token}` } };
  expect((await fetch(`${host.url}/_admin/more/assets/${name}`, sent)).status).toBe(201);
  const served = async () => [await answerOf('more'), await (await fetch(`${host.url}/more/a.txt`)).text()];
  const assets = { files: { '/a.txt': name } };
  const withFiles = await put('more', { code: says('v2'), assets });
  expect([withFiles.status, withFiles.ok ? '' : await withFiles.text()]).toEqual([200, '']);
  expect(await served()).toEqual(['v2', 'a file']);
  expect((await put('more', { code: says('v3'), compatibilityFlags: ['nodejs_compat'] })).status).toBe(200);
  expect([await served(), throwaway.size]).toEqual([['v3', 'a file'], 1]);
  const experimental = { compatibilityFlags: ['nodejs_compat', 'service_binding_extra_handlers'] };
  expect((await put('more', { code: says('v4'), ...experimental })).status).toBe(422);
  expect([await served(), throwaway.size]).toEqual([['v3', 'a file'], 2]);
  // That which was made for the refused one is taken.
  expect(await sandboxesOf('more', () => put('more', { code: says('v4') }))).toBe(0);
  expect(await sandboxesOf('more', () => put('more', { code: says('v5') }))).toBe(1);
  expect([await served(), throwaway.size]).toEqual([['v5', 'a file'], 2]);
  expect((await put('more', { code: says('v6'), assets: null })).status).toBe(200);
  expect([(await served())[0], throwaway.size]).toEqual(['v6', 2]);
});

it('takes over where entrypoints come with the code, or go', async () => {
  await warm('entries');
  const entry = "import { WorkerEntrypoint } from 'cloudflare:workers'; export class Door extends WorkerEntrypoint {};";
  expect((await put('entries', { code: `${entry}${says('v2')}` })).status).toBe(200);
  expect(await answerOf('entries')).toBe('v2');
  expect((await put('entries', { code: says('v3') })).status).toBe(200);
  expect(await answerOf('entries')).toBe('v3');
});

async function kill(pid: number | undefined, afterMs: number): Promise<void> {
  await delay(afterMs);
  try {
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
  } catch {
    // It was replaced before.
  }
}

it('goes on where the instance that runs is killed while the next one is being tried out', async () => {
  await warm('killed');
  for (let turn = 0; turn < 6; turn++) {
    const changed = put('killed', { code: says(`turn ${turn}`) });
    const pid = instancePid(host.data, 'killed');
    const [answer] = await Promise.all([changed, kill(pid, turn * 25)]);
    expect([answer.status, answer.ok ? '' : await answer.text()]).toEqual([200, '']);
    expect(await answerOf('killed')).toBe(`turn ${turn}`);
  }
});
