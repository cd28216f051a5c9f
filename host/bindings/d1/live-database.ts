/**
 * Serves D1 and Analytics Engine to previews on several nodes: databases are objects of the live instance, and a preview
 * has none of its objects. Each request goes on, streaming both ways, to the instance that is live on this node then.
 */
import http from 'node:http';
import type { BindingPlace, MakeBindingServer, ServedBinding, ServerHost } from '../server.ts';
import type { ServiceDirectory } from '../services/directory.ts';
import { closeNow, endAnswer, listenAt } from '../tenant-socket.ts';
import { MESSAGES } from './failure.ts';
import { BOOKMARK_HEADER, DATABASE_PATH, failureText } from './protocol.ts';

/** Requests to one database under way at once. */
const MOST_REQUESTS = 128;
const PASSED = new Set(['content-type', 'content-length', BOOKMARK_HEADER]);

/** @param key of the binding @param refusal status of an answer that says why there is none */
export function liveDatabases(key: string, refusal: number): MakeBindingServer {
  return ({ services, log }) =>
    services && { serve: (place) => new LiveDatabase({ ...place, key, refusal }, services, log) };
}

interface LivePlace extends BindingPlace {
  key: string;
  refusal: number;
}

class LiveDatabase implements ServedBinding {
  readonly #place: LivePlace;
  readonly #directory: Pick<ServiceDirectory, 'visit'>;
  readonly #log: ServerHost['log'];
  #server: http.Server | undefined;
  #requests = 0;

  constructor(place: LivePlace, directory: Pick<ServiceDirectory, 'visit'>, log: ServerHost['log']) {
    this.#place = place;
    this.#directory = directory;
    this.#log = log;
  }

  async open(): Promise<void> {
    if (this.#server) return;
    // workerd says the host in the request line alone.
    const server = http.createServer({ requestTimeout: 0, keepAliveTimeout: 0, requireHostHeader: false });
    this.#server = server;
    server.on('request', (request, response) => void this.#answer(request, response));
    server.on('clientError', (_error, socket) => socket.destroy());
    await listenAt(server, this.#place.socket);
    this.#place.permit();
  }

  async close(): Promise<void> {
    closeNow(this.#server);
    this.#server = undefined;
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    response.sendDate = false;
    this.#requests++;
    let failure: string = MESSAGES.unreachable;
    try {
      if (this.#requests > MOST_REQUESTS) return this.#refuse(request, response, MESSAGES.overloaded);
      const { systemSocket, during } = await this.#directory.visit(this.#place.slug);
      if (response.closed) return;
      failure = MESSAGES.lost;
      await during(() => passOn(request, response, systemSocket, this.#place));
    } catch (error) {
      this.#log.debug({ err: error, slug: this.#place.slug }, 'a preview did not reach its database');
      if (response.headersSent) response.destroy();
      else this.#refuse(request, response, failure);
    } finally {
      this.#requests--;
    }
  }

  #refuse(request: http.IncomingMessage, response: http.ServerResponse, message: string): void {
    response.writeHead(this.#place.refusal, { 'content-type': 'application/json' });
    endAnswer(request, response, failureText(message));
  }
}

/** Resolves when the answer is complete, or nobody waits for it any more. */
function passOn(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  socketPath: string,
  { key, name }: LivePlace,
) {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const { pathname, search } = new URL(request.url ?? '/', 'http://d1');
  const path = `${DATABASE_PATH}${key}/${name}${pathname}${search}`;
  // Where the callee may close first, Node (24.21) fails at the end of a body that was answered already.
  const headers = { ...passed(request.headers), connection: 'keep-alive' };
  const sent = http.request({ socketPath, method: request.method, path, headers, agent: false });
  sent.on('error', reject);
  sent.on('response', (answer) => {
    answer.on('error', reject).on('aborted', () => reject(new Error('the live instance ended within its answer')));
    response.writeHead(answer.statusCode ?? 502, passed(answer.headers));
    answer.pipe(response);
  });
  response.on('close', () => {
    sent.destroy();
    resolve();
  });
  request.pipe(sent);
  return promise;
}

function passed(headers: http.IncomingHttpHeaders): http.OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => PASSED.has(name)));
}
