/** What the operator may do to a tenant, on the real host: what its callers, payers and owner see of it. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { commandOf, processTree } from '../bench/processes.ts';
import {
  account,
  balances,
  deploy,
  type Fetch,
  jsonPost,
  jsonPut,
  mppFetch,
  mppSessionFetch,
  x402Fetch,
} from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const DAY = 86_400_000;
const FILE = Buffer.alloc(50_000, 'x');
const HASH = createHash('sha256').update(FILE).digest('hex');
const REASON = 'phishing: see ticket 12';
const HANDLER = `let runs = 0;
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (request.headers.get('upgrade') === 'websocket') {
      const [client, server] = Object.values(new WebSocketPair());
      server.accept();
      server.send('open');
      return new Response(null, { status: 101, webSocket: client });
    }
    if (pathname === '/drip' || pathname === '/tap') {
      const { readable, writable } = new TransformStream();
      const writer = writable.getWriter();
      (async () => { for (;;) { await writer.write(new TextEncoder().encode('.')); await new Promise((go) => setTimeout(go, 20)); } })().catch(() => {});
      return new Response(readable);
    }
    if (pathname === '/slow') { await env.STORE.put('slow', 'begun'); await new Promise((go) => setTimeout(go, 60_000)); }
    if (pathname === '/runs') return new Response((await env.STORE.get('runs')) ?? '0');
    if (pathname === '/shout') console.log('shouted \\u001b[2J');
    if (pathname === '/body') return new Response(String((await request.arrayBuffer()).byteLength));
    if (pathname === '/hoard') { const kept = []; for (let i = 0; i < 100; i++) kept.push(new Uint8Array(1048576).fill(i)); globalThis.kept = kept; return new Response('hoarded'); }
    if (pathname === '/put') { await env.STORE.put('large', 'x'.repeat(Number(new URL(request.url).searchParams.get('bytes')))); return new Response('kept'); }
    return new Response('served ' + (env.NAME ?? ''));
  },
  async scheduled(event, env) { await env.STORE.put('runs', String(++runs)); },
};`;

let host: TestHost;
let owner: Fetch;
let payer: Fetch;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-operator-'));
  host = await startHost({ flags: { 'trusted-proxies': '["127.0.0.1/32"]' } });
  clients();
});
afterAll(async () => {
  await host?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function clients(): void {
  owner = mppFetch(host.network, 0);
  payer = mppFetch(host.network, 1);
}

/** The chain has another port then. */
async function killAndRestart(): Promise<void> {
  await host.kill();
  host = await host.restart();
  clients();
}

