/** HTTP servers of the supervisor's own process: control on a unix socket, the operator's API on loopback. */
import { rm } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { AnswerEarly } from '../control/bare-answers.ts';
import type { Handshakes } from '../control/handshakes.ts';
import { BACKLOG } from '../shared/backlog.ts';
import { Problem } from '../shared/problem.ts';
import { releasingBodies } from '../shared/request-body.ts';
import { wholeBody } from '../shared/whole-answer.ts';

export type Fetch = (request: Request) => Response | Promise<Response>;

export interface RunningServer {
  port: number;
  close(): Promise<void>;
}

export interface ServeOptions {
  /** Answers what needs no `Request`. */
  early?: AnswerEarly;
  /** Takes WebSocket handshakes; without it, they are requests like others. */
  handshakes?: Handshakes;
  /** No edge is before it that bounds how many call, and how slowly. */
  strangers?: boolean;
}

const STRANGERS_CONNECTIONS = 256;
const HEAD_MS = 15_000;
const REQUEST_MS = 60_000;

/** @param at path of a unix socket (replaced if stale), or a loopback port */
export async function serve(
  fetch: Fetch,
  at: { socket: string } | { host: string; port: number },
  { early = () => false, handshakes, strangers = false }: ServeOptions = {},
): Promise<RunningServer> {
  const answer = releasingBodies(fetch);
  const usual = getRequestListener(
    async (request, { outgoing: out }) => {
      const outgoing = out as http.ServerResponse;
      const response = await answer(request);
      const body = wholeBody(response);
      if (body === undefined) return cutOffWhenBroken(response, () => outgoing.destroy());
      outgoing.writeHead(response.status, [...response.headers].flat());
      outgoing.end(body);
      return RESPONSE_ALREADY_SENT;
    },
    { overrideGlobalObjects: false },
  );
  const server = http.createServer(
    {
      requestTimeout: strangers ? REQUEST_MS : 0,
      ...(strangers ? { headersTimeout: HEAD_MS, connectionsCheckingInterval: 5_000 } : {}),
      keepAliveTimeout: 65_000,
      shouldUpgradeCallback: (request) => handshakes?.expects(request) ?? false,
    },
    (request, response) => {
      if (!early(request, response)) void usual(request, response);
    },
  );
  if (strangers) server.maxConnections = STRANGERS_CONNECTIONS;
  const upgraded = new Set<Duplex>();
  server.on('upgrade', (request, socket, received) => {
    upgraded.add(socket);
    socket.once('close', () => upgraded.delete(socket));
    handshakes?.take(request, socket, received);
  });
  if ('socket' in at) await rm(at.socket, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE' || !('port' in at)) return reject(error);
      reject(new Problem('conflict', `The operator port ${at.port} is in use; choose another with --admin-port.`));
    });
    server.listen('socket' in at ? { path: at.socket, readableAll: false, backlog: BACKLOG } : at, resolve);
  });
  const address = server.address();
  return {
    port: address !== null && typeof address === 'object' ? (address as AddressInfo).port : 0,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        for (const socket of upgraded) socket.destroy();
      }),
  };
}

/**
 * An answer whose body breaks off ends the connection, so that nobody takes what came of it for the whole.
 * `@hono/node-server` would end it properly, with the error's message as its last bytes.
 */
function cutOffWhenBroken(response: Response, cut: () => void): Response {
  if (!response.body) return response;
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) controller.close();
          else controller.enqueue(value);
        } catch {
          cut();
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
  const { status, statusText, headers } = response;
  return new Response(body, { status, statusText, headers });
}
