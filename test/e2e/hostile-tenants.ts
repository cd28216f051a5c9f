/**
 * The gallery: what a tenant may deploy for twenty cents to hurt the box, its neighbours or the host. One entry is one
 * handler, one way to set it off, and what must come of it.
 */
import { expect } from 'vitest';
import type { Deployment, RuntimeRig } from './runtime-rig.ts';

export interface Hostile {
  name: string;
  code: string;
  deployment?: Deployment;
  /** Sets it off; what it answers is judged by `expect`. Default: one request to `/`. */
  attack?(rig: RuntimeRig, slug: string): Promise<unknown>;
  /** Statuses that the default attack may end in. */
  statuses?: number[];
  /** What the body of the default attack must (not) hold. */
  body?: RegExp;
  notBody?: RegExp;
  /** A line that its owner must find in the log. */
  logged?: RegExp;
  /** After the attack this path must answer 200: it was contained, not broken for good. Default `/fine`. */
  recovers?: false;
  /** It does the same whenever it is started: its owner brings it back with another version. */
  mended?: true;
}

/** A handler that does harm on every path but `/fine`. */
function handler(harm: string, before = ''): string {
  return `${before}
export default {
  async fetch(request, env, ctx) {
    const url = new URL(request.url);
    if (url.pathname === '/fine') return new Response('fine');
    ${harm}
  },
};`;
}

/** (module (func (export "run") (loop (br 0)))) */
const WASM_LOOP = '0061736d01000000010401600000030201000707010372756e00000a0901070003400c000b0b';

const CPU = { statuses: [503], logged: /cpu_exceeded/ };
/** Ends by memory or by CPU, whichever limit it meets first. */
const EITHER = { statuses: [503], logged: /memory_exceeded|cpu_exceeded/ };

export const COMPUTING: Hostile[] = [
  { name: 'busy loop', code: handler('for (;;);'), ...CPU },
  {
    name: 'busy loop while loading',
    code: 'for (;;); export default { fetch() {} };',
    statuses: [503],
    logged: /did not finish loading/,
    recovers: false,
  },
  {
    name: 'busy loop in a scheduled run',
    code: `export default { fetch: () => new Response('fine'), scheduled() { for (;;); } };`,
    attack: async (rig, slug) => {
      const { outcome } = await rig.runtime.runScheduled(slug, '* * * * *', 0);
      if (outcome !== 'exceeded_cpu') throw new Error(`ended as ${outcome}`);
    },
    logged: /cpu_exceeded/,
  },
  {
    name: 'busy loop after the answer',
    code: handler(`ctx.waitUntil(scheduler.wait(10).then(() => { for (;;); })); return new Response('fine');`),
    statuses: [200],
    logged: /cpu_exceeded/,
  },
  { name: 'loop of microtasks', code: handler('for (;;) await null;'), ...EITHER },
  {
    name: 'regular expression that backtracks',
    code: handler(`return new Response(String(/^(a+)+$/.test('a'.repeat(50) + 'b')));`),
    ...CPU,
  },
  {
    name: 'wasm that never returns',
    code: handler('new WebAssembly.Instance(loop).exports.run();', `import loop from './loop.wasm';`),
    ...CPU,
  },
  {
    name: 'sort that never ends',
    code: handler(
      'const a = Array.from({ length: 2e5 }, (_, i) => i); a.sort(() => { for (let i = 0; i < 1e5; i++); return Math.random() - 0.5; });',
    ),
    ...EITHER,
  },
  {
    name: 'deep recursion',
    code: handler('const deeper = (n) => deeper(n + 1) + 1; deeper(0);'),
    statuses: [500],
    logged: /Maximum call stack/,
  },
  {
    name: 'storm of timers',
    code: handler(
      `for (let i = 0; i < 2e5; i++) setTimeout(() => { for (let j = 0; j < 1e5; j++); }, 1); return new Response('storm');`,
    ),
    statuses: [200, 500, 503],
  },
  {
    name: 'waiting without CPU',
    code: handler(
      `const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }); Atomics.wait(new Int32Array(memory.buffer), 0, 0); return new Response('waited');`,
    ),
    statuses: [500, 503],
    logged: /Atomics|cpu_exceeded|shared/i,
  },
  {
    name: 'flood of promises',
    code: handler('const kept = []; for (;;) kept.push(new Promise(() => {}).then(() => {}));'),
    ...EITHER,
  },
  {
    name: 'flood of rejections',
    code: handler(`for (let i = 0; i < 1e5; i++) Promise.reject(new Error('unheard')); return new Response('done');`),
    statuses: [200, 500, 503],
  },
];

