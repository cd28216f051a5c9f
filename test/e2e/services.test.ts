/** Deployments that call each other: requests and methods, who may, and what ends it. */

import { readFileSync, readlinkSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { expectTime } from '../times.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const DAY_MS = 86_400_000;
const CALLEE = `
import { RpcTarget, WorkerEntrypoint } from 'cloudflare:workers';
let slow = 0;
class Counter extends RpcTarget { #n = 0; increase(by) { return (this.#n += by); } }
export default class extends WorkerEntrypoint {
  async fetch(request) {
    if (request.headers.get('upgrade')) {
      const [theirs, ours] = Object.values(new WebSocketPair());
      ours.accept();
      ours.addEventListener('message', ({ data }) => ours.send('echo ' + data));
      return new Response(null, { status: 101, webSocket: theirs });
    }
    const url = new URL(request.url);
    if (url.pathname === '/slow') { slow++; await scheduler.wait(Number(url.searchParams.get('ms'))); return new Response(VERSION); }
    if (url.pathname === '/error') return new Response('teapot', { status: 418, headers: { 'x-why': 'tea' } });
    const told = ['cf-connecting-ip', 'x-payer', 'x-own'].map((name) => request.headers.get(name));
    return Response.json([request.method, request.url, await request.text(), told]);
  }
  version() { return VERSION; }
  /** Slow calls that this instance has begun. */
  slowCalls() { return slow; }
  add(a, b) { return a + b; }
  multiplier(a) { return (b) => a * b; }
  counter() { return new Counter(); }
  async callback(f) { return (await f(2)) + 1; }
  stream() { return new Response('a'.repeat(300_000)).body; }
  async size(stream) { return (await new Response(stream).arrayBuffer()).byteLength; }
  fail() { throw new TypeError('too bad'); }
  async slow(ms) { slow++; await scheduler.wait(ms); return VERSION; }
  scheduled() { return 'not an event'; }
}
export class Admin extends WorkerEntrypoint { secret() { return 'admin of ' + VERSION; } }
export const plain = { fetch: () => new Response('plain object') };
`;
const callee = (version: string) => `const VERSION = '${version}';${CALLEE}`;
const CALLER = `
import { WorkerEntrypoint } from 'cloudflare:workers';
export class Own extends WorkerEntrypoint { hello(name) { return 'hello ' + name + ' ' + JSON.stringify(this.ctx.props); } }
const acts = {
  fetch: async ({ B }, url) => (await B.fetch('https://any.example/path?q=1', { method: 'POST', body: 'body', headers: { 'x-own': 'mine', 'x-payer': '0x1', 'cf-connecting-ip': '203.0.113.9' } })).json(),
  error: async ({ B }) => { const r = await B.fetch('https://b/error'); return [r.status, r.headers.get('x-why'), await r.text()]; },
  add: ({ B }) => B.add(1, 2),
  function: async ({ B }) => { using f = await B.multiplier(5); return f(3); },
  pipelined: ({ B }) => B.counter().increase(4),
  callback: ({ B }) => B.callback(async (x) => x * 10),
  stream: async ({ B }) => (await new Response(await B.stream()).text()).length,
  upload: ({ B }) => B.size(new Response('b'.repeat(400_000)).body),
  fail: ({ B }) => B.fail(),
  missing: ({ B }) => B.nothing(),
  named: ({ ADMIN }) => ADMIN.secret(),
  plain: async ({ PLAIN }) => (await PLAIN.fetch('https://p/')).text(),
  own: ({ OWN }) => OWN.hello('me'),
  version: ({ B }) => B.version(),
  slowCalls: ({ B }) => B.slowCalls(),
  slow: ({ B }, url) => B.slow(Number(url.searchParams.get('ms'))),
  slowFetch: async ({ B }, url) => (await B.fetch('https://b/slow' + url.search)).text(),
  many: async ({ B }, url) => (await Promise.allSettled(Array.from({ length: Number(url.searchParams.get('n')) }, () => B.fetch('https://b/slow?ms=2000').then((r) => r.status)))).map(({ value }) => value),
  connect: async ({ B }, url) => { const socket = B.connect(url.searchParams.get('to') ?? 'any:1'); await socket.opened; return 'open'; },
  passed: async ({ B }) => B.callback(B),
  socket: async ({ B }) => {
    const { webSocket } = await B.fetch('https://b/', { headers: { upgrade: 'websocket' } });
    webSocket.accept();
    const heard = new Promise((resolve) => webSocket.addEventListener('message', ({ data }) => resolve(data)));
    webSocket.send('hi');
    const answer = await heard;
    webSocket.close();
    return answer;
  },
};
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    try {
      return Response.json(await acts[url.pathname.slice(1)](env, url));
    } catch (error) {
      return Response.json({ error: error.name + ': ' + error.message }, { status: 500 });
    }
  },
};
`;

let host: TestHost;
let owner: Fetch;
let stranger: Fetch;
let strangersAddress = '';
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error', 'slugs-grace-days': '7', 'runtime-idle-ms': '1000' } });
  owner = mppFetch(host.network, 0);
  stranger = mppFetch(host.network, 1);
  strangersAddress = host.network.wallets[1]?.address.toLowerCase() ?? '';
  await deploy(owner, host.url, { slug: 'callee', code: callee('one') });
  const services = {
    B: { service: 'callee' },
    ADMIN: { service: 'callee', entrypoint: 'Admin' },
    PLAIN: { service: 'callee', entrypoint: 'plain' },
    OWN: { entrypoint: 'Own', props: { who: 'props' } },
  };
  await deploy(owner, host.url, { slug: 'caller', code: CALLER, bindings: { services } });
});
afterAll(async () => {
  await host?.stop();
});

