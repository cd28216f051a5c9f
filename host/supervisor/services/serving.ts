/** What goes on while the host serves: all that is done by the clock, certificates, deploys of the built-in tenants. */
import { AutoRenewer } from '../../control/auto-renewer.ts';
import { type BuiltinOwner, deployBuiltins } from '../../control/builtin-tenants.ts';
import type { Network } from '../../payments/network/index.ts';
import { unfenced } from '../../registry/fences.ts';
import { keepRoom } from '../../registry/room.ts';
import { readSetting, savedSetting } from '../../registry/settings.ts';
import { service } from '../service.ts';
import { TIMED_WORK } from '../timed-work.ts';
import { assetStore, builtinsWaiting, codeStore, scheduler, stores } from './base.ts';
import { backups, controlDeps, controlServer, deploymentBodies, domainChecks, operatorApi } from './control.ts';
import { DRAIN_MS, edgeProcesses } from './edge-processes.ts';
import { folders, log } from './given.ts';
import { clusteredObjects, instanceClient, runtime } from './instances.ts';
import { observation } from './observation.ts';
import { network } from './payments.ts';
import { timedWork } from './timed-work.ts';
import { tls } from './traffic.ts';

const DOMAIN_SWEEP_MS = 15_000;
const AUTO_RENEWALS_MS = 60_000;
const CODE_SWEEP_MS = 86_400_000;
/** Deploys that nobody pays for leave code in the bucket of all nodes. */
const SHARED_CODE_SWEEP_MS = 1_800_000;
const OVERDUE_ALARMS_MS = 15_000;
const FLUSH_USAGE_MS = 5_000;
const NETWORK_CHECK_MS = 10_000;
const TRAFFIC_MS = 1_000;
const ROOM_MS = 60_000;

/** All that is done by the clock. */
const timers = service({
  name: 'timers',
  needs: {
    scheduler,
    timedWork,
    backups,
    domainChecks,
    assetStore,
    clusteredObjects,
    codeStore,
    stores,
    runtime,
    instanceClient,
    observation,
    folders,
    log,
    controlDeps,
    controlServer,
  },
  async start({
    scheduler,
    timedWork,
    backups,
    domainChecks,
    codeStore,
    stores,
    folders,
    log,
    controlDeps,
    ...values
  }) {
    const { runtime, instanceClient, observation, assetStore, clusteredObjects } = values;
    const renewer = new AutoRenewer(controlDeps);
    scheduler.every(AUTO_RENEWALS_MS, 'automatic renewals', () =>
      stores.registry.leases.run(TIMED_WORK, () => renewer.run()),
    );
    await timedWork.start();
    backups.schedule(scheduler, log);
    scheduler.every(DOMAIN_SWEEP_MS, 'domains', () =>
      stores.registry.leases.run(TIMED_WORK, () => domainChecks.sweep()),
    );
    const sweepCode = (): Promise<void> =>
      codeStore
        .sweep((digests) => stores.deployments.versions.unusedCode(digests))
        .catch((error: Error) => {
          log.warn({ err: error }, 'code that nothing uses was not removed');
        });
    scheduler.every(CODE_SWEEP_MS, 'code', sweepCode);
    void sweepCode();
    const { cluster, registry } = stores;
    // The database of a cluster is elsewhere.
    if (!cluster) {
      scheduler.every(ROOM_MS, 'room of the registry', () =>
        keepRoom(registry.client, folders.data).catch((error: Error) => {
          log.warn({ err: error }, 'the registry has no room of its own for a full disk');
        }),
      );
    }
    if (cluster) {
      scheduler.every(SHARED_CODE_SWEEP_MS, 'code of all nodes', () =>
        stores.registry.leases.run(TIMED_WORK, () =>
          cluster.bucket.code.sweep((digests) => stores.deployments.versions.unusedCode(digests)),
        ),
      );
      const isGone = async (tenant: string) => (await stores.deployments.byTenant(tenant)) === undefined;
      scheduler.every(SHARED_CODE_SWEEP_MS, 'copies of static files', () => assetStore.trim(isGone));
      scheduler.every(OVERDUE_ALARMS_MS, 'alarms of nodes that ended', () =>
        stores.registry.leases.run(TIMED_WORK, async () => {
          const withObjects = await stores.deployments.withObjects();
          await clusteredObjects?.wakeOverdue(withObjects, (slug) => unfenced(() => runtime.acquire(slug)));
        }),
      );
    }
    scheduler.every(FLUSH_USAGE_MS, 'usage', () => stores.usage.flush());
    // For the instances alone: in usage, an edge has counted what it handed over.
    scheduler.every(TRAFFIC_MS, 'traffic of control', async () => runtime.reportTraffic(instanceClient.traffic()));
    scheduler.every(NETWORK_CHECK_MS, 'network health', () => observation.checkNetwork());
  },
});

const certificates = service({
  name: 'certificates',
  needs: { tls, controlServer },
  start: ({ tls }) => tls.start(),
});

/** Requests in flight end before anything stops that they may need. */
export const serving = service({
  name: 'serving',
  needs: { edgeProcesses, controlServer, operatorApi, timers, certificates },
  start: ({ edgeProcesses }) => edgeProcesses,
  stop: (edges) => edges.stop(DRAIN_MS),
});

/** Deploys the built-in tenants in the background: the host serves meanwhile. */
export const builtinDeploys = service({
  name: 'deploys of built-in tenants',
  needs: { controlDeps, deploymentBodies, network, instanceClient, builtinsWaiting, stores, serving },
  start({ controlDeps, deploymentBodies, network, instanceClient, builtinsWaiting, stores }) {
    const stopping = new AbortController();
    const { db } = stores.registry;
    void deployBuiltins(controlDeps, deploymentBodies, {
      owner: builtinOwner(network),
      records: {
        read: (slug) => readSetting(db, `builtin:${slug}`),
        save: async (slug, record) => void (await savedSetting(db, `builtin:${slug}`, record)),
      },
      forward: instanceClient.forward,
      waiting: builtinsWaiting,
      stopping: stopping.signal,
    });
    return stopping;
  },
  stop: (stopping) => stopping.abort(),
});

/** Built-in tenants belong to the wallet that receives the operator's money. */
function builtinOwner(network: Network): BuiltinOwner {
  const address = (network.mpp?.recipient ?? network.x402?.recipient ?? `0x${'0'.repeat(40)}`).toLowerCase();
  const chain = network.mpp?.chain.id ?? network.x402?.chain.id ?? 0;
  return { address, did: `did:pkh:eip155:${chain}:${address}` };
}