const tenant = (slug: string, more: object = {}) =>
  deploy(owner, host.url, {
    slug,
    code: HANDLER,
    bindings: { kv: true },
    secrets: { NAME: 'Ada' },
    paidRoutes: [
      { method: 'GET', path: '/paid', price: '0.05' },
      { method: 'GET', path: '/slow', price: '0.05' },
      { method: 'GET', path: '/tap', price: '0.05' },
      { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
    ],
    ...more,
  });
const act = async (method: string, pathName: string, body?: unknown, status = 200) => {
  const answer = await host.operator(method, pathName, body);
  expect(answer.text && `${answer.status} ${answer.text}`).toMatch(new RegExp(`^${status} `));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any document
  return answer.json as any;
};
const suspend = (slug: string) => act('POST', `/tenants/${slug}/suspend`, { reason: REASON });
const resume = (slug: string) => act('POST', `/tenants/${slug}/resume`);
/** Status and code of a call. */
const told = async (answer: Response | Promise<Response>) => {
  const response = await answer;
  const text = await response.text();
  const isProblem = response.headers.get('content-type') === 'application/problem+json';
  return isProblem ? `${response.status} ${JSON.parse(text).code}` : `${response.status} ${text}`;
};
const metadata = async (slug: string) => (await (await fetch(`${host.url}/_admin/get/${slug}`)).json()) as never;
const command = (...args: string[]) => turnpike(['--data', host.data, ...args], { cwd: folder });

describe('a suspended tenant', () => {
  beforeAll(async () => {
    await tenant('bad', { crons: ['* * * * *'] });
    expect(await told(fetch(`${host.url}/bad/`))).toBe('200 served Ada');
    await suspend('bad');
  });

  it.each([
    ['a free route', '/bad/', {}],
    ['a POST', '/bad/any', { method: 'POST', body: 'x'.repeat(100_000) }],
    ['a paid route, without asking for a payment', '/bad/paid', {}],
    ['its description', '/bad/openapi.json', {}],
  ])('answers %s with 403 and the reason', async (_, target, init) => {
    const response = await fetch(`${host.url}${target}`, init);
    expect(response.headers.get('www-authenticate')).toBeNull();
    expect(await response.json()).toMatchObject({
      status: 403,
      code: 'suspended',
      detail: `bad is suspended by the operator of this host: ${REASON}`,
    });
  });

  it.each(['localhost', 'a.localhost'])('answers at its subdomain and nothing else with 403: %s', async (name) => {
    const headers = {
      'x-forwarded-host': name === 'localhost' ? `bad.localhost:${host.port}` : `${name}:${host.port}`,
    };
    expect((await fetch(`${host.url}/`, { headers })).status).toBe(name === 'localhost' ? 403 : 404);
  });

  it('takes no payment from a stock client', async () => {
    const { address } = account(host.network, 1);
    const before = await balances(host.network, address);
    expect(await told(payer(`${host.url}/bad/paid`))).toBe('403 suspended');
    expect(await told(x402Fetch(host.network, 1)(`${host.url}/bad/paid`))).toBe('403 suspended');
    expect(await balances(host.network, address)).toEqual(before);
  });

  it('is told to everybody by its metadata', async () => {
    const since = expect.stringMatching(/^20/);
    expect(await metadata('bad')).toMatchObject({ state: 'active', suspended: { since, reason: REASON } });
    expect(await metadata('bad')).not.toHaveProperty('note');
  });

  it.each([
    ['read data', 'GET', '/_admin/bad/data/STORE', undefined, 200],
    ['read the log', 'GET', '/_admin/bad/logs', undefined, 200],
    ['read usage', 'GET', '/_admin/bad/usage', undefined, 200],
    ['list versions', 'GET', '/_admin/bad/versions', undefined, 200],
    ['list domains', 'GET', '/_admin/bad/domains', undefined, 200],
    ['renew', 'POST', '/_admin/renew/bad', undefined, 200],
    ['update', 'PUT', '/_admin/code/bad', { code: HANDLER }, 403],
    ['set secrets', 'PUT', '/_admin/code/bad', { secretChanges: { NAME: 'Eve' } }, 403],
    ['roll back', 'POST', '/_admin/bad/rollback', { version: 1 }, 403],
    ['attach a domain', 'POST', '/_admin/bad/domains', { domain: 'shop.example.com' }, 403],
    ['send files', 'PUT', `/_admin/bad/assets/${'a'.repeat(64)}`, { any: 1 }, 403],
  ])('lets its owner %s, or not: %s %s', async (_, method, target, body, status) => {
    const response = await owner(`${host.url}${target}`, { ...(body ? jsonPost(body) : {}), method });
    expect(response.status).toBe(status);
    if (status === 403) expect(await response.json()).toMatchObject({ code: 'suspended' });
  });

  it('runs none of its code for that: what gave out the data is gone from its callers', async () => {
    const entries = (await act('GET', '/tenants/bad/logs')).entries as { event: string; text: string }[];
    const events = entries.map(({ event, text }) => `${event} ${text}`).join('\n');
    expect(events).toContain(`suspended by the operator: ${REASON}`);
    expect(events).toMatch(/started revision .* suspended/);
    expect(await told(fetch(`${host.url}/bad/`))).toBe('403 suspended');
  });

  it('does not run its crons', async () => {
    await host.advance(5 * 60_000);
    // Runs of others are made meanwhile.
    await tenant('punctual', { crons: ['* * * * *'] });
    await host.advance(5 * 60_000);
    await until(async () => (await (await fetch(`${host.url}/punctual/runs`)).text()) !== '0' || undefined);
    const { runs } = (await (await owner(`${host.url}/_admin/bad/crons`)).json()) as { runs: unknown[] };
    expect(runs).toEqual([]);
  });

  it('is suspended still after a kill of the host, and expired on top of it', async () => {
    await killAndRestart();
    expect(await told(fetch(`${host.url}/bad/`))).toBe('403 suspended');
    await host.advance(61 * DAY);
    expect(await metadata('bad')).toMatchObject({ state: 'expired', suspended: { reason: REASON } });
    expect(await told(fetch(`${host.url}/bad/paid`))).toBe('403 suspended');
  });

  it('is expired when it is resumed, and served when it is extended', async () => {
    await resume('bad');
    expect((await fetch(`${host.url}/bad/`)).status).toBe(402);
    const { expiresAt } = await act('POST', '/tenants/bad/extend', { days: 40 });
    const { now } = await act('GET', '/clock');
    expect(Math.round((Date.parse(expiresAt) - Date.parse(now)) / DAY)).toBe(40);
    expect(await told(fetch(`${host.url}/bad/`))).toBe('200 served Ada');
    expect(await told(owner(`${host.url}/bad/paid`))).toBe('200 served Ada');
    expect(await told(owner(`${host.url}/_admin/code/bad`, jsonPut({ secretChanges: { NAME: 'Eve' } })))).toMatch(
      /^200/,
    );
    expect(await told(fetch(`${host.url}/bad/`))).toBe('200 served Eve');
  });

  it('is resumed at once where its owner looked at its data meanwhile', async () => {
    await suspend('bad');
    expect((await owner(`${host.url}/_admin/bad/data/STORE`)).status).toBe(200);
    await resume('bad');
    expect(await told(fetch(`${host.url}/bad/`))).toBe('200 served Eve');
    await resume('bad');
    expect(await metadata('bad')).not.toHaveProperty('suspended');
  });

  it('ends as the acts of operators who disagree say, whoever comes last', async () => {
    const acts = ['suspend', 'resume', 'suspend', 'resume', 'suspend'];
    await Promise.all(acts.map((what) => host.operator('POST', `/tenants/bad/${what}`, { reason: REASON })));
    const { suspended } = (await metadata('bad')) as { suspended?: object };
    expect(await told(fetch(`${host.url}/bad/`))).toBe(suspended ? '403 suspended' : '200 served Eve');
    await resume('bad');
  });

  it('may be deleted by its owner, and is gone then', async () => {
    await tenant('leaver');
    await suspend('leaver');
    expect((await owner(`${host.url}/_admin/leaver`, { method: 'DELETE' })).status).toBe(200);
    expect(await told(fetch(`${host.url}/leaver/`))).toBe('410 gone');
    expect(await act('POST', '/tenants/leaver/resume', undefined, 410)).toMatchObject({ code: 'gone' });
  });
});

describe('what is under way at a suspension', () => {
  it('ends: sockets and streams', async () => {
    await tenant('busy');
    const socket = new WebSocket(`ws://127.0.0.1:${host.port}/busy/`);
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('message', resolve));
    const stream = await fetch(`${host.url}/busy/drip`);
    const reader = stream.body?.getReader();
    await reader?.read();
    const ended = (async () => {
      for (;;) if ((await reader?.read())?.done) return 'done';
    })().catch(() => 'broken');
    await suspend('busy');
    await closed;
    expect(await ended).toMatch(/done|broken/);
    expect(((await metadata('busy')) as { runtime: { state: string } }).runtime.state).toBe('cold');
  });

  it('owes a payer what its own wallet was paid for a stream that was cut off', async () => {
    await tenant('tapped');
    const { address } = account(host.network, 1);
    const before = await balances(host.network, address);
    const reader = (await payer(`${host.url}/tapped/tap`)).body?.getReader();
    await reader?.read();
    expect((await balances(host.network, address)).mpp).toBe(before.mpp - 50_000n);
    await suspend('tapped');
    await until(async () => (await reader?.read().catch(() => ({ done: true })))?.done || undefined);
    const debts = await until(async () => {
      const { open } = await act('GET', '/payments');
      return open.some(({ kind }: { kind: string }) => kind === 'tenant-debt') ? open : undefined;
    });
    expect(debts).toMatchObject([{ amount: '0.05', to: address.toLowerCase() }]);
    await act('POST', `/payments/open/${debts[0].id}`, { action: 'waive' });
  });

  it('costs a payer nothing whose call did not end', async () => {
    await tenant('halfway');
    const { address } = account(host.network, 1);
    const before = await balances(host.network, address);
    const call = told(payer(`${host.url}/halfway/slow`));
    await until(
      async () => (await owner(`${host.url}/_admin/halfway/data/STORE/value?key=slow`)).status === 200 || undefined,
    );
    await suspend('halfway');
    expect(await call).toMatch(/^[45]\d\d /);
    const { open } = await act('GET', '/payments');
    expect(open).toEqual([]);
    await until(async () => ((await balances(host.network, address)).mpp === before.mpp ? true : undefined));
  });
});

