/** Handlers of every kind that Cloudflare runs: service-worker syntax, none for requests, a class. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost, until } from './support/host.ts';

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error' } });
  owner = mppFetch(host.network, 0);
}, 60_000);
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
