/**
 * Forwards requests that control received for a tenant to the tenant's instance. It counts them as the edges do, so that
 * an instance with a paid request in flight does not count as idle.
 */

import path from 'node:path';
import type { UpstreamPool } from '../http/client/pool.ts';
import { fetchInstance, type InstanceCall, instancePool, openInstanceSocket } from '../http/instance/fetch.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { EdgeContext, EdgeTraffic } from '../shared/contracts.ts';
import { instanceKey } from '../shared/previews.ts';
import type { ForwardToTenant, OpenTenantSocket } from './tenant-requests.ts';

/** Beside the tenant's. */
const SYSTEM_SOCKET = 'system.sock';
const NO_BODY = new Set(['GET', 'HEAD']);

export interface InstanceClient {
  forward: ForwardToTenant;
  /** As `forward`, for a WebSocket handshake. */
  openSocket: OpenTenantSocket;
  /** Asks the host's own worker in the instance's process (host/runtime/system-worker.ts); counts as a request, too. */
  askSystem(slug: string, call: Omit<InstanceCall, 'idleTimeoutMs'>, context: EdgeContext): Promise<Response>;
  /** Counters by slug since the last call. */
  traffic(): EdgeTraffic[];
  close(): void;
}

/** @param idleTimeoutMs longest wait for a byte of an answer */
export function createInstanceClient(runtime: Pick<Runtime, 'acquire'>, idleTimeoutMs: number): InstanceClient {
  const pools = new Map<string, { socket: string; generation: number; pool: UpstreamPool }>();
  const counters = new Map<string, EdgeTraffic>();

  function poolFor(slug: string, { socket, generation }: { socket: string; generation: number }): UpstreamPool {
    const known = pools.get(slug);
    if (known?.socket === socket && known.generation === generation) return known.pool;
    known?.pool.close();
    const pool = instancePool(socket);
    pools.set(slug, { socket, generation, pool });
    return pool;
  }

  function counter(slug: string): EdgeTraffic {
    const known = counters.get(slug);
    if (known) return known;
    const fresh = { slug, requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 };
    counters.set(slug, fresh);
    return fresh;
  }

  async function call(
    tenant: string,
    asked: Omit<InstanceCall, 'idleTimeoutMs'>,
    context: EdgeContext,
    other?: string,
  ): Promise<Response> {
    const slug = instanceKey(tenant, context.preview);
    const count = counter(slug);
    count.requests += 1;
    count.inFlight += 1;
    try {
      const instance = await runtime.acquire(slug);
      const socket = other === undefined ? instance.socket : path.join(path.dirname(instance.socket), other);
      const pool = poolFor(other === undefined ? slug : `${slug} ${other}`, { ...instance, socket });
      const answer = await fetchInstance(pool, { ...asked, idleTimeoutMs }, context);
      if (answer.status >= 500) count.errors += 1;
      return counted(answer, count, instance.generation);
    } catch (error) {
      count.errors += 1;
      count.inFlight -= 1;
      throw error;
    }
  }

  return {
    forward(slug, request, context, extra, signal = request.signal) {
      const { method, headers } = request;
      const body = NO_BODY.has(method) ? null : request.body;
      return call(slug, { method, path: context.tenantPath ?? '/', headers, body, signal, extra }, context);
    },
    askSystem: (slug, asked, context) => call(slug, asked, context, SYSTEM_SOCKET),
    async openSocket(tenant, { headers }, context, extra, signal) {
      const slug = instanceKey(tenant, context.preview);
      const count = counter(slug);
      count.requests += 1;
      count.inFlight += 1;
      const done = () => {
        count.inFlight -= 1;
      };
      try {
        const instance = await runtime.acquire(slug);
        const pool = poolFor(slug, instance);
        const call = { path: context.tenantPath ?? '/', headers, signal, idleTimeoutMs, extra };
        const opened = await openInstanceSocket(pool, call, context);
        if (opened instanceof Response) return counted(opened, count, instance.generation);
        return {
          headers: opened.headers,
          join: (caller, received, fields) => opened.join(caller, received, fields).finally(done),
          abandon() {
            opened.abandon();
            done();
          },
        };
      } catch (error) {
        count.errors += 1;
        done();
        throw error;
      }
    },
    traffic() {
      const report = [...counters.values()].filter((count) => count.requests > 0 || count.inFlight > 0);
      const copy = report.map((count) => ({ ...count }));
      const none = { requests: 0, errors: 0, bytesIn: 0, bytesOut: 0 };
      for (const count of report) Object.assign(count, none, { instanceBytesOut: {} });
      for (const [slug, count] of counters) if (count.inFlight === 0) counters.delete(slug);
      return copy;
    },
    close() {
      for (const { pool } of pools.values()) pool.close();
    },
  };
}

/** The same answer; the request counts as in flight until its body has ended, failed or been given up. */
function counted(answer: Response, count: EdgeTraffic, generation: number): Response {
  if (!answer.body) {
    count.inFlight -= 1;
    return answer;
  }
  const reader = answer.body.getReader();
  let open = true;
  const done = () => {
    if (open) count.inFlight -= 1;
    open = false;
  };
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done: ended, value } = await reader.read();
        if (ended) {
          done();
          controller.close();
          return;
        }
        count.bytesOut += value.byteLength;
        count.instanceBytesOut ??= {};
        count.instanceBytesOut[generation] = (count.instanceBytesOut[generation] ?? 0) + value.byteLength;
        controller.enqueue(value);
      } catch (error) {
        done();
        controller.error(error);
      }
    },
    async cancel(reason) {
      done();
      await reader.cancel(reason);
    },
  });
  return new Response(body, { status: answer.status, statusText: answer.statusText, headers: answer.headers });
}