describe('a host that is killed while it suspends', () => {
  it('has the tenant suspended when it is back, and the act on record, without an outcome', async () => {
    await tenant('cut');
    const stream = (await fetch(`${host.url}/cut/drip`)).body?.getReader();
    await stream?.read();
    // It waits for the stream to end.
    const asked = host.operator('POST', '/tenants/cut/suspend', { reason: REASON }).catch(() => 'no answer');
    await until(async () => (await told(fetch(`${host.url}/cut/`))) === '403 suspended' || undefined);
    await killAndRestart();
    expect(await asked).toBe('no answer');
    expect(await told(fetch(`${host.url}/cut/`))).toBe('403 suspended');
    expect((await act('GET', '/audit?slug=cut')).entries).toMatchObject([
      { act: 'POST /tenants/:slug/suspend', reason: REASON, outcome: null },
    ]);
    await resume('cut');
    expect(await told(fetch(`${host.url}/cut/`))).toBe('200 served Ada');
  });
});

describe('what comes at the same time as a suspension', () => {
  it('is served before it or refused after it: calls, cold starts, updates, looks at data', async () => {
    await tenant('raced');
    let suspendedAt = Number.POSITIVE_INFINITY;
    let over = false;
    const late: string[] = [];
    const seen = new Set<string>();
    const callers = Array.from({ length: 8 }, async () => {
      while (!over) {
        const at = performance.now();
        const answer = await told(fetch(`${host.url}/raced/`));
        seen.add(answer);
        if (at > suspendedAt && answer !== '403 suspended') late.push(answer);
      }
    });
    const updates = Array.from({ length: 3 }, (_, at) =>
      told(owner(`${host.url}/_admin/code/raced`, jsonPut({ code: `${HANDLER}\n// ${at}` }))),
    );
    const looks = Array.from({ length: 3 }, async () => (await owner(`${host.url}/_admin/raced/data/STORE`)).status);
    await until(() => seen.size > 0);
    await suspend('raced');
    suspendedAt = performance.now();
    for (const answer of await Promise.all(updates)) expect(answer).toMatch(/^200 |^403 suspended|^503 /);
    for (const status of await Promise.all(looks)) expect([200, 502, 503, 504]).toContain(status);
    expect((await owner(`${host.url}/_admin/raced/data/STORE`)).status).toBe(200);
    over = true;
    await Promise.all(callers);
    expect(late).toEqual([]);
    expect([...seen]).toEqual(expect.arrayContaining(['200 served Ada', '403 suspended']));
    await resume('raced');
    expect(await told(fetch(`${host.url}/raced/`))).toBe('200 served Ada');
  });
});

