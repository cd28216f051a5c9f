/**
 * Queues that are consumed by another deployment of the same owner: a unix socket that speaks what workerd's `queue`
 * binding does, and hands each call to the instance of the consumer. A message is acknowledged once that one keeps it.
 */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { Problem } from '../../shared/problem.ts';
import type { BindingPlace, BindingServer, ServerHost } from '../server.ts';
import { closeNow, endAnswer, listenAt, readBounded } from '../tenant-socket.ts';
import type { QueueAnswer, QueueCall } from './call.ts';

const OPERATIONS: Record<string, QueueCall['method']> = { '/message': 'POST', '/batch': 'POST', '/metrics': 'GET' };
/** Of a batch of 256 KB in base64, with what is around it. */
const MOST_BYTES = 512 * 1_024;
/** Calls of one deployment at a time; those beyond it are refused, and the sender may try again. */
const MOST_AT_ONCE = 32;
/** The same of all deployments together: what they send is in memory meanwhile. */
const MOST_IN_ALL = 128;
let busyInAll = 0;
const HEADERS = ['x-msg-fmt', 'x-msg-delay-secs'];
const LONGEST_HEADER = 32;

export function queuesServer({ sendToQueue }: ServerHost): BindingServer | undefined {
  if (!sendToQueue) return undefined;
  return { serve: (place) => serve(place, (call) => sendToQueue(place.tenant, String(place.settings.queue), call)) };
}

function serve({ socket, permit }: BindingPlace, send: (call: QueueCall) => Promise<QueueAnswer>) {
  let server: Server | undefined;
  let busy = 0;
  async function answer(request: IncomingMessage): Promise<QueueAnswer> {
    const { pathname: operation } = new URL(request.url ?? '/', 'http://queue');
    const method = OPERATIONS[operation];
    if (method === undefined || method !== request.method) return { status: 404, text: 'Not Found' };
    if (busy >= MOST_AT_ONCE || busyInAll >= MOST_IN_ALL)
      return { status: 429, text: 'Too many messages are on their way to this queue' };
    busy++;
    busyInAll++;
    try {
      const body = await readBounded(request, MOST_BYTES);
      if (!body) return { status: 413, text: 'The messages are too large' };
      const sent = HEADERS.flatMap((name) => {
        const value = request.headers[name];
        return typeof value === 'string' && value.length <= LONGEST_HEADER ? [[name, value]] : [];
      });
      return await send({ method, operation, headers: Object.fromEntries(sent), body });
    } catch (error) {
      return error instanceof Problem
        ? { status: error.status, text: error.message }
        : { status: 503, text: 'The consumer of the queue did not answer; send it again' };
    } finally {
      busy--;
      busyInAll--;
    }
  }
  return {
    async open() {
      if (server) return permit();
      server = createServer({ requestTimeout: 60_000 }, (request, response) => {
        void answer(request).then(({ status, text }) => {
          // What send() throws: workerd's src/workerd/api/queue.c++.
          const error = { 'cf-queues-error-code': String(status), 'cf-queues-error-cause': line(text) };
          response.writeHead(status, status === 200 ? {} : error);
          endAnswer(request, response, text);
        });
      });
      server.maxConnections = 2 * MOST_AT_ONCE;
      await listenAt(server, socket);
      permit();
    },
    async close() {
      closeNow(server);
      server = undefined;
    },
  };
}

/** What a header may hold. */
function line(text: string): string {
  return text.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 300);
}
