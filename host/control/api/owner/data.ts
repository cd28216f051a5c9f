/** What a deployment keeps, for its owner: SQL of D1 and of data points, values of KV, objects of R2, queues and workflows, through the deployment's own bindings. */
import { QUERY_TIMEOUT_MS } from '../../../bindings/analytics/limits.ts';
import { timedOut } from '../../../bindings/d1/failure.ts';
import { ownedBindings } from '../../../bindings/index.ts';
import { DATA_PATH } from '../../../runtime/system-worker.ts';
import { Problem } from '../../../shared/problem.ts';
import type { ControlDeps } from '../../deps.ts';
import type { Call, Endpoint } from '../../endpoint.ts';
import { requireOwner } from '../../ownership.ts';

const RESPONSES = {
  400: 'The binding refuses it; `detail` says why.',
  403: 'Another wallet owns the slug.',
  404: 'There is no such binding, or no such key.',
};
/** Of the answer of the host's own worker. */
const HANDED_ON = ['content-type', 'content-length', 'etag', 'x-metadata'];
/** A value may be a page of anybody's; here it would speak for the host's own origin. */
const CONFINED: [string, string][] = [
  ['cache-control', 'no-store'],
  ['content-disposition', 'attachment'],
  ['content-security-policy', 'sandbox'],
];

/** What each kind of binding takes. */
const OF_KEYS = {
  methods: ['GET', 'GET value', 'PUT value', 'DELETE value'],
  advice: 'takes GET, and GET, PUT and DELETE of /value?key=',
};
const CALLS: Record<string, typeof OF_KEYS> = {
  d1: { methods: ['POST'], advice: 'is SQL: POST statements' },
  analytics: { methods: ['POST'], advice: 'is Analytics Engine: POST {"query": "SELECT …"}' },
  queues: { methods: ['GET', 'POST'], advice: 'is a queue: it takes GET, and POST of {"action"}' },
  workflows: {
    methods: ['GET', 'GET value', 'PUT value', 'POST'],
    advice: 'is a workflow: it takes GET, GET and PUT of /value?key=<id>, and POST of {"id", "action"}',
  },
};

export function dataEndpoints(deps: ControlDeps): Endpoint[] {
  const endpoint = (method: Endpoint['method'], summary: string, description: string, path = ''): Endpoint => ({
    method,
    path: `/_admin/:slug/data/:binding${path}`,
    access: 'owner',
    keyActions: ['data'],
    summary,
    description,
    responses: { 200: 'What the binding answers.', ...RESPONSES },
    handle: (call) =>
      handle(deps, call, `${method} /_admin/${call.params.slug}/data/${call.params.binding}${path}`, path !== ''),
  });
  return [
    endpoint(
      'POST',
      'Run SQL, or act on a queue or a workflow',
      'Of a D1 binding: `{"statements": [{"sql": "…", "params": […]}]}`, in one transaction. Answers a list of D1 results. Of an Analytics Engine binding: `{"query": "SELECT …"}`, on all datasets of the deployment; only reads, 10,000 rows and 10 seconds at most. Answers `{"meta", "data", "rows"}`. Of a queue: `{"action": "pause"}` (or `resume`, `purge`). Answers how many messages wait. Of a workflow: `{"id": "…", "action": "pause"}` (or `resume`, `restart`, `terminate`), or `{"id": "…", "event": {"type": "…", "payload": …}}`. Answers the status.',
    ),
    endpoint(
      'GET',
      'List keys or instances, or measure a queue',
      'Of a KV or R2 binding: a page, by `prefix`, `cursor` and `limit`. Of a queue: how many messages wait, and whether it is paused. Of a workflow: a page of its instances with status and times, the newest first, by `status`, `cursor` and `limit` (at most 100); a page may hold fewer, and the last one has no cursor.',
    ),
    endpoint(
      'GET',
      'Read a value',
      'Of a KV or R2 binding: the value of `?key=`. Of a workflow: the status of the instance with that id.',
      '/value',
    ),
    endpoint(
      'PUT',
      'Write a value',
      'Of a KV or R2 binding: the body as the value of `?key=`; KV takes `ttl` in seconds and `metadata` as JSON. Of a workflow: starts an instance with that id; the body is its parameters, as JSON.',
      '/value',
    ),
    endpoint('DELETE', 'Delete a value', 'Of a KV or R2 binding: `?key=`.', '/value'),
  ];
}

async function handle(deps: ControlDeps, call: Call, scope: string, ofValue: boolean): Promise<Response> {
  const owned = await requireOwner(deps, call, scope);
  if ('response' in owned) return owned.response;
  const { slug, bindings, state } = owned.deployment;
  if (state !== 'active') throw new Problem('conflict', `${slug} is ${state}; renew it to use its data.`);
  const all = ownedBindings(bindings);
  const bound = all.find(({ name }) => name === call.params.binding);
  if (!bound) {
    const names = all.map(({ name }) => name).join(', ') || 'none';
    throw new Problem('not_found', `${slug} has no data under the name ${call.params.binding}. It has: ${names}.`);
  }
  const { request, context } = call;
  const { key } = bound.binding;
  const { method, headers, body, signal } = request;
  const asked = new URL(request.url);
  const { methods, advice } = CALLS[key] ?? OF_KEYS;
  if (!methods.includes(ofValue ? `${method} value` : method) || (ofValue && !asked.searchParams.has('key')))
    throw new Problem('bad_request', `${bound.name} ${advice}.`);
  if (!ofValue) asked.searchParams.delete('key');
  const sent = [...headers].filter(([name]) => name === 'content-type' || name === 'content-length');
  const late = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  if (key === 'analytics' && deps.config.cluster.database !== '') {
    // On several nodes the query runs within workerd, which has no time limit for it. The limit begins once the instance runs.
    await deps.runtime.acquire(slug);
    timer = setTimeout(() => late.abort(), QUERY_TIMEOUT_MS);
  }
  const path = `${DATA_PATH}${key}/${bound.name}${asked.search}`;
  const answer = await deps
    .askSystem(
      slug,
      {
        ...{ method, path, headers: sent, body: method === 'GET' ? null : body },
        signal: AbortSignal.any([signal, late.signal]),
      },
      { ...context, tenantPath: '/' },
    )
    .catch((error) => {
      throw late.signal.aborted ? new Problem('bad_request', timedOut(QUERY_TIMEOUT_MS)) : error;
    })
    .finally(() => clearTimeout(timer));
  if (answer.status === 404) throw new Problem('not_found', `${bound.name} has no such key; list its keys first.`);
  if (answer.status === 400) {
    const { error } = (await answer.json().catch(() => ({}))) as { error?: string };
    throw new Problem('bad_request', error ?? 'The binding refused it.');
  }
  const kept = HANDED_ON.flatMap((name) => {
    const value = answer.headers.get(name);
    return value === null ? [] : [[name, value] as [string, string]];
  });
  return new Response(answer.body, { status: answer.status, headers: [...kept, ...CONFINED] });
}