describe('Durable Objects of a suspended tenant', () => {
  const OBJECTS = `import { DurableObject } from 'cloudflare:workers';
export class Clock extends DurableObject {
  async fetch(request) {
    const seconds = new URL(request.url).searchParams.get('in');
    if (seconds) await this.ctx.storage.setAlarm(Date.now() + seconds * 1000);
    return new Response(String((await this.ctx.storage.get('rang')) ?? 'not yet'));
  }
  alarm() { return this.ctx.storage.put('rang', 'rang'); }
}
export default { fetch: (request, env) => env.CLOCK.getByName('one').fetch(request) };`;

  it('stay, and their alarms wait for the end of the suspension', async () => {
    await deploy(owner, host.url, {
      slug: 'alarmed',
      code: OBJECTS,
      bindings: { kv: true, durableObjects: { CLOCK: { class: 'Clock' } } },
    });
    expect(await told(fetch(`${host.url}/alarmed/?in=3`))).toBe('200 not yet');
    await suspend('alarmed');
    expect((await owner(`${host.url}/_admin/alarmed/data/STORE`)).status).toBe(200);
    await killAndRestart();
    expect(await told(fetch(`${host.url}/alarmed/`))).toBe('403 suspended');
    await resume('alarmed');
    const warm = async () => ((await metadata('alarmed')) as { runtime: { state: string } }).runtime.state === 'warm';
    // Nobody called it: its alarm did.
    await until(async () => (await warm()) || undefined);
    await until(async () => (await told(fetch(`${host.url}/alarmed/`))) === '200 rang' || undefined);
  });
});

