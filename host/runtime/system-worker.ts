/**
 * Our own worker beside the tenant's in the same process: it answers health pings (it can only do so while the event
 * loop turns), runs the tenant's `scheduled()`, and shows owners their data through the tenant's own bindings. It is reachable on system.sock alone, never from the tenant.
 */

import { DATABASE_PATH } from '../bindings/d1/protocol.ts';

/** Fixed: the worker is ours, and its behaviour must not follow the tenant's date. */
export const SYSTEM_COMPATIBILITY_DATE = '2026-01-01';

/** Path and answer of the ping. */
export const PING_PATH = '/ping';
/** `POST` with `{cron, scheduledTime}`; answers `{outcome, error?, stack?}`. */
export const SCHEDULED_PATH = '/scheduled';
/** `POST` with a JSON array of traces, and in the header whose they are: calls `tail()`, and answers as above. */
export const TAIL_PATH = '/tail';
export const SCRIPT_HEADER = 'x-script-name';

/**
 * `<kind>/<name of a binding>` below it: the data of that binding, for its owner. D1: `POST {statements: [{sql, params?}]}`,
 * in one transaction. Analytics Engine: `POST {query}`. Queues: GET, and `POST {action}`. Workflows: GET lists (`status`, `cursor`, `limit`), GET and PUT of `?key=` with the id of an instance, and `POST {id, action?, event?}`. KV and R2: GET, PUT and DELETE of `?key=`; without a key, GET lists (`prefix`, `cursor`, `limit`).
 * Answers 400 with `{error}` where the binding refuses.
 */
export const DATA_PATH = '/data/';
/** `<name of a binding>/<operation>` below it: a call of workerd's protocol of queues, of another deployment of the owner. */
export const QUEUE_PATH = '/queue/';
/** What a binding is called in our worker: as handlers have it, and what its owner may do beside that. */
export const dataBinding = (kind: string, name: string): string => `data_${kind}_${name}`;
export const controlBinding = (kind: string, name: string): string => `control_${kind}_${name}`;

const DATA_SOURCE = `
async function data(request, env, url) {
  const [, , kind, name] = url.pathname.split('/');
  const store = env['data_' + kind + '_' + name];
  const control = env['control_' + kind + '_' + name];
  const { method } = request;
  const query = Object.fromEntries(url.searchParams);
  try {
    if (kind === 'd1') {
      const { statements } = await request.json();
      const prepared = statements.map(({ sql, params }) => (params?.length ? store.prepare(sql).bind(...params) : store.prepare(sql)));
      return Response.json(await store.batch(prepared));
    }
    if (kind === 'analytics') return control.fetch('http://analytics/query', { method, body: await request.text() });
    const { key, prefix, cursor } = query;
    if (kind === 'queues')
      return Response.json(await (method === 'POST' ? control.act((await request.json()).action) : control.measure()));
    if (kind === 'workflows' && method === 'GET' && key === undefined) return Response.json(await control.list(query));
    if (kind === 'workflows') return Response.json(await workflow(request, store, key));
    if (key === undefined) {
      const page = await store.list({ prefix, cursor, ...(query.limit ? { limit: Number(query.limit) } : {}) });
      if (kind === 'kv') return Response.json(page);
      const objects = page.objects.map(({ key, size, etag, uploaded, storageClass }) => ({ key, size, etag, uploaded, storageClass }));
      return Response.json({ objects, truncated: page.truncated, cursor: page.cursor });
    }
    if (method === 'DELETE') {
      await store.delete(key);
      return new Response(null, { status: 204 });
    }
    if (method === 'PUT') {
      if (kind === 'kv') {
        const { ttl, metadata } = query;
        await store.put(key, request.body ?? '', {
          ...(ttl ? { expirationTtl: Number(ttl) } : {}),
          ...(metadata ? { metadata: JSON.parse(metadata) } : {}),
        });
        return new Response(null, { status: 204 });
      }
      const type = request.headers.get('content-type');
      const { size, etag } = await store.put(key, request.body ?? '', type ? { httpMetadata: { contentType: type } } : {});
      return Response.json({ key, size, etag });
    }
    if (kind === 'kv') {
      const { value, metadata } = await store.getWithMetadata(key, 'stream');
      if (value === null) return new Response(null, { status: 404 });
      const headers = { 'content-type': 'application/octet-stream' };
      if (metadata) headers['x-metadata'] = encodeURIComponent(JSON.stringify(metadata));
      return new Response(value, { headers });
    }
    const object = await store.get(key);
    if (object === null) return new Response(null, { status: 404 });
    const headers = new Headers({ 'content-type': 'application/octet-stream', etag: object.httpEtag });
    object.writeHttpMetadata(headers);
    return new Response(object.body, { headers });
  } catch (error) {
    return Response.json({ error: String(error?.message ?? error).slice(0, 4000) }, { status: 400 });
  }
}
`;

const WORKFLOW_SOURCE = `
async function workflow(request, store, key) {
  if (request.method === 'PUT') {
    const text = await request.text();
    return { id: (await store.create({ id: key, params: text === '' ? {} : JSON.parse(text) })).id };
  }
  const { id, action, event } = request.method === 'POST' ? await request.json() : { id: key };
  const instance = await store.get(id);
  if (event !== undefined) await instance.sendEvent(event);
  else if (['pause', 'resume', 'restart', 'terminate'].includes(action)) await instance[action]();
  else if (request.method === 'POST') throw new Error('Give an action (pause, resume, restart or terminate), or an event.');
  return { id, ...(await instance.status()) };
}
`;

/**
 * `MAIN.scheduled()` is a JS RPC call on the tenant's default export: the dedicated method of service bindings needs
 * an experimental flag (workerd 1.20261117.1). It resolves when the handler's promise does.
 */
export const SYSTEM_WORKER = `${DATA_SOURCE}${WORKFLOW_SOURCE}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const { pathname } = url;
    if (pathname.startsWith('${DATA_PATH}')) return data(request, env, url);
    if (pathname.startsWith('${QUEUE_PATH}')) {
      const [, , name, operation] = pathname.split('/');
      return env['control_queues_' + name].fetch('http://queue/' + operation, request);
    }
    if (pathname.startsWith('${DATABASE_PATH}')) {
      const [, , key, name, operation] = pathname.split('/');
      return env['control_' + key + '_' + name].fetch('http://database/' + operation + url.search, request);
    }
    if (pathname === '${PING_PATH}') return new Response('pong');
    const isTail = pathname === '${TAIL_PATH}';
    if (!(isTail || pathname === '${SCHEDULED_PATH}') || request.method !== 'POST') return new Response(null, { status: 404 });
    try {
      const given = await request.json();
      if (isTail) {
        const scriptName = request.headers.get('${SCRIPT_HEADER}');
        await env.MAIN.tail(given.map((event) => ({ ...event, scriptName })));
      } else {
        const { cron, scheduledTime } = given;
        await env.MAIN.scheduled({ type: 'scheduled', cron, scheduledTime, noRetry() {} });
      }
      return Response.json({ outcome: 'ok' });
    } catch (error) {
      const text = error instanceof Error ? error.name + ': ' + error.message : String(error);
      return Response.json({ outcome: 'exception', error: text.slice(0, 1000) });
    }
  },
};
`;
