/** What a deployment keeps, for its owner: SQL of D1, values of KV, objects of R2, through the deployment's own bindings. */
import { boundBindings, keepsData } from '../../../bindings/index.ts';
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

export function dataEndpoints(deps: ControlDeps): Endpoint[] {
  const endpoint = (method: Endpoint['method'], summary: string, description: string, path = ''): Endpoint => ({
    method,
    path: `/_admin/:slug/data/:binding${path}`,
    access: 'owner',
    summary,
    description,
    responses: { 200: 'What the binding answers.', ...RESPONSES },
    handle: (call) => handle(deps, call, `${method} /_admin/${call.params.slug}/data/${call.params.binding}${path}`),
  });
  return [
    endpoint(
      'POST',
      'Run SQL',
      'Of a D1 binding: `{"statements": [{"sql": "…", "params": […]}]}`, in one transaction. Answers a list of D1 results.',
    ),
    endpoint('GET', 'List keys', 'Of a KV or R2 binding: a page, by `prefix`, `cursor` and `limit`.'),
    endpoint('GET', 'Read a value', 'Of a KV or R2 binding: the value of `?key=`.', '/value'),
    endpoint(
      'PUT',
      'Write a value',
      'Of a KV or R2 binding: the body as the value of `?key=`; KV takes `ttl` in seconds and `metadata` as JSON.',
      '/value',
    ),
    endpoint('DELETE', 'Delete a value', 'Of a KV or R2 binding: `?key=`.', '/value'),
  ];
}

async function handle(deps: ControlDeps, call: Call, scope: string): Promise<Response> {
  const owned = await requireOwner(deps, call, scope);
  if ('response' in owned) return owned.response;
  const { slug, bindings, state } = owned.deployment;
  if (state !== 'active') throw new Problem('conflict', `${slug} is ${state}; renew it to use its data.`);
  const all = boundBindings(bindings).filter(({ binding }) => keepsData(binding));
  const bound = all.find(({ name }) => name === call.params.binding);
  if (!bound) {
    const names = all.map(({ name }) => name).join(', ') || 'none';
    throw new Problem('not_found', `${slug} has no data under the name ${call.params.binding}. It has: ${names}.`);
  }
  const { request, context } = call;
  const { key } = bound.binding;
  const { method, headers, body, signal } = request;
  const asked = new URL(request.url);
  const ofValue = asked.pathname.endsWith('/value');
  if ((method === 'POST') !== (key === 'd1') || (ofValue && !asked.searchParams.has('key')))
    throw new Problem(
      'bad_request',
      key === 'd1'
        ? `${bound.name} is SQL: POST statements.`
        : `${bound.name} takes GET, and GET, PUT and DELETE of /value?key=.`,
    );
  if (!ofValue) asked.searchParams.delete('key');
  const sent = [...headers].filter(([name]) => name === 'content-type' || name === 'content-length');
  const answer = await deps.askSystem(
    slug,
    {
      method,
      path: `${DATA_PATH}${key}/${bound.name}${asked.search}`,
      headers: sent,
      body: method === 'GET' ? null : body,
      signal,
    },
    { ...context, tenantPath: '/' },
  );
  if (answer.status === 404) throw new Problem('not_found', `${bound.name} has no such key.`);
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
