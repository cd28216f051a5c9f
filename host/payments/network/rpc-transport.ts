/**
 * JSON-RPC over HTTP as viem's `http()` speaks it, with its errors, on Node's own client. viem's makes a `Request`, an
 * `AbortSignal`, a `Response` and two streams of each call, which was a third of what a payment settled on a chain took.
 */
import http from 'node:http';
import https from 'node:https';
import {
  BaseError,
  createTransport,
  HttpRequestError,
  ResponseBodyTooLargeError,
  RpcRequestError,
  stringify,
  TimeoutError,
  type Transport,
} from 'viem';

/** As viem has it. */
const MAX_ANSWER_BYTES = 10_485_760;
/** Of the process: connections wait here for the next call, whichever client makes it. */
const AGENTS = { keepAlive: true, maxFreeSockets: 16 };
const HTTP = { request: http.request, agent: new http.Agent(AGENTS) };
const HTTPS = { request: https.request, agent: new https.Agent(AGENTS) };

/**
 * The node closed a kept connection just as it was used: what a busy process cannot see in time. Sent again, a
 * transaction is known by its hash.
 */
const CLOSED: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
}

type Call = { method: string; params?: unknown };

/** @param timeout ms; a call that is not answered by then fails, and is tried again `retryCount` times */
export function rpcTransport(url: string, { timeout, retryCount }: { timeout: number; retryCount: number }): Transport {
  const post = poster(url, timeout);
  let id = 0;
  return () =>
    createTransport({
      key: 'http',
      name: 'HTTP JSON-RPC',
      type: 'http',
      retryCount,
      timeout,
      async request({ method, params }: Call) {
        const body = { method, params };
        id += 1;
        const answer = await post(stringify({ jsonrpc: '2.0', id, ...body }), body);
        const { error, result } = documentOf(answer, url, body);
        if (error) throw new RpcRequestError({ body, error, url });
        return result as never;
      },
    });
}

/** Posts a document. @throws HttpRequestError, TimeoutError, ResponseBodyTooLargeError */
function poster(given: string, timeout: number): (document: string, body: Call) => Promise<Answer> {
  const { protocol, username, password, href } = new URL(given);
  const { request, agent } = protocol === 'https:' ? HTTPS : HTTP;
  const auth = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const options = { method: 'POST', ...(auth === ':' ? {} : { auth }) };
  const attempt = (document: string, body: Call, isFresh: boolean) =>
    new Promise<Answer>((resolve, reject) => {
      const failed = (cause: Error) => {
        clearTimeout(timer);
        reject(cause instanceof BaseError ? cause : new HttpRequestError({ body, cause, url: given }));
      };
      const how = { ...options, agent: isFresh ? false : agent, headers: headersOf(document) };
      const sent = request(href, how, (answer) => {
        const pieces: Buffer[] = [];
        let size = 0;
        answer.on('data', (piece: Buffer) => {
          size += piece.length;
          if (size > MAX_ANSWER_BYTES)
            answer.destroy(new ResponseBodyTooLargeError({ maxSize: MAX_ANSWER_BYTES, size }));
          else pieces.push(piece);
        });
        answer.on('error', failed);
        answer.on('end', () => {
          clearTimeout(timer);
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text: Buffer.concat(pieces).toString() });
        });
      });
      const timer = setTimeout(() => sent.destroy(new TimeoutError({ body, url: given })), timeout);
      sent.on('error', (error: NodeJS.ErrnoException) => {
        if (isFresh || !sent.reusedSocket || !CLOSED.has(error.code)) return failed(error);
        clearTimeout(timer);
        resolve(attempt(document, body, true));
      });
      sent.end(document);
    });
  return (document, body) => attempt(document, body, false);
}

function headersOf(document: string): http.OutgoingHttpHeaders {
  return { 'content-type': 'application/json', 'content-length': Buffer.byteLength(document) };
}

interface RpcDocument {
  result?: unknown;
  error?: { code: number; message: string };
}

/** @throws HttpRequestError for an answer that is none of JSON-RPC */
function documentOf({ status, headers, text }: Answer, url: string, body: Call): RpcDocument {
  const isOk = status >= 200 && status < 300;
  let document: RpcDocument | undefined;
  try {
    document = JSON.parse(text) as RpcDocument;
  } catch (cause) {
    if (isOk) throw new HttpRequestError({ body, cause: cause as Error, url });
  }
  const isFailure = typeof document?.error?.code === 'number' && typeof document.error.message === 'string';
  if (document && (isOk || isFailure)) return document;
  const retryAfter = headers['retry-after'];
  throw new HttpRequestError({
    body,
    details: text.slice(0, 300),
    headers: new Headers(retryAfter === undefined ? {} : { 'retry-after': retryAfter }),
    status,
    url,
  });
}
