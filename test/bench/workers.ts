/** The handlers that every subject runs: the same text for ours and for the peers. */

export const HELLO = `export default { fetch() { return new Response('hello'); } };`;

export const TEN_MB = `
const chunk = new Uint8Array(65536).fill(120);
export default {
  async fetch(request) {
    if (request.method === 'POST') {
      let bytes = 0;
      for await (const piece of request.body) bytes += piece.byteLength;
      return new Response(String(bytes));
    }
    let left = 160;
    return new Response(new ReadableStream({
      pull(controller) { if (left-- > 0) controller.enqueue(chunk); else controller.close(); },
    }), { headers: { 'content-length': String(160 * 65536) } });
  },
};`;

export const ECHO_SOCKET = `
export default {
  fetch(request) {
    if (request.headers.get('upgrade') !== 'websocket') return new Response('ready');
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.addEventListener('message', ({ data }) => server.send(data));
    return new Response(null, { status: 101, webSocket: client });
  },
};`;

/** Paths: /kv/get /kv/put /d1/select /d1/insert /r2/get /r2/put /cache/match, and /seed once before. */
export const STORAGE = `
const value = 'x'.repeat(1024);
const object = new Uint8Array(102400).fill(120);
// A key gets other bytes each time: a store may leave out the writing of what is there already.
const objects = Array.from({ length: 16 }, (_, index) => new Uint8Array(102400).fill(97 + index));
let n = 0;
export default {
  async fetch(request, env) {
    switch (new URL(request.url).pathname.replace(/^\\/bench/, '')) {
      case '/seed':
        await env.STORE.put('hot', value);
        await env.DB.exec('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)');
        await env.DB.prepare('INSERT OR REPLACE INTO t (id, v) VALUES (1, ?)').bind(value).run();
        await env.BUCKET.put('hot', object);
        // Hosts from before the Cache API (--against) have the other rows.
        await caches.default.put('http://cached/hot', new Response('x'.repeat(10240), { headers: { 'cache-control': 'max-age=3600' } })).catch(() => {});
        return new Response('seeded');
      case '/kv/get': return new Response(await env.STORE.get('hot'));
      case '/kv/put': await env.STORE.put('k' + (n++ % 1000), value); return new Response('ok');
      case '/d1/select': return Response.json(await env.DB.prepare('SELECT v FROM t WHERE id = ?').bind(1).first());
      case '/d1/insert': await env.DB.prepare('INSERT INTO t (v) VALUES (?)').bind(value).run(); return new Response('ok');
      case '/r2/get': return new Response((await env.BUCKET.get('hot')).body);
      case '/r2/put': await env.BUCKET.put('k' + (n % 100), objects[n++ % 16]); return new Response('ok');
      case '/cache/match': return caches.default.match('http://cached/hot');
      default: return new Response('ready');
    }
  },
};`;

/** Paths: /object/call /object/write /queue /workflow. */
export const OBJECTS = `
import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
const value = 'x'.repeat(1024);
export class Counter extends DurableObject {
  #n = 0;
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)');
  }
  count() { return ++this.#n; }
  write() { this.ctx.storage.sql.exec('INSERT OR REPLACE INTO t VALUES (?, ?)', ++this.#n % 1000, value); }
}
export class Flow extends WorkflowEntrypoint {
  async run(_event, step) {
    for (let at = 0; at < 5; at++) await step.do('step ' + at, async () => at);
  }
}
let n = 0;
const consumed = new Map();
export default {
  async fetch(request, env) {
    switch (new URL(request.url).pathname.replace(/^\\/bench/, '')) {
      case '/object/call': return new Response(String(await env.OBJECTS.getByName('hot').count()));
      case '/object/write': await env.OBJECTS.getByName('w' + (n++ % 16)).write(); return new Response('ok');
      case '/queue': {
        const run = n++;
        consumed.set(run, 0);
        await env.JOBS.sendBatch(Array.from({ length: 100 }, () => ({ body: run })));
        while (consumed.get(run) < 100) await scheduler.wait(2);
        consumed.delete(run);
        return new Response('consumed');
      }
      case '/workflow': {
        const flow = await env.FLOWS.create();
        for (;;) {
          const { status } = await flow.status();
          if (status === 'complete') return new Response(status);
          if (status === 'errored') return new Response(status, { status: 500 });
          await scheduler.wait(2);
        }
      }
      default: return new Response('ready');
    }
  },
  queue({ messages }) {
    for (const { body } of messages) consumed.set(body, (consumed.get(body) ?? 0) + 1);
  },
};`;
