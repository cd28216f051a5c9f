/** The edge processes: from here on the host serves. What is sold, and all that control answers, waits for control. */
import path from 'node:path';
import { openPaymentsKey } from '../../payments/payments-key.ts';
import type { EdgeTraffic, SeenRequest } from '../../shared/contracts.ts';
import { ofInstanceKey } from '../../shared/previews.ts';
import { edgeInit } from '../process-settings.ts';
import { service } from '../service.ts';
import { clock, insideSocket, ownCallerKey, publicSocket, stores, tally } from './base.ts';
import { config, folders, log } from './given.ts';
import { runtime } from './instances.ts';
import { edges, liveRequests, routes, tls } from './traffic.ts';

/** How long requests in flight have when the host stops, ms. */
export const DRAIN_MS = 4_000;

/** Where edges hand over what control answers. */
export const controlSocket = service({
  name: 'control socket',
  needs: { folders },
  start: ({ folders }) => path.join(folders.run, 'control.sock'),
});

export const edgeProcesses = service({
  name: 'edge processes',
  needs: {
    config,
    log,
    publicSocket,
    insideSocket,
    controlSocket,
    tls,
    clock,
    ownCallerKey,
    runtime,
    routes,
    liveRequests,
    stores,
    tally,
    edges,
  },
  async start({
    config,
    log,
    publicSocket,
    insideSocket,
    controlSocket,
    tls,
    clock,
    ownCallerKey,
    runtime,
    routes,
    liveRequests,
    stores,
    tally,
    edges,
  }) {
    const { deployments, usage, blocks } = stores;
    async function countTraffic(traffic: EdgeTraffic[]): Promise<void> {
      runtime.reportTraffic(traffic);
      for (const { slug, requests, errors, bytesIn, bytesOut } of traffic) {
        // Long answers and sockets have seconds without a new request.
        if (requests + errors + bytesIn + bytesOut === 0) continue;
        const row = await deployments.bySlug(ofInstanceKey(slug).slug);
        if (!row) continue;
        usage.count(row.tenant, clock.now(), { requests, errors, bytesIn, bytesOut });
        tally.onTraffic({ tenant: row.tenant, requests, errors });
      }
    }
    const { challengeKey } = await openPaymentsKey(stores.keyFiles('payments.key'));
    await edges.start({
      local: {
        acquire: ({ slug }: { slug: string }) => runtime.acquire(slug),
        traffic: (traffic: EdgeTraffic[]) =>
          countTraffic(traffic).catch((error) => log.warn({ err: error }, 'the requests of a second were not counted')),
        requests: (requests: SeenRequest[]) => liveRequests.tell(requests),
      },
      init: () => ({
        ...edgeInit(config, controlSocket, tls.edge, clock.offsetMs, ownCallerKey, challengeKey, blocks.ranges()),
        // One of several nodes serves once it hears of the others (nodes.ts).
        ...(stores.cluster ? { serveUntil: 0 } : {}),
      }),
      routes: () => routes.all(),
      watched: () => liveRequests.watched(),
      listeners: [
        { kind: 'http', socket: publicSocket },
        { kind: 'inside', socket: insideSocket },
        ...(tls.socket ? [{ kind: 'https' as const, socket: tls.socket }] : []),
      ],
    });
    // What was blocked while an edge was being set up it has not heard of.
    for (const child of edges.children)
      child.onRestart(() => child.channel().call('setBlockedRanges', { ranges: blocks.ranges() }));
    return edges;
  },
  stop: (edges) => edges.stop(DRAIN_MS),
});
