/** The HTTP side of a SQL process: reads D1's requests from connections and writes the answers. */
import type { Call } from '../store-process/calls/call.ts';
import { CallConnections } from '../store-process/calls/connections.ts';
import { BodyCut } from '../store-process/refusal.ts';
import { SqlFailure } from './failure.ts';
import { MAX_HEAD_BYTES, MAX_REQUEST_BYTES } from './limits.ts';
import {
  BOOKMARK_HEADER,
  failureText,
  parseQueries,
  type Query,
  type ResultsFormat,
  resultsFormat,
} from './protocol.ts';

/** A request whose body was read and checked. */
export interface SqlRequest {
  queries: Query[];
  format: ResultsFormat;
  /** The handler uses a session: it wants a bookmark back. */
  inSession: boolean;
  call: Call;
}

export interface SqlEvents {
  /** The head of a request came. */
  received(call: Call): void;
  /** The request is complete; answer it with `answer`. */
  query(request: SqlRequest): void;
  /** `POST /backup/begin` and `/backup/end`: the host's own. A handler that asks for them, by `_wrappedFetch` of a session, gets 404. */
  backup(step: 'begin' | 'end'): string;
  /** The answer went to the socket, or the connection broke. */
  finished(call: Call): void;
}

/** Listens on nothing: the caller hands it connections. */
export function sqlConnections(events: SqlEvents): CallConnections {
  return new CallConnections({
    maxHeadBytes: MAX_HEAD_BYTES,
    failed: (error) => {
      process.stderr.write(`${JSON.stringify({ level: 'error', message: String(error) })}\n`);
    },
    handle: (call) => {
      events.received(call);
      call.onClose(() => events.finished(call));
      void serve(call, events);
    },
  });
}

export function answer(call: Call, status: number, body: string, bookmark?: string): void {
  const fields = ['content-type', 'application/json'];
  if (bookmark !== undefined) fields.push(BOOKMARK_HEADER, bookmark);
  call.answer(status, fields, [Buffer.from(body)]);
}

async function serve(call: Call, events: SqlEvents): Promise<void> {
  const { method, target } = call;
  const question = target.indexOf('?');
  const path = question < 0 ? target : target.slice(0, question);
  if (method !== 'POST') return decline(call, 405, failureText('only POST'));
  switch (call.origin !== undefined && path.startsWith('/backup/') ? '' : path) {
    case '/query':
    case '/execute':
      return query(call, question < 0 ? '' : target.slice(question), events);
    case '/backup/begin':
      return decline(call, 200, events.backup('begin'));
    case '/backup/end':
      return decline(call, 200, events.backup('end'));
    default:
      // dump() was for alpha databases only; today's D1 refuses it too. The binding shows the status alone.
      return decline(call, 404, failureText('Not found'));
  }
}

async function query(call: Call, search: string, events: SqlEvents): Promise<void> {
  const text = await bodyText(call);
  if (text === undefined) return;
  let queries: Query[];
  try {
    queries = parseQueries(text);
  } catch (error) {
    if (!(error instanceof SqlFailure)) throw error;
    return answer(call, 400, failureText(error.message));
  }
  const inSession = call.field(BOOKMARK_HEADER) !== undefined;
  events.query({ queries, format: resultsFormat(search), inSession, call });
}

/** Undefined where there is nothing to run: the body was too large, which is answered here, or the caller went away. */
async function bodyText(call: Call): Promise<string | undefined> {
  try {
    const pieces = await call.body.all(MAX_REQUEST_BYTES);
    if (pieces) return (pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces)).toString();
    await decline(call, 413, failureText(`the request exceeds ${MAX_REQUEST_BYTES} bytes`));
  } catch (error) {
    if (!(error instanceof BodyCut)) throw error;
  } finally {
    call.body.release();
  }
  return undefined;
}

/** An answer that needs nothing of the body. */
async function decline(call: Call, status: number, body: string): Promise<void> {
  await call.body.drain();
  answer(call, status, body);
}