describe('limits of one tenant', () => {
  beforeAll(async () => void (await tenant('limited')));
  const limits = (body: object) => act('PUT', '/tenants/limited/limits', body);

  it('are those of the settings until they are set, and again when they are taken back', async () => {
    const before = (await act('GET', '/tenants/limited/limits')).limits;
    expect(before['storage.kvBytes']).toMatchObject({ source: 'setting' });
    const set = (await limits({ 'storage.kvBytes': 1_000, 'runtime.maxBodyBytes': 10 })).limits;
    expect(set['storage.kvBytes']).toEqual({ value: 1_000, source: 'operator' });
    expect(((await metadata('limited')) as { limits: object }).limits).toMatchObject({
      kvBytes: 1_000,
      maxBodyBytes: 10,
    });
    expect((await limits({ 'storage.kvBytes': null })).limits['storage.kvBytes']).toEqual(before['storage.kvBytes']);
    expect((await act('DELETE', '/tenants/limited/limits')).limits).toEqual(before);
  });

  it('hold at once for bodies and storage, and a running instance is replaced without a failed request', async () => {
    expect(await told(fetch(`${host.url}/limited/put?bytes=100`))).toBe('200 kept');
    const stop = new AbortController();
    const statuses = (async () => {
      const seen = new Set<number>();
      while (!stop.signal.aborted) seen.add((await fetch(`${host.url}/limited/`)).status);
      return [...seen];
    })();
    await limits({ 'storage.kvBytes': 1_000, 'runtime.maxBodyBytes': 10 });
    stop.abort();
    expect(await statuses).toEqual([200]);
    expect((await fetch(`${host.url}/limited/put?bytes=5000`)).status).toBe(500);
    expect(await told(fetch(`${host.url}/limited/body`, { method: 'POST', body: 'x'.repeat(11) }))).toBe(
      '413 too_large',
    );
    expect(await told(fetch(`${host.url}/limited/body`, { method: 'POST', body: 'x'.repeat(10) }))).toBe('200 10');
    await act('DELETE', '/tenants/limited/limits');
    expect(await told(fetch(`${host.url}/limited/put?bytes=5000`))).toBe('200 kept');
  });

  it.each([
    [
      'storage.sqlBytes',
      'd1',
      2_000_000,
      '/_admin/sized-d1/data/DB',
      { sql: 'CREATE TABLE t AS SELECT zeroblob(6000000) AS b' },
    ],
    ['storage.assetBytes', 'files', 10_000, `/_admin/sized-files/assets/${HASH}`, undefined],
  ])('hold for %s', async (name, kind, value, target, statement) => {
    await tenant(`sized-${kind}`, { bindings: { kv: true, d1: true } });
    const write = async () => {
      const init = statement
        ? jsonPost({ statements: [{ ...statement, params: [] }] })
        : { method: 'PUT', headers: { 'content-type': 'application/octet-stream' }, body: FILE };
      return (await owner(`${host.url}${target}`, init)).status;
    };
    await act('PUT', `/tenants/sized-${kind}/limits`, { [name]: value });
    expect([400, 507]).toContain(await write());
    await act('DELETE', `/tenants/sized-${kind}/limits`);
    // A database starts again when it has rested, or with the host.
    if (kind === 'd1') await killAndRestart();
    expect(await write()).toBeLessThan(300);
  });

  it('hold for memory from the next instance on, also after a restart', async () => {
    expect(await told(fetch(`${host.url}/limited/hoard`))).toBe('200 hoarded');
    await limits({ 'runtime.memoryBytes': 60_000_000 });
    await killAndRestart();
    expect(await told(fetch(`${host.url}/limited/`))).toBe('200 served Ada');
    await fetch(`${host.url}/limited/hoard`);
    await until(async () => {
      const { runtime } = (await metadata('limited')) as { runtime: { lastExit?: { reason: string } } };
      return runtime.lastExit?.reason === 'memory_exceeded' || undefined;
    });
    await act('DELETE', '/tenants/limited/limits');
  });

  it('are taken back where a running deployment does not start with them, and it goes on', async () => {
    const kept = "globalThis.kept = Array.from({ length: 400_000 }, (_, at) => ({ at, text: 'kept ' + at }));";
    await deploy(owner, host.url, {
      slug: 'heavy',
      code: `${kept}\nexport default { fetch: () => new Response('heavy') };`,
    });
    expect(await told(fetch(`${host.url}/heavy/`))).toBe('200 heavy');
    const answer = await host.operator('PUT', '/tenants/heavy/limits', { 'runtime.heapMb': 12 });
    expect(answer.json).toMatchObject({ status: 503, code: expect.stringMatching(/start_failed|memory_exceeded/) });
    expect((await act('GET', '/tenants/heavy/limits')).limits['runtime.heapMb']).toMatchObject({ source: 'setting' });
    expect(await told(fetch(`${host.url}/heavy/`))).toBe('200 heavy');
  });
});