export const SWELLING: Hostile[] = [
  {
    name: 'heap bomb',
    code: handler('const kept = []; for (;;) kept.push(new Array(1e5).fill(kept.length / 3));'),
    ...EITHER,
  },
  {
    name: 'buffer bomb',
    code: handler('const kept = []; for (;;) kept.push(new Uint8Array(8e6).fill(1));'),
    ...EITHER,
  },
  {
    name: 'wasm memory bomb',
    code: handler(
      'const memory = new WebAssembly.Memory({ initial: 1 }); for (;;) { memory.grow(256); new Uint8Array(memory.buffer).fill(7); }',
    ),
    statuses: [500, 503],
    logged: /memory_exceeded|cpu_exceeded|grow/,
  },
  {
    name: 'string bomb',
    code: handler(`const kept = []; for (;;) kept.push(JSON.stringify('\\u00e4' + 'x'.repeat(4e6) + kept.length));`),
    ...EITHER,
  },
  {
    name: 'heap bomb while loading',
    code: `const kept = []; for (;;) kept.push(new Array(1e5).fill(kept.length / 3)); export default { fetch() {} };`,
    statuses: [503],
    logged: /memory_exceeded|did not finish/,
    recovers: false,
  },
  {
    name: 'buffer bomb while loading',
    code: `const kept = []; for (;;) kept.push(new Uint8Array(8e6).fill(1)); export default { fetch() {} };`,
    statuses: [503],
    logged: /memory_exceeded|did not finish/,
    recovers: false,
  },
  {
    name: 'memory that grows from request to request',
    code: handler(
      `for (let i = 0; i < 8; i++) kept.push(new Uint8Array(8e6).fill(1)); return new Response('kept');`,
      'const kept = [];',
    ),
    attack: async (rig, slug) => {
      for (let i = 0; i < 12; i++) await rig.text(slug);
    },
    logged: /memory_exceeded/,
  },
  {
    name: 'zip bomb',
    code: handler(`
    const zip = new CompressionStream('gzip');
    const writer = zip.writable.getWriter();
    (async () => { const zeros = new Uint8Array(1e6); for (let i = 0; i < 800; i++) await writer.write(zeros); await writer.close(); })();
    const bytes = await new Response(zip.readable.pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
    return new Response(String(bytes.byteLength));`),
    ...EITHER,
  },
  {
    name: 'blob and form bomb',
    code: handler(`const form = new FormData(); for (;;) form.append('x', new Blob([new Uint8Array(8e6).fill(1)]));`),
    ...EITHER,
  },
  {
    name: 'teed stream that one side never reads',
    code: handler(`
    const endless = new ReadableStream({ type: 'bytes', pull(c) { c.enqueue(new Uint8Array(1e6).fill(1)); } });
    const [a, b] = endless.tee(); const reader = a.getReader(); for (;;) await reader.read();`),
    ...EITHER,
  },
  {
    name: 'cloned body',
    code: handler(`
    const kept = []; for (;;) kept.push(structuredClone(new Uint8Array(8e6).fill(1)));`),
    ...EITHER,
  },
  {
    name: 'address space',
    code: handler(
      `const kept = []; try { for (;;) kept.push(new WebAssembly.Memory({ initial: 1, maximum: 65536 })); } catch (e) { return new Response('stopped ' + kept.length); }`,
    ),
    statuses: [200, 500, 502, 503],
  },
];

