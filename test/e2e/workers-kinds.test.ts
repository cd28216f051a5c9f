/** Handlers of every kind that Cloudflare runs: service-worker syntax, none for requests, a class. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error' } });
  owner = mppFetch(host.network, 0);
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

const ask = async (slug: string, path = '') => (await fetch(`${host.url}/${slug}/${path}`)).text();
const logs = async (slug: string) => (await owner(`${host.url}/_admin/${slug}/logs`)).text();

it('service-worker syntax: what it is bound to is global, and lines of errors are the owner’s', async () => {
  await deploy(owner, host.url, {
    slug: 'script',
    code: `
addEventListener('fetch', (event) => event.respondWith(answer(event.request)));
async function answer(request) {
  if (new URL(request.url).pathname === '/fail')
    throw new TypeError('on line 5');
  await STORE.put('key', 'kept');
  await OTHER.put('key', 'also');
  await BUCKET.put('key', 'object');
  await DB.exec('CREATE TABLE IF NOT EXISTS t (x TEXT)');
  return Response.json([SECRET, GREETING, LIST, await STORE.get('key'), await OTHER.get('key'), await (await BUCKET.get('key')).text()]);
}
addEventListener('scheduled', (event) => event.waitUntil(STORE.put('ran', String(event.cron))));
`,
    bindings: { kv: { STORE: {}, OTHER: {} }, d1: true, r2: true },
    vars: { GREETING: 'hi', LIST: [1, 2] },
    secrets: { SECRET: 's' },
    crons: ['0 0 1 1 *'],
  });
  expect(JSON.parse(await ask('script'))).toEqual(['s', 'hi', [1, 2], 'kept', 'also', 'object']);
  expect((await fetch(`${host.url}/script/fail`)).status).toBe(500);
  await until(async () => (await logs('script')).includes('on line 5'));
  expect(await logs('script')).toMatch(/index\.[jt]s:5:11/);
});

it('a script that loads packages, in several modules', async () => {
  await deploy(owner, host.url, {
    slug: 'script-two',
    main: 'index.js',
    modules: {
      'index.js':
        "import { hello } from './hello.js'; addEventListener('fetch', (e) => e.respondWith(new Response(hello())));",
      'hello.js': "export const hello = () => 'from a module';",
    },
  });
  expect(await ask('script-two')).toBe('from a module');
  const change = { code: "export default { fetch: () => new Response('a module now') }" };
  expect((await owner(`${host.url}/_admin/code/script-two`, jsonPut(change))).status).toBe(200);
  expect(await ask('script-two')).toBe('a module now');
});

it('modules of every kind by names that only running the code tells', async () => {
  await deploy(owner, host.url, {
    slug: 'by-name',
    main: 'src/index.ts',
    modules: {
      'src/index.ts': `import { seen } from './seen.ts'; import old from './old.cjs'; import data from './data.json' with { type: 'json' }; import text from '../text.txt';
const names: Record<string, string> = { ts: './page.ts', cjs: './old.cjs', json: './data.json', text: '../text.txt', bytes: './raw.dat' };
export default { async fetch(request: Request) {
  const found = await import(names[new URL(request.url).pathname.slice(1)]!);
  const value = found.default instanceof ArrayBuffer ? found.default.byteLength : found.default;
  return Response.json([value, seen(), old.three, data.a, text]);
} };`,
      'src/seen.ts': 'let n: number = 0; export const seen = () => ++n;',
      'src/page.ts': "import { seen } from './seen'; export default 'page ' + seen();",
      'src/old.cjs': "const { five } = require('./older.cjs'); exports.three = five - 2;",
      'src/older.cjs': "exports.five = require('./data.json').a + 4;",
      'src/data.json': '{"a":1}',
      'text.txt': 'a text',
      'src/raw.dat': { base64: 'AAEC' },
    },
  });
  const rest = (count: number) => [count, 3, 1, 'a text'];
  expect(JSON.parse(await ask('by-name', 'ts'))).toEqual(['page 1', ...rest(2)]);
  expect(JSON.parse(await ask('by-name', 'cjs'))).toEqual([{ three: 3 }, ...rest(3)]);
  expect(JSON.parse(await ask('by-name', 'json'))).toEqual([{ a: 1 }, ...rest(4)]);
  expect(JSON.parse(await ask('by-name', 'text'))).toEqual(['a text', ...rest(5)]);
  expect(JSON.parse(await ask('by-name', 'bytes'))).toEqual([3, ...rest(6)]);
});

it('a handler for queues alone is taken; requests are told that it has none for them', async () => {
  await deploy(owner, host.url, { slug: 'queue-only', code: 'export default { queue() {} }' });
  expect((await fetch(`${host.url}/queue-only/`)).status).toBe(500);
});

it('a handler for the clock alone deploys; requests are told that it has none for them', async () => {
  await deploy(owner, host.url, {
    slug: 'clock-only',
    code: 'export default { scheduled() {} }',
    crons: ['0 0 1 1 *'],
  });
  expect((await fetch(`${host.url}/clock-only/`)).status).toBe(500);
  expect(await logs('clock-only')).toContain('it has no fetch(), so requests are answered 500');
});

it('a class that extends WorkerEntrypoint', async () => {
  await deploy(owner, host.url, {
    slug: 'entrypoint',
    code: "import { WorkerEntrypoint } from 'cloudflare:workers'; export default class extends WorkerEntrypoint { fetch() { return new Response(this.env.NAME); } }",
    vars: { NAME: 'of a class' },
  });
  expect(await ask('entrypoint')).toBe('of a class');
});

it('rate limits by key, and the version of what runs', async () => {
  const code = `export default { async fetch(request, env) {
    const key = new URL(request.url).pathname;
    if (key === '/version') return Response.json(env.VERSION);
    const limits = [await env.LIMIT.limit({ key }), await env.SAME.limit({ key }), await env.WIDE.limit({ key })];
    return Response.json(limits.map(({ success }) => success));
  } };`;
  const ratelimit = {
    LIMIT: { limit: 5, period: 60, namespace: 'n' },
    SAME: { limit: 5, period: 60, namespace: 'n' },
    WIDE: { limit: 100, period: 10 },
  };
  await deploy(owner, host.url, { slug: 'limited', code, bindings: { ratelimit, version: { VERSION: {} } } });
  const seen = [];
  for (let i = 0; i < 4; i++) seen.push(JSON.parse(await ask('limited', 'a')));
  expect(seen).toEqual([
    [true, true, true],
    [true, true, true],
    [true, false, true],
    [false, false, true],
  ]);
  expect(JSON.parse(await ask('limited', 'b'))).toEqual([true, true, true]);
  const version = async () => JSON.parse(await ask('limited', 'version')) as Record<string, string>;
  const first = await version();
  expect(first).toEqual({
    id: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
    tag: '',
    timestamp: expect.any(String),
  });
  expect(Math.abs(Date.parse(first.timestamp ?? '') - Date.now())).toBeLessThan(60_000);
  expect((await owner(`${host.url}/_admin/code/limited`, jsonPut({ vars: { A: 'b' } }))).status).toBe(200);
  expect((await version()).id).not.toBe(first.id);
  const refused = await owner(
    `${host.url}/_admin/code/limited`,
    jsonPut({ bindings: { ratelimit: { LIMIT: { limit: 5, period: 7 } } } }),
  );
  expect(refused.status).toBe(400);
  expect(((await refused.json()) as { detail: string }).detail).toContain(
    '/bindings/ratelimit/LIMIT/period takes 10 or 60',
  );
});