describe('blocks', () => {
  it('of a wallet: it neither deploys, renews, updates nor pays, and what it has goes on', async () => {
    const wallet = account(host.network, 2).address;
    const theirs = mppFetch(host.network, 2);
    const byX402 = x402Fetch(host.network, 2);
    await deploy(theirs, host.url, { slug: 'theirs', code: HANDLER });
    await tenant('shop');
    await act('POST', '/blocks', { subject: wallet, reason: 'stolen cards' });
    const before = await balances(host.network, wallet);
    const calls: [string, RequestInit][] = [
      ['/_admin/deploy', jsonPost({ slug: 'another', code: 'not even code' })],
      ['/_admin/renew/theirs', { method: 'POST' }],
      ['/shop/paid', {}],
    ];
    for (const [target, init] of calls) {
      expect(await told(theirs(`${host.url}${target}`, init))).toBe('403 blocked');
      expect(await told(byX402(`${host.url}${target}`, init))).toBe('403 blocked');
    }
    const session = await mppSessionFetch(host.network, 2);
    expect(await told(session(`${host.url}/shop/metered`))).toBe('403 blocked');
    expect(await told(theirs(`${host.url}/_admin/code/theirs`, jsonPut({ code: HANDLER })))).toBe('403 blocked');
    expect(await balances(host.network, wallet)).toEqual(before);
    expect(await told(fetch(`${host.url}/theirs/`))).toBe('200 served ');
    expect((await theirs(`${host.url}/_admin/theirs/logs`)).status).toBe(200);
    expect(await told(payer(`${host.url}/shop/paid`))).toBe('200 served Ada');
    expect(await act('GET', '/blocks')).toMatchObject({
      blocks: [{ subject: wallet.toLowerCase(), kind: 'wallet', reason: 'stolen cards' }],
    });
    expect((await host.operator('DELETE', `/blocks/${wallet}`)).status).toBe(204);
    expect(await told(theirs(`${host.url}/shop/paid`))).toBe('200 served Ada');
  });

  it.each([
    ['198.51.100.0/24', '198.51.100.7', '198.51.101.7'],
    ['198.51.100.7', '198.51.100.7', '198.51.100.8'],
    ['2001:db8:5::/48', '2001:db8:5:1::9', '2001:db8:6::9'],
    ['::ffff:203.0.113.0/120', '203.0.113.9', '203.0.112.9'],
  ])('of %s: at once, for everything, by the real address, and until it ends', async (range, inside, outside) => {
    const from = async (ip: string, target = '/shop/') =>
      told(fetch(`${host.url}${target}`, { headers: { 'x-forwarded-for': `10.9.9.9, ${ip}` } }));
    expect(await from(inside)).toBe('200 served Ada');
    const { subject } = await act('POST', '/blocks', { subject: range });
    for (const target of ['/shop/', '/shop/paid', '/', '/_admin/get/shop', '/healthz', '/nothing'])
      expect(await from(inside, target)).toBe('403 blocked');
    expect(await from(outside)).toBe('200 served Ada');
    expect((await host.operator('DELETE', `/blocks/${encodeURIComponent(subject)}`)).status).toBe(204);
    expect(await from(inside)).toBe('200 served Ada');
    expect((await host.operator('DELETE', `/blocks/${encodeURIComponent(subject)}`)).status).toBe(404);
  });

  it('outlive the host, and edges that die', async () => {
    await act('POST', '/blocks', { subject: '198.51.100.0/24' });
    const blocked = () => told(fetch(`${host.url}/shop/`, { headers: { 'x-forwarded-for': '198.51.100.1' } }));
    const edge = () => processTree([host.pid]).find((pid) => /host\/edge\/main/.test(commandOf(pid)));
    const first = edge() ?? 0;
    process.kill(first, 'SIGKILL');
    await until(() => edge() !== undefined && edge() !== first);
    expect(await until(() => blocked().catch(() => undefined))).toBe('403 blocked');
    await killAndRestart();
    expect(await blocked()).toBe('403 blocked');
    await host.operator('DELETE', `/blocks/${encodeURIComponent('198.51.100.0/24')}`);
    expect(await blocked()).toBe('200 served Ada');
  });

  it.each(['', 'x', '10.1', '1.2.3.4/33', '0x12', 'fe80::1%eth0'])(
    'are refused for what is neither: %j',
    async (subject) => {
      expect(await act('POST', '/blocks', { subject }, 400)).toMatchObject({ code: 'invalid_field' });
    },
  );
});