export const TALKING: Hostile[] = [
  {
    name: 'log flood',
    code: handler(`for (let i = 0; i < 1e5; i++) console.log('flood'.repeat(40), i); return new Response('done');`),
    statuses: [200, 503],
    logged: /log-dropped/,
  },
  {
    name: 'one line of a hundred megabytes',
    code: handler(`console.log('x'.repeat(1e8)); return new Response('done');`),
    statuses: [200, 503],
    logged: /log-dropped|memory_exceeded|cpu_exceeded/,
  },
  {
    name: 'forged platform lines',
    code: handler(
      `console.log('fine\\n{"timestamp":"1","level":"info","source":"workerd","message":"uncaught exception; source = x; stack = Error: forged"}'); return new Response('done');`,
    ),
    statuses: [200],
    logged: /"kind":"console".*forged/,
  },
  {
    name: 'secrets in the log',
    code: handler(`console.log(env.KEY, encodeURIComponent(env.KEY), btoa(env.KEY)); throw new Error(env.KEY);`),
    deployment: { secrets: { KEY: 'swordfish-1234' } },
    statuses: [500],
    logged: /\[secret\] \[secret\] \[secret\]/,
  },
  {
    name: 'exceptions in a row',
    code: handler(
      `for (let i = 0; i < 3000; i++) ctx.waitUntil(Promise.reject(new Error('again ' + i))); return new Response('done');`,
    ),
    statuses: [200, 500, 503],
  },
  {
    name: 'header flood in the answer',
    code: handler(
      `const headers = new Headers(); for (let i = 0; i < 20000; i++) headers.append('x-flood-' + i, 'y'.repeat(50)); return new Response('done', { headers });`,
    ),
    statuses: [500, 502, 503],
  },
  {
    name: 'one header of ten megabytes',
    code: handler(`return new Response('done', { headers: { 'x-huge': 'y'.repeat(1e7) } });`),
    statuses: [500, 502, 503],
  },
  {
    name: 'line breaks in a header',
    code: handler(`return new Response('done', { headers: { 'x-split': 'a\\r\\nset-cookie: evil=1' } });`),
    statuses: [500],
  },
  {
    name: 'a length that lies',
    code: handler(`return new Response('short', { headers: { 'content-length': '5000' } });`),
    statuses: [200, 500, 502],
  },
  { name: 'an answer that never comes', code: handler('await new Promise(() => {});'), statuses: [500, 504] },
  {
    name: 'an answer that never ends',
    code: handler(`return new Response(new ReadableStream({ async pull(c) { c.enqueue(new Uint8Array(65536)); } }));`),
    attack: async (rig, slug) => {
      const response = await rig.fetch(slug);
      const reader = response.body!.getReader();
      for (let bytes = 0; bytes < 2e7; ) bytes += (await reader.read()).value?.length ?? 2e7;
      await reader.cancel();
    },
  },
  {
    name: 'an answer that nobody reads',
    code: handler(`return new Response(new ReadableStream({ async pull(c) { c.enqueue(new Uint8Array(65536)); } }));`),
    attack: async (rig, slug) => {
      const responses = await Promise.all(Array.from({ length: 20 }, () => rig.fetch(slug)));
      await new Promise((resolve) => setTimeout(resolve, 500));
      await Promise.all(responses.map((response) => response.body!.cancel()));
    },
  },
  {
    name: 'ten thousand web sockets inside',
    code: handler(
      `const kept = []; for (let i = 0; i < 1e4; i++) { const pair = new WebSocketPair(); pair[1].accept(); kept.push(pair); } return new Response(String(kept.length));`,
    ),
    statuses: [200, 500, 503],
  },
];