// biome-ignore lint/suspicious/noExplicitAny: answers of many forms
const ask = async (act: string, slug = 'caller'): Promise<any> => (await fetch(`${host.url}/${slug}/${act}`)).json();
const bind = (who: Fetch, slug: string, services: object, more: object = {}) =>
  who(`${host.url}/_admin/code/${slug}`, jsonPut({ bindings: { services }, ...more }));
/** Processes of workerd in the sandbox of a slug. */
const instancesOf = (slug: string) => {
  const folder = readlinkSync(`${host.data}/run/${slug}`);
  return processTree([host.pid]).filter(
    (pid) => /workerd serve/.test(commandOf(pid)) && mountsOf(pid).includes(folder),
  );
};
/** Of a process that may end meanwhile, as what an update replaced does. */
const mountsOf = (pid: number) => {
  try {
    return readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
  } catch {
    return '';
  }
};
const kill = (pid: number) => {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
};
const OPEN = () => ({ OPEN: { open: [`${strangersAddress}/guest`] } });

it('requests and methods: everything that a service binding can do', async () => {
  expect(await ask('fetch')).toEqual(['POST', 'https://any.example/path?q=1', 'body', ['203.0.113.9', '0x1', 'mine']]);
  expect(await ask('error')).toEqual([418, 'tea', 'teapot']);
  const answers = ['add', 'function', 'pipelined', 'callback', 'stream', 'upload', 'named', 'plain', 'own', 'socket'];
  expect(await Promise.all(answers.map((act) => ask(act)))).toEqual([
    ...[3, 15, 4, 21, 300_000, 400_000, 'admin of one', 'plain object'],
    ...['hello me {"who":"props"}', 'echo hi'],
  ]);
  expect(await ask('fail')).toEqual({ error: 'TypeError: too bad' });
  expect((await ask('missing')).error).toMatch(/does not implement the method "nothing"/);
});