describe('the audit log', () => {
  it('has every act in its order, refused ones too, and no page overlaps', async () => {
    await tenant('watched');
    await suspend('watched');
    await act('POST', '/tenants/watched/extend', { days: 0 }, 400);
    await act('POST', '/tenants/watched/extend', { days: 2 });
    await act('PUT', '/tenants/watched/note', { note: 'asked twice' });
    await resume('watched');
    await act('DELETE', '/tenants/watched');
    await act('POST', '/tenants/watched/resume', undefined, 410);
    const all = (await act('GET', '/audit?slug=watched')).entries as { act: string; outcome: number; id: number }[];
    expect(all.map((entry) => `${entry.act} ${entry.outcome}`).toReversed()).toEqual([
      'POST /tenants/:slug/suspend 200',
      'POST /tenants/:slug/extend 200',
      'PUT /tenants/:slug/note 200',
      'POST /tenants/:slug/resume 200',
      'DELETE /tenants/:slug 200',
      'POST /tenants/:slug/resume 410',
    ]);
    expect(all.at(-1)).toMatchObject({ subject: 'watched', reason: REASON, address: 'operator.sock' });
    expect(all.at(-2)).toMatchObject({ parameters: { days: 2 }, reason: null });
    const ids: number[] = [];
    for (let before = ''; ; ) {
      const page = await act('GET', `/audit?slug=watched&limit=4${before}`);
      ids.push(...page.entries.map(({ id }: { id: number }) => id));
      if (page.next === null) break;
      before = `&before=${page.next}`;
    }
    expect(ids).toEqual(all.map(({ id }) => id));
  });

  it('has what was there before it, too, and by which way it came', async () => {
    await act('POST', '/secrets/rotate');
    const latest = async () => (await act('GET', '/audit?limit=1')).entries[0];
    expect(await latest()).toMatchObject({ act: 'POST /secrets/rotate', outcome: 200, parameters: {} });
    await host.advance(1_000);
    const entry = await latest();
    expect(entry).toMatchObject({ act: 'POST /clock', parameters: { advanceMs: 1_000 } });
    expect(Date.parse(entry.at) - Date.parse(entry.systemAt)).toBeGreaterThan(60 * DAY);
  });
});

