/**
 * One outbound HTTP request of a tenant: connected to a checked address, streamed both ways, counted and bounded.
 * TLS is spoken here, because workerd hands its https requests to the proxy as they are.
 */
import type { Agent, ClientRequest, IncomingMessage, RequestOptions, ServerResponse } from 'node:http';
import https from 'node:https';
import type { Readable } from 'node:stream';
import { nodeHttp } from '../shared/node-http.ts';
import { OWN_CALLER_HEADER } from '../shared/own-caller.ts';
import { Problem } from '../shared/problem.ts';
import type { Allowance } from './allowance.ts';
import { incoming, outgoing } from './headers.ts';
import type { CheckedResolver } from './resolver.ts';
import type { Way } from './route.ts';
import type { Target } from './target.ts';

/** Largest head of an answer from outside, bytes. */
const MAX_HEAD_BYTES = 65_536;

/** The connections of one tenant. Never shared: what the operator opened for one slug is closed to all others. */
export interface Agents {
  outside: SchemeAgents;
  /** For this host's own edge. */
  edge: SchemeAgents;
}

interface SchemeAgents {
  http: Agent;
  https: https.Agent;
}

export interface Outbound {
  target: Target;
  way: Way;
  allowance: Allowance;
  resolver: CheckedResolver;
  /** Says to the edge who calls (host/shared/own-caller.ts). */
  ownCaller: string | undefined;
  /** Aborted when the time is over or the tenant went away; the reason is the Problem to answer. */
  signal: AbortSignal;
  /** To be called when a tunnel stands: from then on it is bounded by silence. */
  stands(): void;
}

/** Options for node:http(s) that lead to the checked address and nowhere else. Resolves names at the last moment. */
export async function requestOptions(outbound: Outbound, agents: Agents, secure: boolean): Promise<RequestOptions> {
  const { target, way, resolver } = outbound;
  const agent = agents[way.kind === 'edge' ? 'edge' : 'outside'][secure ? 'https' : 'http'];
  const base = { agent, path: target.path, maxHeaderSize: MAX_HEAD_BYTES };
  if (way.kind === 'unix') return { ...base, socketPath: way.path };
  const tls = secure && !target.literal ? { servername: target.host } : {};
  if (way.kind === 'edge') return { ...base, ...tls, host: way.host, port: way.port };
  const addresses = await resolver.resolve(target, way);
  return { ...base, ...tls, host: target.host, port: target.port, lookup: resolver.lookupOf(addresses) };
}

/** Instead of Node's option `signal`, which watches the whole life of the request and takes a tenth of a short one. */
export function endWith(request: ClientRequest, signal: AbortSignal): void {
  const end = () => request.destroy(signal.reason as Error);
  if (signal.aborted) end();
  else signal.addEventListener('abort', end, { once: true });
}

/** Whether TLS is spoken on the way: an own name without a TLS address, and unix sockets, are reached in plain HTTP. */
export function isSecure({ target, way }: Pick<Outbound, 'target' | 'way'>, edgeTls: boolean): boolean {
  if (way.kind === 'unix') return false;
  return target.kind === 'https' && (way.kind !== 'edge' || edgeTls);
}

/** `host` or `host:port` as a browser would send it. */
export function hostHeader({ kind, name, port }: Target): string {
  const implied = (kind === 'http' && port === 80) || (kind === 'https' && port === 443);
  return implied ? name.slice(0, name.lastIndexOf(':')) : name;
}

/**
 * Sends the request and streams the answer. Settles when the answer ended or was cut.
 * @throws Problem when nothing was answered yet
 */
export async function exchange(
  outbound: Outbound,
  agents: Agents,
  secure: boolean,
  asked: IncomingMessage,
  reply: ServerResponse,
): Promise<void> {
  const options: RequestOptions = {
    ...(await requestOptions(outbound, agents, secure)),
    method: asked.method ?? 'GET',
  };
  options.headers = framed(asked, outbound, secure);
  const answer = await send(options, secure, asked, outbound);
  await stream(answer, reply, outbound);
}

/** What the edge is told: which tenant calls, and that it asked for https although the hop is plain. */
export function edgeFields({ target, way, ownCaller }: Outbound, secure: boolean): string[] {
  if (way.kind !== 'edge') return [];
  const caller = ownCaller === undefined ? [] : [OWN_CALLER_HEADER, ownCaller];
  return target.kind === 'https' && !secure ? [...caller, 'x-forwarded-proto', 'https'] : caller;
}

