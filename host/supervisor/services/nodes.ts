/** This process as one of the nodes of a host: who changes what, what the others change, and whether it may serve. */

import { unfenced } from '../../registry/fences.ts';
import { readClockOffset } from '../../registry/settings.ts';
import { monotonicNow } from '../../shared/monotonic.ts';
import { KeyedTurns } from '../keyed-turns.ts';
import { OtherNodes } from '../other-nodes.ts';
import { service } from '../service.ts';
import { clock, stores } from './base.ts';
import { egress, storage } from './binding-processes.ts';
import { edgeProcesses } from './edge-processes.ts';
import { log } from './given.ts';
import { runtime } from './instances.ts';
import { edges, routes } from './traffic.ts';

/** How often edges are told until when they may serve: several times in what a lease lasts, ms. */
const LIVENESS_MS = 1_000;

/** Changes of a deployment come one after the other, whichever node makes them. */
export const updates = service({
  name: 'turns of changes',
  needs: { stores },
  start: ({ stores }) => new KeyedTurns('update', stores.registry.leases),
});

/** Moves business time of all processes of this node. */
export const moveClock = service({
  name: 'moved clock',
  needs: { clock, edges, storage, egress },
  start: ({ clock, edges, storage, egress }) =>
    async function moveClock(offsetMs: number): Promise<void> {
      clock.setOffset(offsetMs);
      await Promise.all([
        edges.each('setClock', { offsetMs }),
        storage.channel().call('setClock', { offsetMs }),
        egress.channel().call('setClock', { offsetMs }),
      ]);
    },
});

/** What is wrong with this node as one of several; undefined: nothing. */
export interface NodeView {
  fault(): string | undefined;
}

export const nodes = service({
  name: 'nodes',
  needs: { stores, clock, routes, runtime, edges, edgeProcesses, updates, moveClock, log },
  async start({
    stores,
    clock,
    routes,
    runtime,
    edges,
    updates,
    moveClock,
    log,
  }): Promise<NodeView & { stop(): Promise<void> }> {
    const { cluster, registry, deployments, domains, blocks } = stores;
    if (!cluster) return { fault: () => undefined, stop: async () => undefined };
    const { leases, changes } = registry;
    const others = new OtherNodes({
      ...{ deployments, domains, clock, routes, changes, runtime, log },
      changesHere: (tenant) => updates.isUnderWay(tenant),
    });
    const tellAll = async () => void (await edges.each('setRoutes', await routes.all()));
    const tellBlocks = async () => {
      await blocks.reload();
      await edges.each('setBlockedRanges', { ranges: blocks.ranges() });
    };
    const tellClock = async () => {
      const offsetMs = await readClockOffset(registry.db);
      if (offsetMs !== clock.offsetMs) await moveClock(offsetMs);
    };
    let draining = false;
    const obey = async () => {
      const asked = await cluster.nodes.asked();
      if (asked.removed) {
        log.error('this node was removed from its cluster, and ends');
        await cluster.leases.end();
        process.kill(process.pid, 'SIGTERM');
      }
      if (asked.draining === draining) return;
      draining = asked.draining;
      await cluster.leases.leave(draining);
    };
    await others.begin();
    await tellAll();
    for (const child of edges.children) child.onRestart(tellAll);
    const sync = () => others.sync();
    changes.on('deployments', sync);
    changes.on('domains', sync);
    changes.on('blocks', tellBlocks);
    changes.on('settings:clock-offset-ms', tellClock);
    changes.on('nodes', obey);
    // What was changed before that was listened to, or while nobody waited for this node.
    const catchUp = async () => void (await Promise.all([others.catchUp(), tellBlocks(), tellClock(), obey()]));
    await leases.keep(cluster.leases.nodeLease, { gained: () => unfenced(catchUp), lost: () => undefined });
    await catchUp();
    /** As edges know it: they may still refuse what the lease would allow. */
    let serves = false;
    const tellLiveness = async () => {
      const until = cluster.leases.livesUntil();
      const at = until === undefined ? 0 : monotonicNow() + until - performance.now();
      await edges.each('serveUntil', { at });
      serves = until !== undefined;
    };
    await tellLiveness();
    const timer = setInterval(tellLiveness, LIVENESS_MS);
    return {
      fault() {
        if (draining) return 'draining: other nodes serve';
        return serves && cluster.leases.livesUntil() !== undefined ? undefined : 'no connection to the other nodes';
      },
      // Nothing is served, sent or changed here any more. Instances may take seconds to end, for which nobody waits.
      async stop() {
        clearInterval(timer);
        await cluster.retire();
      },
    };
  },
  stop: (nodes) => nodes.stop(),
});
