/** GET /_admin/:slug/logs: the newest lines of the owner's log; as server-sent events with `Accept: text/event-stream`. */

import type { DeployKey } from '../../../registry/schema/deploy-keys.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import { Problem } from '../../../shared/problem.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import type { LogLine } from '../../node-logs.ts';
import { requireOwner } from '../../ownership.ts';

const DEFAULT_LIMIT = 200;
const MAX_LIMIT = 5_000;
/** A comment is sent this often, so that proxies keep a quiet stream open. */
const HEARTBEAT_MS = 15_000;

export function logsEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/:slug/logs',
    tool: 'logs',
    query: {
      limit: `how many, ${DEFAULT_LIMIT} without it`,
      since: 'only lines after this time, ISO 8601',
      after: 'only lines after the one with this id',
    },
    access: 'owner',
    keyActions: ['logs'],
    summary: "The owner's log",
    description:
      'Console output, exceptions with source-mapped stacks and platform events; secrets are masked. ' +
      `\`?limit=\` (default ${DEFAULT_LIMIT}), \`?since=\` (ISO time), \`?after=\` (id). With \`Accept: text/event-stream\`: ` +
      'the newest lines, then every further one; `Last-Event-ID` goes on where a stream was cut. With `?requests=true` ' +
      'each request as it ends, too (`{kind: "request", time, method, path, status, ms}`, without an id): these are not ' +
      'kept, and where there are very many, some are missing. The comment `: live` says when that has begun. Where the host ' +
      'has several nodes, each line names its `node`, and `missing` names the nodes that did not answer.',
    responses: {
      200: '`{entries: [{id, time, kind, node?, ...}], missing?}`, or events',
      403: 'Another wallet owns the slug.',
    },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/logs`);
      if ('response' in owned) return owned.response;
      return logsAnswer(deps, owned.deployment, call.request, owned.key);
    },
  };
}

/** @param key with which it is read: what follows the log ends with it @throws Problem `invalid_field` for what the request asks for */
export async function logsAnswer(
  deps: Pick<ControlDeps, 'nodeLogs' | 'keys'>,
  deployment: Pick<Deployment, 'slug' | 'tenant'>,
  { url, headers, signal }: Request,
  key?: DeployKey,
): Promise<Response> {
  const { slug, tenant } = deployment;
  const { searchParams } = new URL(url);
  const limit = numberOf(searchParams.get('limit'), 'limit', DEFAULT_LIMIT, MAX_LIMIT);
  const after = headers.get('last-event-id') || searchParams.get('after') || undefined;
  const since = timeOf(searchParams.get('since'));
  if ((headers.get('accept') ?? '').includes('text/event-stream')) {
    // A reader that was cut off wants all that it missed, not the newest lines alone.
    const resumed = headers.has('last-event-id');
    const watch = searchParams.get('requests') === 'true' ? slug : undefined;
    const ended = new AbortController();
    const query = { tenant, limit: resumed ? MAX_LIMIT : limit, after, since };
    const live = Promise.withResolvers<void>();
    const lines = deps.nodeLogs.follow(query, watch, ended.signal, live.resolve);
    return stream(deps, lines, live.promise, ended, key, signal);
  }
  const { lines, missing } = await deps.nodeLogs.read({ tenant, limit, after, since });
  return json({ slug, entries: lines.map(view), ...(missing.length > 0 ? { missing } : {}) });
}

/** @param live told to the reader, as a comment @param ended ends the lines */
function stream(
  { keys }: Pick<ControlDeps, 'keys'>,
  lines: AsyncGenerator<LogLine>,
  live: Promise<void>,
  ended: AbortController,
  key: DeployKey | undefined,
  signal: AbortSignal,
): Response {
  const encoder = new TextEncoder();
  let heartbeat: NodeJS.Timeout | undefined;
  const end = () => {
    clearInterval(heartbeat);
    ended.abort();
    endsWithKey?.();
    // It may wait at a line that nobody took: this lets go of the log.
    void lines.return(undefined).catch(() => undefined);
  };
  const endsWithKey = key && keys.whileValid(key.id, end);
  signal.addEventListener('abort', end);
  // Pulled, so that what a slow reader is behind with waits in the log's own bounded queue.
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      void live
        .then(() => ended.signal.aborted || controller.enqueue(encoder.encode(': live\n\n')))
        .catch(() => undefined);
      heartbeat = setInterval(() => {
        if (key) void keys.isValid(key.id).then((valid) => valid || end(), end);
        if ((controller.desiredSize ?? 0) > 0) controller.enqueue(encoder.encode(': quiet\n\n'));
      }, HEARTBEAT_MS);
    },
    async pull(controller) {
      const next = await lines.next().catch(() => ({ done: true as const, value: undefined }));
      if (next.done) {
        end();
        controller.close();
        return;
      }
      const entry = next.value;
      const id = 'id' in entry && entry.id !== undefined ? `id: ${entry.id}\n` : '';
      controller.enqueue(encoder.encode(`${id}data: ${JSON.stringify(view(entry))}\n\n`));
    },
    cancel: end,
  });
  // It may have ended while the deployment was looked up: no event says so any more.
  if (signal.aborted) end();
  return new Response(body, {
    headers: {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    },
  });
}

function view({ time, ...line }: LogLine) {
  return { ...line, time: iso(time) };
}

export function numberOf(
  text: string | null,
  name: string,
  fallback: number,
  highest = Number.MAX_SAFE_INTEGER,
): number {
  if (text === null || text === '') return fallback;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > highest) {
    throw new Problem('invalid_field', `${name} takes a whole number${highest < 1e9 ? ` up to ${highest}` : ''}.`);
  }
  return value;
}

function timeOf(text: string | null): number {
  if (text === null || text === '') return 0;
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new Problem('invalid_field', 'since takes an ISO time such as 2026-11-01T12:00:00Z.');
  return time;
}
