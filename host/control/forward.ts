/**
 * Sends a request that control received for a tenant on to the tenant's instance, streaming both ways, with the same
 * fields that an edge would have set.
 */
import { Readable } from 'node:stream';
import { Pool } from 'undici';
import { Field, requestField } from '../edge/http1/fields.ts';
import { CF_HEADER } from '../edge/instance-request.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { EdgeContext, EdgeTraffic } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { ForwardToTenant } from './tenant-requests.ts';

/** Connections to one instance; more callers wait. */
const CONNECTIONS = 128;
/** workerd closes idle connections after 5 s: be first. */
const KEEP_ALIVE_MS = 4_000;
/** Fields of an answer that belong to the connection (RFC 9110, 7.6.1). */
const HOP_FIELDS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
const NO_BODY = new Set(['GET', 'HEAD']);

export interface Forwarding {
  forward: ForwardToTenant;
  /** Requests in flight by slug: an instance with any is not idle. Resets the counters. */
  traffic(): EdgeTraffic[];
  close(): Promise<void>;
}

export function createForwarding(runtime: Pick<Runtime, 'acquire'>, idleTimeoutMs: number): Forwarding {
  const pools = new Map<string, { socket: string; pool: Pool }>();
  const counters = new Map<string, EdgeTraffic>();

  function poolFor(slug: string, socket: string): Pool {
    const known = pools.get(slug);
    if (known?.socket === socket) return known.pool;
    void known?.pool.close();
    const pool = new Pool('http://localhost', {
      socketPath: socket,
      connections: CONNECTIONS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      headersTimeout: idleTimeoutMs,
      bodyTimeout: idleTimeoutMs,
    });
    pools.set(slug, { socket, pool });
    return pool;
  }

  function counter(slug: string): EdgeTraffic {
    const known = counters.get(slug);
    if (known) return known;
    const fresh = { slug, requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 };
    counters.set(slug, fresh);
    return fresh;
  }

  async function send(slug: string, request: Request, context: EdgeContext, headers: Record<string, string>) {
    const { socket } = await runtime.acquire(slug);
    const sent = poolFor(slug, socket).request({
      method: request.method as 'GET',
      path: context.tenantPath ?? '/',
      headers: instanceHeaders(request.headers, context, headers),
      body: request.body && !NO_BODY.has(request.method) ? Readable.fromWeb(request.body as never) : null,
      signal: request.signal,
      responseHeaders: 'raw',
    });
    return await sent.catch((error: Error & { code?: string }) => {
      if (error.code === 'UND_ERR_HEADERS_TIMEOUT') {
        throw new Problem('upstream_timeout', `${slug} did not answer in time.`, { cause: error });
      }
      throw new Problem('upstream_failed', `${slug} closed the connection without an answer.`, { cause: error });
    });
  }

  return {
    async forward(slug, request, context, headers) {
      const count = counter(slug);
      count.requests += 1;
      count.inFlight += 1;
      try {
        const answer = await send(slug, request, context, headers);
        if (answer.statusCode >= 500) count.errors += 1;
        answer.body.on('data', (chunk: Buffer) => {
          count.bytesOut += chunk.length;
        });
        answer.body.pause();
        answer.body.once('close', () => {
          count.inFlight -= 1;
        });
        const bodiless = request.method === 'HEAD' || [204, 205, 304].includes(answer.statusCode);
        if (bodiless) answer.body.resume();
        return new Response(bodiless ? null : (Readable.toWeb(answer.body) as unknown as ReadableStream), {
          status: answer.statusCode,
          headers: answerHeaders(answer.headers as unknown as string[]),
        });
      } catch (error) {
        count.errors += 1;
        count.inFlight -= 1;
        throw error;
      }
    },
    traffic() {
      const report = [...counters.values()].filter((count) => count.requests > 0 || count.inFlight > 0);
      const copy = report.map((count) => ({ ...count }));
      for (const count of report) Object.assign(count, { requests: 0, errors: 0, bytesIn: 0, bytesOut: 0 });
      for (const [slug, count] of counters) if (count.inFlight === 0) counters.delete(slug);
      return copy;
    },
    async close() {
      await Promise.all([...pools.values()].map(({ pool }) => pool.destroy()));
    },
  };
}

/** The caller's fields without those of the hop and those only the host may set, then the host's own. */
function instanceHeaders(from: Headers, context: EdgeContext, extra: Record<string, string>): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of from) if (requestField(name) === Field.keep) headers[name] = value;
  const length = from.get('content-length');
  if (length !== null) headers['content-length'] = length;
  return {
    ...headers,
    host: context.host || 'localhost',
    'cf-connecting-ip': context.clientIp,
    'x-forwarded-for': context.clientIp,
    'x-forwarded-proto': context.proto,
    'x-forwarded-host': context.host,
    ...(context.prefix ? { 'x-forwarded-prefix': context.prefix } : {}),
    'x-request-id': context.requestId,
    [CF_HEADER]: JSON.stringify({ httpProtocol: 'HTTP/1.1', tlsVersion: '', tlsCipher: '' }),
    ...extra,
  };
}

function answerHeaders(raw: string[]): Headers {
  const headers = new Headers();
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = String(raw[index]).toLowerCase();
    if (!HOP_FIELDS.has(name)) headers.append(name, Buffer.from(String(raw[index + 1]), 'latin1').toString('latin1'));
  }
  return headers;
}
