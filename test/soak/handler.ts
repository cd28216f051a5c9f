/** The tenant of the soak: writes and reads one key with every binding, and says whether all of them work. */
export const BINDINGS = {
  kv: true,
  d1: true,
  r2: true,
  durableObjects: { OBJECTS: { class: 'Kept' } },
  queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0.1, maxRetries: 100 } } },
  workflows: { FLOWS: { class: 'Flow', name: 'flow' } },
};

export const HANDLER = `
import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Kept extends DurableObject {
  #table = this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS done (kind TEXT, id TEXT, PRIMARY KEY (kind, id)) WITHOUT ROWID');
  put(id, value) { this.ctx.storage.kv.put(id, value); }
  get(id) { return this.ctx.storage.kv.get(id); }
  done(kind, id) { this.ctx.storage.sql.exec('INSERT OR IGNORE INTO done VALUES (?, ?)', kind, id); }
  list(kind) { return this.ctx.storage.sql.exec('SELECT id FROM done WHERE kind = ?', kind).toArray().map(({ id }) => id); }
  later(id, ms) { this.ctx.storage.kv.put('alarm', id); this.ctx.storage.setAlarm(Date.now() + ms); }
  async alarm() { await this.env.OBJECTS.getByName('done').done('alarm', this.ctx.storage.kv.get('alarm')); }
}
export class Flow extends WorkflowEntrypoint {
  async run({ instanceId }, step) {
    await step.do('first', async () => 1);
    await step.sleep('rest', 1000);
    await step.do('last', async () => { await this.env.OBJECTS.getByName('done').done('flow', instanceId); });
  }
}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const id = url.searchParams.get('id') ?? '';
    const kind = url.pathname.slice(1);
    if (kind === 'setup') {
      await env.DB.exec('CREATE TABLE kept (id TEXT PRIMARY KEY, version INTEGER, value TEXT)');
      await env.DB.exec('CREATE TABLE versions (id TEXT, version INTEGER)');
      return new Response('ready');
    }
    if (kind === 'here') return new Response('here');
    if (kind === 'neighbour') return fetch(url.searchParams.get('at'));
    if (kind === 'ready') {
      const [, , , , neighbour] = await Promise.all([
        env.STORE.get('nothing'),
        env.BUCKET.head('nothing'),
        env.DB.prepare('SELECT 1').run(),
        env.OBJECTS.getByName('done').get('nothing'),
        fetch(url.searchParams.get('at')),
      ]);
      return new Response(await neighbour.text() === 'here' ? 'ready' : 'no neighbour', { status: neighbour.status });
    }
    if (kind === 'done') return Response.json(await env.OBJECTS.getByName('done').list(id));
    const object = env.OBJECTS.getByName(kind === 'alarm' ? id : 'lane ' + id.split('-')[0]);
    if (kind === 'torn') {
      const halves = await env.DB.prepare('SELECT count(*) AS n FROM kept WHERE NOT EXISTS (SELECT 1 FROM versions '
        + 'WHERE versions.id = kept.id AND versions.version = kept.version)').first('n');
      return new Response(String(halves));
    }
    if (request.method === 'POST') {
      const value = await request.text();
      if (kind === 'kv') await env.STORE.put(id, value);
      else if (kind === 'objects') await object.put(id, value);
      else if (kind === 'queue') await env.JOBS.send(id);
      else if (kind === 'alarm') await object.later(id, Math.random() * 4000);
      else if (kind === 'flow') await env.FLOWS.create({ id });
      else if (kind === 'r2') await env.BUCKET.put(id, value);
      else {
        const version = Number.parseInt(value, 10);
        await env.DB.batch([
          env.DB.prepare('INSERT OR REPLACE INTO kept (id, version, value) VALUES (?, ?, ?)').bind(id, version, value),
          env.DB.prepare('INSERT INTO versions (id, version) VALUES (?, ?)').bind(id, version),
        ]);
      }
      return new Response('kept');
    }
    if (kind === 'objects') return answer(await object.get(id));
    if (kind === 'kv') return answer(await env.STORE.get(id));
    if (kind === 'r2') return answer(await (await env.BUCKET.get(id))?.text());
    return answer(await env.DB.prepare('SELECT value FROM kept WHERE id = ?').bind(id).first('value'));
  },
  async queue(batch, env) {
    const done = env.OBJECTS.getByName('done');
    for (const { body } of batch.messages) await done.done('queue', body);
  },
};
const answer = (value) => (value == null ? new Response('none', { status: 404 }) : new Response(value));
`;