export const REACHING: Hostile[] = [
  {
    name: 'reading files of the host',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(
      `
    const found = [];
    for (const file of ['/etc/passwd', '/etc/hostname', '/proc/self/environ', '/proc/self/maps', '/proc/1/cmdline', '/run/services/kv.sock', '/root/.bashrc', '/var/log/syslog'])
      try { found.push(file + ' ' + fs.readFileSync(file, 'utf8').slice(0, 20)); } catch {}
    return new Response('found: ' + found.join(';'));`,
      `import fs from 'node:fs';`,
    ),
    statuses: [200],
    body: /^found: $/,
  },
  {
    name: 'listing folders of the host',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(
      `
    const found = []; for (const folder of ['/', '/run', '/proc', '/etc', '/home']) try { found.push(...fs.readdirSync(folder)); } catch {}
    return new Response('found: ' + found.sort().join(' '));`,
      `import fs from 'node:fs';`,
    ),
    statuses: [200],
    notBody: /passwd|services|listen|self|sys\b|root/,
  },
  {
    name: 'environment of the process',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(`return new Response(JSON.stringify(process.env));`),
    statuses: [200],
    notBody: /PATH|HOME|USER|TURNPIKE/,
  },
  {
    name: 'running a program',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(
      `const { execSync } = await import('node:child_process'); return new Response('ran ' + execSync('id'));`,
    ),
    statuses: [500],
  },
  {
    name: 'leaving the process',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(`process.exit(0);`),
    statuses: [500, 502, 503],
  },
  {
    name: 'killing by signal',
    deployment: { compatibilityFlags: ['nodejs_compat'] },
    code: handler(`process.kill(1, 9); process.kill(process.pid, 9); return new Response('killed');`),
    statuses: [500, 502, 503],
  },
  {
    name: 'code from strings',
    code: handler(`return new Response('ran ' + new Function('return 1')() + eval('2'));`),
    statuses: [500],
    logged: /Code generation from strings/,
  },
  {
    name: 'importing a file',
    code: handler(
      `const name = 'file:///etc/passwd'; const module = await import(name); return new Response('got ' + Object.keys(module));`,
    ),
    statuses: [500],
    notBody: /got/,
  },
  {
    name: 'importing internals of the runtime',
    code: handler(
      `const names = ['cloudflare-internal:d1-api', 'workerd:unsafe', 'internal:process']; const found = []; for (const name of names) try { await import(name); found.push(name); } catch {} return new Response('found: ' + found.join());`,
    ),
    statuses: [200, 500],
    notBody: /found: ./,
  },
  {
    name: 'the cache of others',
    code: handler(
      `await caches.default.put('https://example.com/', new Response('poison', { headers: { 'cache-control': 'max-age=60' } })); return new Response('put');`,
    ),
    statuses: [200, 500, 503],
  },
  {
    name: 'forged request.cf',
    code: handler(`return Response.json({ cf: request.cf ?? null, forged: request.headers.get('x-turnpike-cf') });`),
    attack: async (rig, slug) => {
      const response = await rig.fetch(slug, '/', {
        headers: { 'x-turnpike-cf': '{"colo":"EVIL"}', 'cf-connecting-ip': '6.6.6.6' },
      });
      const text = await response.text();
      if (/EVIL/.test(text)) throw new Error(`believed: ${text}`);
    },
  },
  {
    name: 'prototype pollution for the system worker',
    code: handler(
      `return new Response('polluted');`,
      `Object.prototype.outcome = 'ok'; Response.json = () => new Response('evil'); Object.prototype.cron = 'evil';`,
    ),
    attack: async (rig, slug) => {
      await rig.text(slug);
      const { outcome } = await rig.runtime.runScheduled(slug, '* * * * *', 0);
      if (outcome !== 'exception') throw new Error(`a handler without scheduled() ended as ${outcome}`);
    },
  },
  {
    name: 'its own system socket',
    code: handler(
      `const found = []; for (const url of ['http://system/ping', 'http://unix:/run/listen/system.sock:/ping', 'http://localhost/ping']) try { found.push(await (await fetch(url)).text()); } catch {} return new Response('found: ' + found.join());`,
    ),
    statuses: [200],
    notBody: /pong/,
  },
];

