/** Versions at addresses of their own: what they share with the live one, what they do not, and what ends them. */
import { readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch, x402Fetch } from './support/callers.ts';
import { curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

let host: TestHost;
let owner: Fetch;

const code = (name: string) => `
export default {
  async fetch(request, env, ctx) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === '/hang') { const until = Date.now() + 60_000; while (Date.now() < until); }
    if (pathname === '/slow') await new Promise((resolve) => setTimeout(resolve, Number(searchParams.get('ms'))));
    // Refused by the way out, where there is one.
    if (pathname === '/out') return new Response(null, { status: (await fetch('http://127.0.0.1:1/')).status === 403 ? 200 : 500 });
    if (pathname === '/put') await env.STORE.put('key', searchParams.get('value'));
    if (pathname === '/count') {
      await env.DB.exec('CREATE TABLE IF NOT EXISTS counts (by TEXT)');
      await env.DB.prepare('INSERT INTO counts VALUES (?)').bind('${name}').run();
      return Response.json((await env.DB.prepare('SELECT count(*) AS n FROM counts').first()).n);
    }
    return Response.json({ name: '${name}', secret: env.TOKEN, mode: env.MODE, key: await env.STORE.get('key'), pathname });
  },
  scheduled() { console.log('cron of ${name}'); },
};`;

interface Preview {
  version: number;
  id: string;
  url: string;
  subdomainUrl: string;
}

beforeAll(async () => {
  host = await startHost({ flags: { 'clock-movable': 'true' } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, {
    slug: 'site',
    code: code('one'),
    bindings: { kv: true, d1: true },
    secrets: { TOKEN: 'secret one' },
    vars: { MODE: 'mode one' },
    crons: ['* * * * *'],
    paidRoutes: [{ method: 'GET', path: '/paid', price: '0.01' }],
  });
});
afterAll(async () => {
  await host?.stop();
});

async function upload(name: string, slug = 'site'): Promise<Preview> {
  const answer = await owner(`${host.url}/_admin/code/${slug}`, jsonPut({ code: code(name), preview: true }));
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  return JSON.parse(text).preview;
}

/** On this host by its address: the one that is printed has the host's public name. */
const at = ({ id }: { id: string }, pathname = '/', slug = 'site') => `${host.url}/${id}--${slug}${pathname}`;
const ask = async (url: string) => {
  const answer = await fetch(url);
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  return JSON.parse(text);
};
/** A preview that may have to wait until another one ends. */
async function settled(url: string): Promise<void> {
  await until(async () => {
    const answer = await fetch(url);
    await answer.body?.cancel();
    return answer.status === 200 || undefined;
  });
}
async function askPreview(preview: { id: string }) {
  await settled(at(preview));
  return await ask(at(preview));
}
const live = (pathname = '/') => ask(`${host.url}/site${pathname}`);
const versions = async () =>
  (await (await owner(`${host.url}/_admin/site/versions`)).json()) as {
    current: number;
    versions: { version: number; note: string; preview: Preview }[];
  };

test('a preview serves its code with the settings and data of what is live, and is not live', async () => {
  await live('/put?value=of+the+live+one');
  const two = await upload('two');
  expect(two).toMatchObject({ version: 2, id: expect.stringMatching(/^[0-9a-f]{12}$/) });
  expect(two.url).toMatch(new RegExp(`/${two.id}--site/$`));
  const [previewed, served] = await Promise.all([ask(at(two, '/x')), live('/x')]);
  const shared = { secret: 'secret one', mode: 'mode one', key: 'of the live one', pathname: '/x' };
  expect(previewed).toEqual({ ...shared, name: 'two' });
  expect(served).toEqual({ ...shared, name: 'one' });
  // The same stores, the other way round; and the database, at once.
  await ask(at(two, '/put?value=of+the+preview'));
  expect((await live()).key).toBe('of the preview');
  const counts = await Promise.all(
    Array.from({ length: 20 }, (_, n) => (n % 2 ? live('/count') : ask(at(two, '/count')))),
  );
  expect(Math.max(...counts)).toBe(20);
  // At its own host name.
  const named = await curl(`http://${two.id}--site.localhost:${host.port}/`);
  expect(JSON.parse(named.body).name).toBe('two');
  for (const answer of [await fetch(at(two)), named]) expect(answer.headers.get('x-robots-tag')).toBe('noindex');
  expect((await fetch(`${host.url}/site/`)).headers.get('x-robots-tag')).toBeNull();
  expect((await fetch(at(two, ''), { redirect: 'manual' })).headers.get('location')).toBe(`/${two.id}--site/`);
  // The first version has an address, too.
  const { current, versions: all } = await versions();
  expect([current, all.map(({ version, note }) => [version, note])]).toEqual([
    1,
    [
      [2, 'preview'],
      [1, 'deploy'],
    ],
  ]);
  expect((await askPreview(all[1]?.preview as Preview)).name).toBe('one');
});

test('an id that was given to nobody leads nowhere, and no slug can take its place', async () => {
  const { id } = await upload('three');
  const guessed = `${id.slice(0, -1)}${id.endsWith('0') ? '1' : '0'}`;
  expect((await fetch(at({ id: guessed }))).status).toBe(404);
  expect((await fetch(at({ id }, '/', 'other'))).status).toBe(404);
  const taken = await owner(`${host.url}/_admin/deploy`, jsonPost({ slug: `${id}--site`, code: code('no') }));
  expect([taken.status, await taken.text()]).toEqual([400, expect.stringContaining('/slug')]);
});

test('a paid route is paid at a preview, too, and answered by it', async () => {
  const preview = await upload('priced');
  await settled(at(preview));
  expect((await fetch(at(preview, '/paid'))).status).toBe(402);
  expect((await fetch(at(preview, '/PAID'))).status).toBe(402);
  for (const pay of [owner, x402Fetch(host.network, 1)]) {
    const paid = await pay(at(preview, '/paid'));
    const text = await paid.text();
    expect(paid.status, text).toBe(200);
    expect(JSON.parse(text).name).toBe('priced');
    expect(paid.headers.get('x-robots-tag')).toBe('noindex');
  }
  expect(await (await owner(`${host.url}/site/paid`)).json()).toMatchObject({ name: 'one' });
});

test('settings change under a preview, and only code and files are its own', async () => {
  const preview = await upload('settings');
  expect((await askPreview(preview)).secret).toBe('secret one');
  const put = (body: object) => owner(`${host.url}/_admin/code/site`, jsonPut(body));
  expect((await put({ secretChanges: { TOKEN: 'secret two' }, vars: { MODE: 'mode two' } })).status).toBe(200);
  const changed = { secret: 'secret two', mode: 'mode two' };
  await until(async () => (await ask(at(preview))).secret === 'secret two' || undefined);
  expect(await ask(at(preview))).toMatchObject({ ...changed, name: 'settings' });
  expect(await live()).toMatchObject({ ...changed, name: 'one' });
  for (const body of [
    { code: code('x'), preview: true, vars: {} },
    { code: code('x'), preview: true, secretChanges: { TOKEN: 'x' } },
    { code: code('x'), preview: true, paidRoutes: [] },
    { preview: true },
  ])
    expect((await put(body)).status, JSON.stringify(body)).toBe(400);
  // What does not load is no version.
  const before = (await versions()).versions.length;
  expect((await put({ code: 'export default {', preview: true })).status).toBe(422);
  expect((await versions()).versions.length).toBe(before);
});

test('crons run what is live, while a preview runs', async () => {
  const preview = await upload('timed');
  expect((await askPreview(preview)).name).toBe('timed');
  await host.advance(60_000);
  const lines = async () => {
    const { entries } = (await (await owner(`${host.url}/_admin/site/logs?limit=1000`)).json()) as {
      entries: { text: string }[];
    };
    return entries.map(({ text }) => text).filter((text) => text.startsWith('cron of'));
  };
  await until(async () => (await lines()).length > 0 || undefined);
  await ask(at(preview));
  expect(new Set(await lines())).toEqual(new Set(['cron of one']));
});

test('both have their data and their way out again when the processes that serve those were killed', async () => {
  const preview = await upload('robust');
  await settled(at(preview));
  const both = () => Promise.all([live(), ask(at(preview))]);
  for (const [program, way] of [
    ['store-process', '/put?value=after+the+kill'],
    ['egress', '/out'],
  ] as const) {
    const killed = processTree([host.pid]).filter((pid) => commandOf(pid).includes(`${program}/main.ts`));
    expect(killed).toHaveLength(1);
    for (const pid of killed) process.kill(pid, 'SIGKILL');
    await until(
      async () => ((await fetch(at(preview, way))).ok && (await fetch(`${host.url}/site${way}`)).ok) || undefined,
    );
  }
  expect(await both()).toMatchObject([
    { name: 'one', key: 'after the kill' },
    { name: 'robust', key: 'after the kill' },
  ]);
  await live('/put?value=of+the+preview');
});

test('a preview that hangs is ended, and the live version does not notice', async () => {
  const preview = await upload('hanging');
  await settled(at(preview));
  const hanging = fetch(at(preview, '/hang'));
  const answers: number[] = [];
  let over = false;
  void hanging.finally(() => {
    over = true;
  });
  while (!over) {
    answers.push((await fetch(`${host.url}/site/`)).status);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  expect((await hanging).status).toBe(503);
  expect(answers.length).toBeGreaterThan(3);
  expect(new Set(answers)).toEqual(new Set([200]));
});

test('two previews of a slug run at a time; another one takes the place of one that is not used', async () => {
  const previews = [await upload('a'), await upload('b'), await upload('c')] as const;
  const [a, b, c] = previews;
  await settled(at(a));
  await settled(at(b));
  const held = [fetch(at(a, '/slow?ms=8000')), fetch(at(b, '/slow?ms=8000'))];
  const refused = await fetch(at(c));
  expect([refused.status, await refused.text()]).toEqual([503, expect.stringContaining('overloaded')]);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await live()).name).toBe('one');
  for (const answer of await Promise.all(held)) expect(answer.status).toBe(200);
  await settled(at(c));
  expect((await ask(at(c))).name).toBe('c');
  // All at once, of all versions: what is not served is refused, and nothing breaks.
  const all = (await versions()).versions.map(({ preview }) => preview);
  const crowd = await Promise.all([...all, ...all].map(async (one) => (await fetch(at(one))).status));
  expect(crowd.every((status) => status === 200 || status === 503)).toBe(true);
  expect((await live()).name).toBe('one');
  expect((await live('/count')) > 20).toBe(true);
});

test('a preview is there again after a kill, and is made live', async () => {
  const preview = await upload('next');
  await host.kill();
  host = await host.restart();
  owner = mppFetch(host.network, 0);
  // The preview first: it makes the stores that the live one then shares.
  expect(await ask(at(preview))).toMatchObject({ name: 'next', key: 'of the preview' });
  expect((await live()).name).toBe('one');
  const promoted = await owner(`${host.url}/_admin/site/rollback`, jsonPost({ version: preview.version }));
  expect(promoted.status).toBe(200);
  expect((await live()).name).toBe('next');
  const { current, versions: all } = await versions();
  expect(all[0]).toMatchObject({ version: current, note: `promote ${preview.version}` });
  expect((await ask(at(preview))).name).toBe('next');
});

test('Durable Objects of a preview are its own', async () => {
  const counter = (name: string) => `
import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async next() {
    const n = ((await this.ctx.storage.get('n')) ?? 0) + 1;
    await this.ctx.storage.put('n', n);
    return n;
  }
}
export default { async fetch(request, env) {
  return Response.json({ name: '${name}', n: await env.COUNTS.get(env.COUNTS.idFromName('one')).next() });
} };`;
  await deploy(owner, host.url, {
    slug: 'objects',
    code: counter('one'),
    bindings: { durableObjects: { COUNTS: { class: 'Counter' } } },
  });
  const count = () => ask(`${host.url}/objects/`);
  await count();
  const answer = await owner(`${host.url}/_admin/code/objects`, jsonPut({ code: counter('two'), preview: true }));
  const { preview } = (await answer.json()) as { preview: Preview };
  const previewed = () => ask(at(preview, '/', 'objects'));
  expect(await Promise.all([previewed(), count()])).toEqual([
    { name: 'two', n: 1 },
    { name: 'one', n: 2 },
  ]);
  expect((await previewed()).n).toBe(2);
  // The live one is replaced while the preview runs, and has its objects.
  const promoted = await owner(`${host.url}/_admin/objects/rollback`, jsonPost({ version: preview.version }));
  expect(promoted.status).toBe(200);
  expect(await count()).toEqual({ name: 'two', n: 3 });
});

test('objects with SQL, queues and workflows of a preview work, are its own, and end with it', async () => {
  const code = (name: string) => `
import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Book extends DurableObject {
  constructor(ctx, env) { super(ctx, env); ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS notes (text TEXT)'); }
  note(text) { this.ctx.storage.sql.exec('INSERT INTO notes VALUES (?)', text); }
  read() { return this.ctx.storage.sql.exec('SELECT text FROM notes ORDER BY text').toArray().map(({ text }) => text); }
}
export class Flow extends WorkflowEntrypoint {
  async run(event, step) { await step.do('note', () => this.env.BOOKS.getByName('book').note('flow of ${name}')); }
}
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    const book = env.BOOKS.getByName('book');
    if (pathname.endsWith('/begin')) {
      await book.note('begun by ${name}');
      await env.JOBS.send('job');
      await env.FLOWS.create({ id: 'flow' });
    }
    return Response.json(await book.read());
  },
  async queue(batch, env) { await env.BOOKS.getByName('book').note('queue of ${name}'); },
};`;
  const all = (name: string) => [`begun by ${name}`, `flow of ${name}`, `queue of ${name}`];
  await deploy(owner, host.url, {
    slug: 'work',
    code: code('one'),
    bindings: {
      durableObjects: { BOOKS: { class: 'Book' } },
      queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0 } } },
      workflows: { FLOWS: { class: 'Flow', name: 'flow' } },
    },
  });
  const answer = await owner(`${host.url}/_admin/code/work`, jsonPut({ code: code('two'), preview: true }));
  const { preview } = (await answer.json()) as { preview: Preview };
  const previewed = (pathname: string) => ask(at(preview, pathname, 'work'));
  const live = (pathname: string) => ask(`${host.url}/work${pathname}`);
  await Promise.all([previewed('/begin'), live('/begin')]);
  await expect.poll(() => previewed('/')).toEqual(all('two'));
  await expect.poll(() => live('/')).toEqual(all('one'));
  const files = () => readdirSync(host.data, { recursive: true }).map(String);
  const kept = () => files().filter((name) => /objectCopies\/.*sqlite/.test(name));
  expect(kept()).not.toEqual([]);
  // A change of settings ends it.
  const put = await owner(`${host.url}/_admin/code/work`, jsonPut({ vars: { A: 'b' } }));
  expect(put.status, await put.text()).toBe(200);
  await expect.poll(kept).toEqual([]);
  expect(await previewed('/')).toEqual([]);
  expect(await live('/')).toEqual(all('one'));
});