function framed(asked: IncomingMessage, outbound: Outbound, secure: boolean): string[] {
  const headers = outgoing(asked.rawHeaders, hostHeader(outbound.target), outbound.way.kind === 'edge');
  headers.push(...edgeFields(outbound, secure));
  if (asked.headers['transfer-encoding'] !== undefined) headers.push('transfer-encoding', 'chunked');
  else if (
    asked.headers['content-length'] === undefined &&
    !/^(GET|HEAD|OPTIONS|DELETE|TRACE)$/.test(asked.method ?? '')
  ) {
    headers.push('content-length', '0');
  }
  return headers;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Twice is as once (RFC 9110, section 9.2.2). */
const IDEMPOTENT = /^(?:GET|HEAD|OPTIONS|TRACE|PUT|DELETE)$/;

/**
 * A kept connection may close just as it is used again: without a body the request is then sent once more, unless the
 * other side may have acted on it.
 */
async function send(
  options: RequestOptions,
  secure: boolean,
  asked: IncomingMessage,
  outbound: Outbound,
): Promise<IncomingMessage> {
  for (let attempt = 0; ; attempt++) {
    const request = (secure ? https : nodeHttp).request(options);
    endWith(request, outbound.signal);
    const body = hasBody(asked);
    const repeatable = !body && IDEMPOTENT.test(asked.method ?? '');
    try {
      return await new Promise<IncomingMessage>((resolve, reject) => {
        request.once('response', (answer) => {
          if (body) answer.once('close', () => dropRest(asked, request));
          // Node's client reads any three digits, and its server writes none below 100.
          if ((answer.statusCode ?? 0) >= 200) return resolve(answer);
          answer.destroy();
          reject(
            new Problem('egress_failed', `${outbound.target.name}: its answer has the status ${answer.statusCode}.`),
          );
        });
        request.once('error', reject);
        // Without a listener Node (24) drops the connection and says nothing to anybody.
        request.once('upgrade', (_answer, socket) => {
          socket.destroy();
          reject(
            new Problem(
              'egress_failed',
              `${outbound.target.name} switched to a protocol that was not requested; ask who runs it.`,
            ),
          );
        });
        if (body) pump(asked, request, outbound.allowance, 'out', reject);
        else request.end();
      });
    } catch (error) {
      if (request.reusedSocket && repeatable && attempt === 0 && !outbound.signal.aborted) continue;
      throw asEgressProblem(error, outbound);
    }
  }
}

function stream(answer: IncomingMessage, reply: ServerResponse, outbound: Outbound): Promise<void> {
  return new Promise((resolve) => {
    reply.once('close', () => {
      answer.destroy();
      resolve();
    });
    answer.once('error', () => reply.destroy());
    answer.once('close', () => {
      if (!answer.complete) reply.destroy();
    });
    outbound.signal.addEventListener('abort', () => reply.destroy(), { once: true });
    reply.writeHead(answer.statusCode ?? 502, phrase(answer.statusMessage), incoming(answer.rawHeaders));
    reply.flushHeaders();
    pump(answer, reply, outbound.allowance, 'in', () => reply.destroy());
  });
}

/**
 * Nobody wants what is left of an upload once the answer is through. It is read, counted and dropped: left unread it
 * would fill the connection, and workerd hands the answer to the handler only when its upload is written.
 */
function dropRest(asked: IncomingMessage, request: ClientRequest): void {
  if (asked.readableEnded) return;
  asked.unpipe(request);
  request.destroy();
  asked.resume();
}

/** Pipes and counts; `cut` is called once the hour's bytes are used up. */
export function pump(
  source: Readable,
  sink: NodeJS.WritableStream,
  allowance: Allowance,
  direction: 'in' | 'out',
  cut: (problem: Problem) => void,
): void {
  source.on('data', (chunk: Buffer) => {
    if (allowance.count(direction, chunk.length)) return;
    source.destroy();
    cut(new Problem('egress_limit', 'The hourly allowance of outbound bytes is used up; try again later.'));
  });
  source.pipe(sink);
}

/** Reason phrases are free text: one that cannot be sent on is dropped. */
function phrase(text: string | undefined): string {
  return text !== undefined && /^[\t\x20-\x7e]*$/.test(text) ? text : '';
}

/** What went wrong on the way out, in words for the tenant. Our own checks throw Problems, which pass unchanged. */
export function asEgressProblem(error: unknown, { target, signal }: Pick<Outbound, 'target' | 'signal'>): Problem {
  if (error instanceof Problem) return error;
  if (signal.aborted && signal.reason instanceof Problem) return signal.reason;
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
  const why = REASONS[code] ?? (code.startsWith('HPE_') ? 'its answer is not HTTP' : undefined);
  const tls = why === undefined && /CERT|SSL|TLS|SIGNATURE|ISSUER|SELF_SIGNED/.test(code);
  return new Problem(
    'egress_failed',
    `${target.name}: ${why ?? (tls ? `the TLS connection failed (${code})` : `the connection failed (${code})`)}.`,
    { extensions: { target: target.name } },
  );
}

const REASONS: Record<string, string> = {
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was closed before an answer',
  ETIMEDOUT: 'the connection timed out',
  ENETUNREACH: 'the network is not reachable',
  EHOSTUNREACH: 'the host is not reachable',
  HPE_HEADER_OVERFLOW: 'the headers of its answer are too large',
};
