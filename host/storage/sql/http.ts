/** The HTTP side of a SQL process: reads D1's requests from connections and writes the answers. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { SqlFailure } from './failure.ts';
import { MAX_REQUEST_BYTES } from './limits.ts';
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
  request: IncomingMessage;
  response: ServerResponse;
}

export interface HttpEvents {
  /** The head of a request came. */
  received(request: IncomingMessage): void;
  /** The request is complete; answer it with `answer` or `refuse`. */
  query(request: SqlRequest): void;
  /** `POST /backup/begin` and `/backup/end`: the host's own, no handler can reach them. */
  backup(step: 'begin' | 'end'): string;
  /** The answer went to the socket, or the connection broke. */
  finished(request: IncomingMessage): void;
}

/** Listens on nothing: the caller hands it connections or calls listen(). */
export function createSqlServer(events: HttpEvents): Server {
  // Not imported: in one bundle with the keeper, the keeper would load it for nothing.
  const { createServer } = process.getBuiltinModule('node:http');
  const server = createServer((request, response) => {
    events.received(request);
    response.sendDate = false;
    response.once('close', () => events.finished(request));
    const url = request.url ?? '/';
    const question = url.indexOf('?');
    const path = question < 0 ? url : url.slice(0, question);
    if (request.method !== 'POST') return drain(request, () => answer(response, 405, failureText('only POST')));
    if (path === '/query' || path === '/execute') {
      return readBody(request, response, (body) => {
        let queries: Query[];
        try {
          queries = parseQueries(body);
        } catch (error) {
          if (!(error instanceof SqlFailure)) throw error;
          return answer(response, 400, failureText(error.message));
        }
        const inSession = request.headers[BOOKMARK_HEADER] !== undefined;
        const format = resultsFormat(question < 0 ? '' : url.slice(question));
        events.query({ queries, format, inSession, request, response });
      });
    }
    if (path === '/backup/begin' || path === '/backup/end') {
      const step = path === '/backup/begin' ? 'begin' : 'end';
      return drain(request, () => answer(response, 200, events.backup(step)));
    }
    // dump() was for alpha databases only; today's D1 refuses it too. The binding shows the status alone.
    drain(request, () => answer(response, 404, failureText('Not found')));
  });
  // The client decides when a connection ends: ours to close one could cross a request on its way.
  server.keepAliveTimeout = 0;
  server.requestTimeout = 0;
  server.headersTimeout = 60_000;
  return server;
}

export function answer(response: ServerResponse, status: number, body: string, bookmark?: string): void {
  const length = Buffer.byteLength(body);
  const headers = ['content-type', 'application/json', 'content-length', String(length)];
  if (bookmark !== undefined) headers.push(BOOKMARK_HEADER, bookmark);
  response.writeHead(status, headers);
  response.end(body);
}

function drain(request: IncomingMessage, done: () => void): void {
  request.once('end', done);
  request.resume();
}

function readBody(request: IncomingMessage, response: ServerResponse, done: (body: string) => void): void {
  const parts: Buffer[] = [];
  let length = 0;
  request.on('data', (part: Buffer) => {
    length += part.length;
    if (length <= MAX_REQUEST_BYTES) parts.push(part);
    else parts.length = 0;
  });
  request.once('end', () => {
    if (length > MAX_REQUEST_BYTES) {
      answer(response, 413, failureText(`the request exceeds ${MAX_REQUEST_BYTES} bytes`));
    } else {
      done(parts.length === 1 ? (parts[0]?.toString('utf8') ?? '') : Buffer.concat(parts).toString('utf8'));
    }
  });
}