test('the command uploads, lists and promotes previews of a project with static files, by a deploy key, too', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-previews-'));
  try {
    const command = async (args: string[], env: Record<string, string> = {}) => {
      const done = await turnpike([...args, '--host-url', host.url, '--data', host.data], { cwd: folder, env });
      expect(done.code, done.stderr).toBe(0);
      return done.stdout.trim();
    };
    const here = (url: string) => url.replace(/^http:\/\/localhost:\d+/, host.url);
    const page = async (url: string) => (await fetch(here(url))).text();
    const write = (text: string) => writeFile(path.join(folder, 'public', 'index.html'), text);
    await mkdir(path.join(folder, 'public'));
    await writeFile(path.join(folder, 'turnpike.json'), '{"slug":"pages","assets":{"directory":"public"}}');
    await write('first');
    const url = await command(['deploy', '--yes']);
    await write('second');
    const second = await command(['deploy', '--preview']);
    await write('third');
    const key = await command(['keys', 'create', '--actions', 'update,rollback', '--until', '1d']);
    const third = await command(['update', '--preview'], { TURNPIKE_DEPLOY_KEY: key });
    expect(await Promise.all([url, second, third].map(page))).toEqual(['first', 'second', 'third']);
    const listed = await command(['versions'], { TURNPIKE_DEPLOY_KEY: key });
    expect(listed.split('\n')).toHaveLength(3);
    expect(listed).toContain(/\/([0-9a-f]{12})--/.exec(third)?.[1]);
    await command(['promote', 'pages', '3'], { TURNPIKE_DEPLOY_KEY: key });
    expect(await Promise.all([url, second].map(page))).toEqual(['third', 'second']);
    // Nothing is left of them with the slug.
    await command(['delete', 'pages', '--yes']);
    expect((await fetch(here(url))).status).toBe(410);
    expect((await fetch(here(second))).status).toBe(404);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('a suspended slug has no previews, and its keys change nothing', async () => {
  const { versions: all } = await versions();
  const preview = all[1]?.preview as Preview;
  await settled(at(preview));
  const until = new Date(Date.now() + 86_400_000).toISOString();
  const made = await owner(
    `${host.url}/_admin/keys`,
    jsonPost({ slugs: ['site'], actions: ['update', 'rollback'], until }),
  );
  const headers = { authorization: `Bearer ${((await made.json()) as { key: string }).key}` };
  expect((await host.operator('POST', '/tenants/site/suspend', { reason: 'a look at it' })).status).toBe(200);
  expect((await fetch(at(preview))).status).toBe(404);
  const uploaded = await fetch(`${host.url}/_admin/code/site`, {
    ...jsonPut({ code: code('no'), preview: true }),
    headers: { ...headers, 'content-type': 'application/json' },
  });
  expect([uploaded.status, await uploaded.text()]).toEqual([403, expect.stringContaining('suspended')]);
  const listed = (await (await fetch(`${host.url}/_admin/site/versions`, { headers })).json()) as {
    versions: { preview: null }[];
  };
  expect(listed.versions.every((one) => one.preview === null)).toBe(true);
  expect((await host.operator('POST', '/tenants/site/resume')).status).toBe(200);
  await settled(at(preview));
});

test('an expired slug has no previews until it is renewed', async () => {
  const { versions: all } = await versions();
  const preview = all[1]?.preview as Preview;
  await settled(at(preview));
  await host.advance(31 * 86_400_000);
  await until(async () => (await fetch(`${host.url}/site/`)).status === 402 || undefined);
  expect((await fetch(at(preview))).status).toBe(404);
  expect((await owner(`${host.url}/_admin/renew/site`, { method: 'POST' })).status).toBe(200);
  expect((await fetch(at(preview))).status).toBe(200);
});
