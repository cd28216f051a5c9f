/** The tenants of the soak of several nodes: registers, counters and a bank, whose histories are judged afterwards. */

/** No objects: any node that lives answers at once. */
export const STORES = `
const stores = (env) => ({ kv: env.STORE, r2: env.BUCKET });
export default {
  async fetch(request, env) {
    const [kind, key] = new URL(request.url).pathname.slice(1).split('/');
    const store = stores(env)[kind];
    if (!store) return new Response('here');
    if (request.method === 'PUT') {
      await store.put(key, await request.text());
      return new Response('kept');
    }
    const found = await store.get(key);
    return new Response(found === null ? '' : typeof found === 'string' ? found : await found.text());
  },
  async scheduled({ scheduledTime }, env) {
    await env.STORE.put('cron-' + scheduledTime + '-' + crypto.randomUUID(), 'ran');
  },
};`;

/** Each increment has a name, which is kept with it. */
export const COUNTERS = `import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async add(name) {
    const count = ((await this.ctx.storage.get('count')) ?? 0) + 1;
    await this.ctx.storage.put({ count, ['by ' + name]: count });
    return count;
  }
  async all() {
    const names = [...(await this.ctx.storage.list({ prefix: 'by ' })).keys()].map((key) => key.slice(3));
    return { count: (await this.ctx.storage.get('count')) ?? 0, names };
  }
}
export default {
  async fetch(request, env) {
    const [counter, name] = new URL(request.url).pathname.slice(1).split('/');
    const object = env.COUNTERS.getByName(counter);
    return request.method === 'POST' ? new Response(String(await object.add(name))) : Response.json(await object.all());
  },
};`;

/** What all accounts of the bank hold together. */
export const BANK_TOTAL = 1_000;
/** Transfers move money within one batch, and note it. */
export const BANK = `
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const [what, name] = url.pathname.slice(1).split('/');
    if (what === 'open') {
      await env.DB.batch([
        env.DB.prepare('CREATE TABLE accounts (id INTEGER PRIMARY KEY, held INTEGER NOT NULL)'),
        env.DB.prepare('CREATE TABLE transfers (name TEXT PRIMARY KEY)'),
        ...Array.from({ length: 10 }, (_, id) => env.DB.prepare('INSERT INTO accounts VALUES (?, 100)').bind(id)),
      ]);
      return new Response('open');
    }
    if (what === 'total') return Response.json(await env.DB.prepare('SELECT sum(held) AS total FROM accounts').first());
    if (what === 'transfers') return Response.json((await env.DB.prepare('SELECT name FROM transfers').raw()).flat());
    const [from, to] = [url.searchParams.get('from'), url.searchParams.get('to')];
    await env.DB.batch([
      env.DB.prepare('UPDATE accounts SET held = held - 1 WHERE id = ?').bind(from),
      env.DB.prepare('INSERT INTO transfers VALUES (?)').bind(name),
      env.DB.prepare('UPDATE accounts SET held = held + 1 WHERE id = ?').bind(to),
    ]);
    return new Response('moved');
  },
};`;
