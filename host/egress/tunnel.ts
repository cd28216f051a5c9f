/**
 * Connections that outlive a request: `connect()` (HTTP CONNECT) and outbound WebSockets. Both become two sockets
 * piped into each other, counted, and ended when nothing passes for the time limit.
 */
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { nodeHttp } from '../shared/node-http.ts';
import { Problem } from '../shared/problem.ts';
import {
  type Agents,
  asEgressProblem,
  edgeFields,
  endWith,
  hostHeader,
  type Outbound,
  pump,
  requestOptions,
} from './exchange.ts';
import { incoming, outgoing } from './headers.ts';

/**
 * Serves `connect()`. Settles when the tunnel ended.
 * @throws Problem when no connection came about
 */
export async function tunnel(outbound: Outbound, client: Duplex, head: Buffer): Promise<void> {
  const upstream = await dial(outbound);
  client.write('HTTP/1.1 200 OK\r\n\r\n');
  if (head.length > 0) upstream.write(head);
  await join(client, upstream, outbound);
}

/** @throws Problem */
export async function dial(outbound: Omit<Outbound, 'ownCaller' | 'stands'>): Promise<Socket> {
  const { target, way, resolver, signal } = outbound;
  const at =
    way.kind === 'unix'
      ? { path: way.path }
      : way.kind === 'edge'
        ? { host: way.host, port: way.port }
        : {
            host: target.host,
            port: target.port,
            lookup: resolver.lookupOf(await resolver.resolve(target, way)),
          };
  signal.throwIfAborted();
  const socket = connect({ ...at, allowHalfOpen: true, noDelay: true });
  // Later users of the connection learn of an error by `close`.
  socket.on('error', () => undefined);
  const abort = () => socket.destroy(signal.reason instanceof Error ? signal.reason : undefined);
  signal.addEventListener('abort', abort, { once: true });
  return new Promise((resolve, reject) => {
    socket.once('connect', () => {
      signal.removeEventListener('abort', abort);
      resolve(socket);
    });
    socket.once('error', (error) => reject(asEgressProblem(error, outbound)));
  });
}

/**
 * Serves an outbound WebSocket. Settles when it ended; an answer other than 101 is passed on as it is.
 * @throws Problem when nothing was answered
 */
export async function websocket(
  outbound: Outbound,
  agents: Agents,
  secure: boolean,
  asked: IncomingMessage,
  client: Socket,
  head: Buffer,
): Promise<void> {
  if (asked.headers.upgrade?.toLowerCase() !== 'websocket') {
    throw new Problem(
      'bad_request',
      'Only upgrades to websocket are supported; send the request without the Upgrade field.',
    );
  }
  const options = await requestOptions(outbound, agents, secure);
  const headers = outgoing(asked.rawHeaders, hostHeader(outbound.target), outbound.way.kind === 'edge');
  headers.push(...edgeFields(outbound, secure), 'connection', 'Upgrade', 'upgrade', 'websocket');
  const request = (secure ? https : nodeHttp).request({ ...options, method: 'GET', headers });
  endWith(request, outbound.signal);
  request.end();
  const answer = await new Promise<{ message: IncomingMessage; upgraded?: { socket: Duplex; head: Buffer } }>(
    (resolve, reject) => {
      request.once('upgrade', (message, socket, rest) => resolve({ message, upgraded: { socket, head: rest } }));
      request.once('response', (message) => resolve({ message }));
      request.once('error', (error) => reject(asEgressProblem(error, outbound)));
    },
  );
  if (!answer.upgraded) return plainAnswer(answer.message, asked, client, outbound);
  const { message, upgraded } = answer;
  const lines = ['HTTP/1.1 101 Switching Protocols', 'connection: Upgrade', 'upgrade: websocket'];
  const kept = incoming(message.rawHeaders);
  for (let index = 0; index < kept.length; index += 2) lines.push(`${kept[index]}: ${kept[index + 1]}`);
  client.write(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  if (upgraded.head.length > 0) client.write(upgraded.head);
  if (head.length > 0) upgraded.socket.write(head);
  await join(client, upgraded.socket, outbound);
}

function plainAnswer(
  message: IncomingMessage,
  asked: IncomingMessage,
  client: Socket,
  outbound: Outbound,
): Promise<void> {
  const reply = new nodeHttp.ServerResponse(asked);
  reply.shouldKeepAlive = false;
  reply.assignSocket(client);
  return new Promise((resolve) => {
    const done = () => {
      client.end();
      resolve();
    };
    reply.once('finish', done);
    reply.once('close', done);
    message.once('error', () => client.destroy());
    reply.writeHead(message.statusCode ?? 502, incoming(message.rawHeaders));
    pump(message, reply, outbound.allowance, 'in', () => client.destroy());
  });
}

/** Pipes both ways until both ended, or nothing passed for the tenant's time limit. */
export function join(client: Duplex, upstream: Duplex, { allowance, signal, stands }: Outbound): Promise<void> {
  stands();
  return new Promise((resolve) => {
    const both = [client, upstream];
    let open = both.length;
    let idle = setTimeout(end, allowance.limits.timeoutMs);
    function end(): void {
      clearTimeout(idle);
      for (const socket of both) socket.destroy();
    }
    signal.addEventListener('abort', end, { once: true });
    for (const [source, sink, direction] of [
      [client, upstream, 'out'],
      [upstream, client, 'in'],
    ] as const) {
      source.on('error', end);
      source.once('close', () => {
        sink.end();
        if (--open > 0) return;
        clearTimeout(idle);
        signal.removeEventListener('abort', end);
        resolve();
      });
      source.on('data', () => idle.refresh());
      pump(source, sink, allowance, direction, end);
    }
    idle = idle.refresh();
    if (signal.aborted) end();
  });
}
