/**
 * Forwards requests that control received for a tenant to the tenant's instance. It counts them as the edges do, so that
 * an instance with a paid request in flight does not count as idle.
 */

import path from 'node:path';
import type { UpstreamPool } from '../http/client/pool.ts';
import {
  type AnswerWatch,
  fetchInstance,
  type InstanceCall,
  instancePool,
  openInstanceSocket,
} from '../http/instance/fetch.ts';
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
      const watch = watchOf(count, instance.generation);
      const answer = await fetchInstance(pool, { ...asked, idleTimeoutMs, watch }, context);
      if (answer.status >= 500) count.errors += 1;
      return answer;
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
        const watch = watchOf(count, instance.generation);
        const call = { path: context.tenantPath ?? '/', headers, signal, idleTimeoutMs, extra, watch };
        const opened = await openInstanceSocket(pool, call, context);
        if (opened instanceof Response) return opened;
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

/** The request counts as in flight until its answer has ended, failed or been given up. */
function watchOf(count: EdgeTraffic, generation: number): AnswerWatch {
  return {
    bytes(more) {
      count.bytesOut += more;
      count.instanceBytesOut ??= {};
      count.instanceBytesOut[generation] = (count.instanceBytesOut[generation] ?? 0) + more;
    },
    end() {
      count.inFlight -= 1;
    },
  };
}