describe('the command', () => {
  it('does all of it', async () => {
    await tenant('cli');
    const said = async (...args: string[]) => {
      const { code, stdout, stderr } = await command(...args);
      return code === 0 ? stdout.trimEnd() : `${code} ${stderr.trimEnd()}`;
    };
    expect(await said('tenants', 'suspend', 'cli', REASON)).toBe('cli is suspended; nothing of it runs');
    expect(await said('tenants')).toMatch(/^cli +suspended +1 /m);
    expect(await said('get', 'cli', '--host-url', host.url)).toContain(`since`);
    expect(await said('list', '--host-url', host.url)).toMatch(/^cli +suspended /m);
    expect(await said('tenants', 'note', 'cli', 'call back')).toBe('call back');
    expect(await said('tenants', 'note', 'cli')).toBe('call back');
    expect(await said('tenants', 'get', 'cli')).toContain('call back');
    expect(await said('tenants', 'resume', 'cli')).toBe('cli is served');
    expect(await said('tenants', 'extend', 'cli', '3')).toMatch(/^cli runs until 20/);
    expect(await said('tenants', 'limits', 'cli', 'storage.kvBytes=5000')).toMatch(/storage\.kvBytes +5000 +operator/);
    expect(await said('tenants', 'limits', 'cli')).toMatch(/storage\.kvBytes +5000 +operator/);
    const byItself = /^storage\.kvBytes +\d+ +setting$/m;
    expect(await said('tenants', 'limits', 'cli', 'storage.kvBytes=default')).toMatch(byItself);
    await said('tenants', 'limits', 'cli', 'storage.kvBytes=5000');
    expect(await said('tenants', 'limits', 'cli', '--reset')).toMatch(byItself);
    expect(await said('tenants', 'limits', 'cli', 'nothing=1')).toMatch(/^\d .*nothing is not known/s);
    expect(await said('tenants', 'limits', 'cli', 'runtime.idleMs=1')).toMatch(/^3 .*runtime\.idleMs/s);
    expect(await said('tenants', 'logs', 'cli')).toContain('by the operator');
    await fetch(`${host.url}/cli/shout`);
    const log = await until(async () => {
      const text = await said('tenants', 'logs', 'cli');
      return text.includes('shouted') ? text : undefined;
    });
    expect(log).toContain('shouted \ufffd[2J');
    const followed = await turnpike(['--data', host.data, 'tenants', 'logs', 'cli', '-f'], {
      cwd: folder,
      stopWhen: (stdout) => stdout.includes('resumed'),
    });
    expect(followed.stdout).toContain('suspended');
    expect(await said('blocks', 'add', '192.0.2.7/24', '--reason', 'scans')).toBe('192.0.2.0/24 is blocked');
    expect(await said('blocks')).toMatch(/^192\.0\.2\.0\/24 .*scans$/m);
    expect(await said('blocks', 'remove', '192.0.2.0/24')).toContain('no longer');
    expect(await said('blocks')).toBe('nothing is blocked');
    expect(await said('tenants', 'delete', 'cli')).toMatch(/^2 .*--yes/s);
    expect(await said('tenants', 'delete', 'cli', '--yes')).toBe('cli is decommissioned');
    expect(await said('audit', '--slug', 'cli', '-n', '2')).toMatch(/DELETE \/tenants\/:slug[\s\S]*--before \d+$/);
    expect(await said('tenants', 'suspend', 'nobody', 'x')).toMatch(/^3 .*no deployment nobody/s);
  });
});