export const STORING: Hostile[] = [
  {
    name: 'runaway query',
    deployment: { bindings: { d1: true } },
    code: handler(
      `try { const r = await env.DB.prepare('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n').all(); return Response.json(r); } catch (error) { return new Response('refused: ' + error.message); }`,
    ),
    statuses: [200],
    body: /refused: .*(time|deadline|long)/i,
  },
  {
    name: 'query that swells',
    deployment: { bindings: { d1: true } },
    code: handler(
      `try { await env.DB.prepare("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT group_concat(hex(randomblob(100000))) FROM n").all(); return new Response('answered'); } catch (error) { return new Response('refused: ' + error.message); }`,
    ),
    statuses: [200],
    body: /^refused/,
  },
  {
    name: 'files of the host by SQL',
    deployment: { bindings: { d1: true } },
    code: handler(
      `const found = []; for (const sql of ["SELECT readfile('/etc/passwd')", "SELECT writefile('/tmp/x', 'y')", "ATTACH '/etc/passwd' AS p", "VACUUM INTO '/data/copy'", "SELECT * FROM fsdir('/')", "SELECT load_extension('/app/libsql.node')"]) try { found.push(JSON.stringify(await env.DB.prepare(sql).all())); } catch {} return new Response('found: ' + found.join());`,
    ),
    statuses: [200],
    body: /^found: $/,
  },
  {
    name: 'query that ends its process',
    deployment: { bindings: { d1: true } },
    code: handler(
      `try { await env.DB.prepare("SELECT cast(x'ff' as text)").all(); } catch {} const after = await env.DB.prepare('SELECT 7 AS n').first(); return Response.json(after);`,
    ),
    statuses: [200],
    body: /"n":7/,
  },
  {
    name: 'flood of values',
    deployment: { bindings: { kv: true } },
    code: handler(
      `const results = await Promise.allSettled(Array.from({ length: 300 }, (_, i) => env.STORE.put('k' + i, 'v'.repeat(1e5)))); return new Response('stored ' + results.filter((r) => r.status === 'fulfilled').length);`,
    ),
    statuses: [200, 500, 503],
  },
  {
    name: 'objects without end',
    deployment: { bindings: { r2: true } },
    code: handler(
      `let puts = 0; for (let i = 0; i < 40; i++) try { await env.BUCKET.put('o' + i, new Uint8Array(1e6)); puts++; } catch {} return new Response('stored ' + puts);`,
    ),
    statuses: [200],
  },
];

const OBJECTS = { durableObjects: { OBJECTS: { class: 'Hoard' } } };
const CLASS = (body: string) => `import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Hoard extends DurableObject { ${body} }`;
/** Whichever limit it meets first. */
const ANY_LIMIT = /storage_exceeded|memory_exceeded|cpu_exceeded/;

/** Lighter by default: `HOSTILE_SHARE=1 npm test -- --e2e hostile` takes the full size. */
const SHARE = Number(process.env.HOSTILE_SHARE ?? 0.02);
/** What all Durable Objects of one of them may hold, bytes: a gigabyte by default. */
export const OBJECT_BYTES = Math.ceil(SHARE * 2 ** 30);