it('nothing but the entrypoint: no raw connection, no other deployment’s binding handed on', async () => {
  expect((await ask('connect')).error).toMatch(/cannot connect/);
  expect((await ask('passed')).error).toMatch(/can't be passed|DataClone/);
});

it('calls are counted as requests of the callee', async () => {
  const requests = async () => {
    const usage = await (await owner(`${host.url}/_admin/callee/usage`)).json().catch(() => undefined);
    return JSON.stringify(usage);
  };
  const before = await requests();
  await ask('add');
  expect(await requests()).not.toBe(before);
});

it.each([
  [{ B: { service: 'nobody-there' } }, /nobody-there, which is not deployed/],
  [{ B: { service: 'callee', entrypoint: 'Nope' } }, /Nope, which the code of callee does not export/],
  [{ B: { service: 'callee' } }, /belongs to another owner, who has not opened it to refused/],
  [{ B: { service: 'refused' } }, /is refused itself/],
  [{ B: { service: 'callee', props: {} } }, /is for entrypoints of the deployment itself/],
  [{ B: { entrypoint: 'Missing' } }, /exports no entrypoint Missing/],
])('%j is refused before anything is paid', async (services, told) => {
  const who = JSON.stringify(services).includes('Nope') ? owner : stranger;
  const answer = await who(
    `${host.url}/_admin/deploy`,
    jsonPost({ slug: 'refused', code: CALLER, bindings: { services } }),
  );
  expect([400, 422]).toContain(answer.status);
  expect(await answer.text()).toMatch(told);
  expect((await fetch(`${host.url}/refused/`)).status).toBe(404);
});

it('an instance with calls under way is in use; one without ends, and is started by the next call', async () => {
  expect(await Promise.all([ask('slow?ms=2500'), ask('slowFetch?ms=2500')])).toEqual(['one', 'one']);
  const state = async () => {
    const metadata = (await (await fetch(`${host.url}/_admin/get/callee`)).json()) as { runtime?: { state: string } };
    return metadata.runtime?.state;
  };
  await until(async () => (await state()) === 'cold' || undefined);
  expect(await Promise.all([ask('add'), ask('error'), ask('add')])).toEqual([3, [418, 'tea', 'teapot'], 3]);
});

it('an update switches, and cuts off no call', async () => {
  const calls = [ask('slow?ms=1500'), ask('slowFetch?ms=1500')];
  await until(async () => (await ask('version')) === 'one' || undefined);
  const updated = owner(`${host.url}/_admin/code/callee`, jsonPut({ code: callee('two') }));
  const versions = new Set<string>();
  await until(async () => {
    const version = await ask('slowFetch?ms=0');
    versions.add(version);
    return version === 'two' || undefined;
  });
  expect([...versions]).toEqual(['one', 'two']);
  expect((await updated).status).toBe(200);
  expect(await Promise.all(calls)).toEqual(['one', 'one']);
  await until(async () => (await ask('version')) === 'two' || undefined);
  expect(await ask('named')).toBe('admin of two');
});

it('a callee that is killed: calls under way end with an error at once, those after it are answered', async () => {
  // Kills count as crashes: after some in a row it is started again with a pause.
  const version = () => until(async () => /^(?:one|two)$/.exec(await ask('version'))?.[0]);
  for (let round = 0; round < 3; round++) {
    await version();
    const begun = await ask('slowCalls');
    const acts = ['slow?ms=60000', 'slowFetch?ms=60000', 'many?n=5'];
    const calls = acts.flatMap((act) => [ask(act), ask(act), ask(act)]);
    await until(async () => (await ask('slowCalls')) === begun + 3 + 3 + 3 * 5 || undefined);
    const from = performance.now();
    for (const pid of instancesOf('callee')) kill(pid);
    const of = (at: number) => Promise.all(calls.slice(at, at + 3));
    for (const answer of await of(0)) expect(answer.error).toBeTruthy();
    // A request is answered with what the host says of it, as where the callee had been called from outside.
    for (const answer of await of(3)) expect(answer.error ?? answer).toMatch(/"code":"\w+"|Error/);
    // What had been answered before it ended is no error.
    for (const statuses of await of(6)) expect(statuses).toHaveLength(5);
    expectTime('calls of a callee that was killed', performance.now() - from, 30_000);
  }
  await version();
  // Nobody's place is kept: as many as are allowed at once go through.
  expect(new Set(await ask('many?n=100'))).toEqual(new Set([200]));
});

it('circles and floods end at a limit that is named', async () => {
  const code = `import { WorkerEntrypoint } from 'cloudflare:workers';
export default class extends WorkerEntrypoint {
  go() { return this.env.NEXT.go(); }
  async fetch(request) {
    try {
      return Response.json(request.url.endsWith('/rpc') ? await this.go() : await (await this.env.NEXT.fetch(request)).json());
    } catch (error) { return Response.json({ detail: error.message }); }
  }
}`;
  await deploy(owner, host.url, { slug: 'ping', code });
  await deploy(owner, host.url, { slug: 'pong', code, bindings: { services: { NEXT: { service: 'ping' } } } });
  expect((await bind(owner, 'ping', { NEXT: { service: 'pong' } })).status).toBe(200);
  expect((await ask('', 'ping')).detail).toMatch(/Too many requests to p[io]ng are under way; do deployments call/);
  expect((await ask('rpc', 'ping')).detail).toMatch(/Network connection lost|Too many calls/);
  const logs = await (await owner(`${host.url}/_admin/ping/logs?limit=1000`)).text();
  expect(logs + (await (await owner(`${host.url}/_admin/pong/logs?limit=1000`)).text())).toMatch(
    /calls under way at once; do deployments/,
  );
  const statuses: number[] = await ask('many?n=140');
  expect(statuses.filter((status) => status === 200)).toHaveLength(128);
  expect(statuses.filter((status) => status === 503)).toHaveLength(12);
  expect(await ask('add')).toBe(3);
});

describe('another owner', () => {
  it('calls what was opened to it, with no word of the host’s; and nothing more, once that is taken back', async () => {
    expect((await bind(owner, 'callee', OPEN())).status).toBe(200);
    await deploy(stranger, host.url, {
      slug: 'guest',
      code: CALLER,
      bindings: { services: { B: { service: 'callee' } } },
    });
    expect(await ask('add', 'guest')).toBe(3);
    expect(await ask('fetch', 'guest')).toEqual(expect.arrayContaining([[null, null, 'mine']]));
    const admin = await bind(stranger, 'guest', { B: { service: 'callee', entrypoint: 'Admin' } });
    expect([admin.status, await admin.text()]).toEqual([400, expect.stringContaining('has not opened Admin to guest')]);
    const slow = ask('slow?ms=20000', 'guest');
    await until(async () => (await ask('add', 'guest')) === 3 || undefined);
    expect((await bind(owner, 'callee', { OTHERS: { open: [`${strangersAddress}/other`] } })).status).toBe(200);
    expect((await ask('error', 'guest'))[0]).toBe(403);
    expect((await slow).error).toBeDefined();
    expect((await ask('add', 'guest')).error).toMatch(/belongs to another owner, who has not opened it to guest/);
    const own = await bind(stranger, 'guest', { B: { service: 'callee' } });
    expect(own.status).toBe(400);
  });
});

it('one that is suspended, expired or gone refuses by name', async () => {
  await host.operator('POST', '/tenants/callee/suspend', { reason: 'a test' });
  expect((await ask('error'))[0]).toBe(403);
  expect((await ask('add')).error).toMatch(/callee is suspended by the operator/);
  await host.operator('POST', '/tenants/callee/resume', {});
  expect(await ask('add')).toBe(3);
  await host.operator('POST', '/tenants/caller/extend', { days: 60 });
  await host.advance(31 * DAY_MS);
  expect((await ask('error'))[0]).toBe(410);
  expect((await ask('add')).error).toMatch(/callee has expired/);
  expect((await owner(`${host.url}/_admin/callee`, { method: 'DELETE' })).status).toBe(200);
  expect((await ask('error'))[0]).toBe(410);
  expect((await ask('add')).error).toMatch(/callee was decommissioned/);
});