export const LIVING: Hostile[] = [
  {
    name: 'alarm that spins',
    deployment: { bindings: OBJECTS },
    code: handler(
      `await env.OBJECTS.getByName('a').start(); return new Response('started');`,
      CLASS(`start() { this.ctx.storage.setAlarm(Date.now() + 50); } alarm() { for (;;); }`),
    ),
    statuses: [200, 503],
    logged: /cpu_exceeded/,
    mended: true,
  },
  {
    name: 'queue that feeds itself',
    deployment: { bindings: { queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0 } } } } },
    code: handler(`await env.JOBS.send('x'.repeat(50000)); return new Response('sent');`).replace(
      /};$/,
      `  async queue(batch, env) { for (const { body } of batch.messages) await env.JOBS.sendBatch([{ body }, { body }, { body }, { body }]); } };`,
    ),
    statuses: [200, 503],
    logged: ANY_LIMIT,
    mended: true,
  },
  {
    name: 'ten thousand objects',
    deployment: { bindings: OBJECTS },
    code: handler(
      `for (let i = 0; i < ${10_000 * SHARE}; i++) await env.OBJECTS.getByName('o' + i).keep(); return new Response('kept');`,
      CLASS(`keep() { this.ctx.storage.kv.put('kept', 'x'.repeat(100000)); }`),
    ),
    statuses: [200, 500, 503, 507],
    logged: ANY_LIMIT,
  },
  {
    name: 'a gigabyte in one object',
    deployment: { bindings: OBJECTS },
    code: handler(
      `return new Response(await env.OBJECTS.getByName('one').fill());`,
      CLASS(
        `async fill() { const { sql } = this.ctx.storage; sql.exec('CREATE TABLE t (b BLOB)'); for (;;) { sql.exec('INSERT INTO t VALUES (randomblob(1000000))'); await this.ctx.storage.sync(); } }`,
      ),
    ),
    statuses: [500, 503, 507],
    logged: ANY_LIMIT,
  },
  {
    name: 'web sockets by the thousand',
    deployment: { bindings: OBJECTS },
    code: handler(
      `return env.OBJECTS.getByName('one').fetch(request);`,
      CLASS(
        `fetch() { const [client, server] = Object.values(new WebSocketPair()); this.ctx.acceptWebSocket(server); return new Response(null, { status: 101, webSocket: client }); } webSocketMessage(socket, text) { for (const other of this.ctx.getWebSockets()) other.send(text); }`,
      ),
    ),
    attack: async (rig, slug) => {
      const url = `ws://127.0.0.1:${rig.port}/${slug}/`;
      const sockets = Array.from({ length: 2_000 * SHARE }, () => new WebSocket(url));
      const open = (socket: WebSocket) =>
        new Promise<boolean>((resolve) => {
          socket.addEventListener('open', () => resolve(true));
          socket.addEventListener('error', () => resolve(false));
        });
      const opened = await Promise.all(sockets.map(open));
      // So many at once are not all let in.
      expect(opened.filter(Boolean).length).toBeGreaterThan(sockets.length / 2);
      const heard = sockets
        .filter((_, index) => opened[index])
        .map(
          (socket) =>
            new Promise((resolve) => {
              socket.addEventListener('message', resolve);
              socket.addEventListener('close', resolve);
            }),
        );
      sockets.find((_, index) => opened[index])?.send('all');
      await Promise.all(heard);
      for (const socket of sockets) socket.close();
    },
  },
  {
    name: 'workflow that forks itself',
    deployment: { bindings: { workflows: { FLOWS: { class: 'Fork', name: 'fork' } } } },
    code: handler(
      `await env.FLOWS.create(); return new Response('created');`,
      `import { WorkflowEntrypoint } from 'cloudflare:workers';
export class Fork extends WorkflowEntrypoint {
  async run(event, step) { for (let i = 0; i < 8; i++) await step.do('fork ' + i, async () => { await this.env.FLOWS.create({ params: 'x'.repeat(10000) }); }); }
}`,
    ),
    // It may have filled its quota before it is asked once more.
    statuses: [200, 503, 507],
    logged: ANY_LIMIT,
    mended: true,
  },
];

export const WASM = { 'loop.wasm': { base64: Buffer.from(WASM_LOOP, 'hex').toString('base64') } };
