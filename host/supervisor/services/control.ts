/**
 * Control: what the platform itself answers to callers, owners and the operator, and what it does by the clock.
 */
import path from 'node:path';
import { Backups } from '../../backup/backups.ts';
import { builtinApis } from '../../control/api/operator/builtin-apis.ts';
import { createApp } from '../../control/app.ts';
import { AutoRenewer } from '../../control/auto-renewer.ts';
import { bareAnswers } from '../../control/bare-answers.ts';
import { type BuiltinOwner, deployBuiltins } from '../../control/builtin-tenants.ts';
import { KeyRing } from '../../control/deploy-keys.ts';
import { deploymentParser } from '../../control/deployment-input.ts';
import type { ControlDeps } from '../../control/deps.ts';
import { handshakes } from '../../control/handshakes.ts';
import { Lifecycle } from '../../control/lifecycle.ts';
import { NodeLogs } from '../../control/node-logs.ts';
import { urlOf } from '../../control/pages/problem.ts';
import { paidByCookie } from '../../control/payment-cookie.ts';
import { renewalCredit } from '../../control/renewal-credit.ts';
import { endpointTable } from '../../control/routes.ts';
import { tenantPaymentPages } from '../../control/tenant-payment-page.ts';
import { tenantRequest, tenantSocket } from '../../control/tenant-requests.ts';
import { DomainChecks } from '../../domains/domain-checks.ts';
import { OwnershipRecords } from '../../domains/ownership-record.ts';
import { History } from '../../observability/history.ts';
import { HistorySampler } from '../../observability/history-sampler.ts';
import { NodeHistory } from '../../observability/node-history.ts';
import type { Network } from '../../payments/network/index.ts';
import { unfenced } from '../../registry/fences.ts';
import { keepRoom } from '../../registry/room.ts';
import { readSetting, savedSetting } from '../../registry/settings.ts';
import { Pipeline } from '../../runtime/deploy/pipeline.ts';
import { TenantCrons } from '../../scheduler/tenant-crons.ts';
import { createObservation } from '../observation.ts';
import { serveOperatorApi } from '../operator-api.ts';
import { postOutside } from '../outside.ts';
import { serve } from '../server.ts';
import { service } from '../service.ts';
import { TIMED_WORK, TimedWork } from '../timed-work.ts';
import {
  assetStore,
  builtins,
  builtinsWaiting,
  clock,
  codeStore,
  logs,
  metrics,
  publicUrl,
  sandbox,
  scheduler,
  stores,
  tally,
  trustedClock,
} from './base.ts';
import { egress, ownEgressSocket, storage } from './binding-processes.ts';
import { speechEngine } from './companions.ts';
import { controlSocket, DRAIN_MS, edgeProcesses } from './edge-processes.ts';
import { config, folders, log, settingOrigins, version } from './given.ts';
import { clusteredObjects, instanceClient, others, runtime, tenantData } from './instances.ts';
import { moveClock, nodes, updates } from './nodes.ts';
import { network, payments } from './payments.ts';
import { edges, liveRequests, routes, tls } from './traffic.ts';

const DOMAIN_SWEEP_MS = 15_000;
const AUTO_RENEWALS_MS = 60_000;
const CODE_SWEEP_MS = 86_400_000;
/** Whoever does not pay in the end leaves code for all nodes. */
const SHARED_CODE_SWEEP_MS = 1_800_000;
const OVERDUE_ALARMS_MS = 15_000;
const FLUSH_USAGE_MS = 5_000;
const NETWORK_CHECK_MS = 10_000;
const TRAFFIC_MS = 1_000;
const ROOM_MS = 60_000;

const startedAt = service({ name: 'start time', needs: {}, start: () => Date.now() });

/** Removes code that no version uses any more. */
const removeCode = service({
  name: 'removal of code',
  needs: { codeStore, stores },
  start: ({ codeStore, stores: { deployments } }) =>
    async function removeCode(digests: string[]): Promise<void> {
      const isUnused = async (digest: string) => (await deployments.versions.unusedCode([digest])).length > 0;
      await Promise.all(digests.map((digest) => codeStore.remove(digest, () => isUnused(digest))));
    },
});

const crons = service({
  name: 'crons',
  needs: { scheduler, stores, clock, log, runtime, metrics },
  start: ({ scheduler, stores, clock, log, runtime, metrics }) =>
    new TenantCrons({
      scheduler,
      history: stores.cronRuns,
      clock,
      log,
      run: (slug, cron, time) => runtime.runScheduled(slug, cron, time),
      onRun: (run) => metrics.onCronRun(run),
    }),
});

const lifecycle = service({
  name: 'lifecycle',
  needs: {
    config,
    folders,
    clock,
    trustedClock,
    log,
    logs,
    stores,
    routes,
    runtime,
    tenantData,
    removeCode,
    ownEgressSocket,
  },
  start: ({ config, folders, stores, tenantData, ownEgressSocket, ...values }) =>
    new Lifecycle({
      ...values,
      config: config.slugs,
      deployments: stores.deployments,
      tenantsFolder: folders.tenants,
      purgeStorage: tenantData.purge,
      post: (url, body, timeoutMs) => postOutside(ownEgressSocket, url, body, timeoutMs),
    }),
});

const timedWork = service({
  name: 'timed work',
  needs: { scheduler, lifecycle, crons, stores },
  start: ({ scheduler, lifecycle, crons, stores }) =>
    new TimedWork({ scheduler, lifecycle, crons, deployments: stores.deployments, registry: stores.registry }),
});

const pipeline = service({
  name: 'deploy pipeline',
  needs: { config, folders, clock, codeStore, sandbox },
  start({ config, folders, clock, codeStore, sandbox }) {
    const { heapMb, memoryBytes, startTimeoutMs, maxCodeBytes } = config.runtime;
    return new Pipeline({
      codeStore,
      sandbox,
      runFolder: folders.run,
      now: () => clock.now(),
      maxBytes: maxCodeBytes,
      heapMb,
      memoryBytes,
      startTimeoutMs,
    });
  },
  stop: (pipeline) => pipeline.close(),
});

const deploymentBodies = service({
  name: 'parser of deployments',
  needs: { config },
  start: ({ config }) => deploymentParser(config.runtime),
});

const nodeLogs = service({
  name: 'logs of all nodes',
  needs: { logs, liveRequests, others, clock },
  start: ({ clock, ...parts }) => new NodeLogs({ ...parts, now: () => clock.now() }),
});

const controlDeps = service({
  name: 'control',
  needs: {
    config,
    clock,
    log,
    logs,
    nodeLogs,
    publicUrl,
    stores,
    routes,
    pipeline,
    runtime,
    network,
    payments,
    tenantData,
    instanceClient,
    assetStore,
    codeStore,
    removeCode,
    builtins,
    timedWork,
    updates,
  },
  start({ stores, network, tenantData, codeStore, assetStore, instanceClient, timedWork, ...values }): ControlDeps {
    const { deployments, secrets, domains, usage, blocks } = stores;
    const { builtins, config, publicUrl } = values;
    const enabled = builtins.filter(({ name }) => config.builtinTenants.enabled.includes(name));
    const { forward } = instanceClient;
    const apis = builtinApis(enabled, { deployments, secrets, forward, publicUrl });
    return {
      ...values,
      deployments,
      keys: new KeyRing(stores.deployKeys, values.clock),
      secrets,
      domains,
      usage,
      blocks,
      assets: assetStore,
      codeStore,
      renewalCredit: renewalCredit(enabled, apis),
      askSystem: instanceClient.askSystem,
      storageUsage: tenantData.usage,
      async releaseCode(digest) {
        codeStore.release(digest);
        await values.removeCode([digest]).catch((error: Error) => {
          values.log.warn({ err: error }, 'refused code was not removed; tried again within a day');
        });
      },
      // Whichever node is first deploys them, and makes their keys; the others find it done.
      builtinTurns: { run: (work) => stores.registry.leases.exclusively('built-in tenants', work) },
      // Jobs that are planned outlive the lease of whoever changes something.
      scheduleChanged: () => void unfenced(() => timedWork.plan()),
      demoWalletKey: network.name === 'local' ? network.wallets?.at(-1)?.privateKey : undefined,
    };
  },
});

export const observation = service({
  name: 'observation',
  needs: {
    config,
    version,
    log,
    startedAt,
    metrics,
    stores,
    network,
    runtime,
    payments,
    crons,
    edges,
    storage,
    egress,
    builtinsWaiting,
    speechEngine,
    nodes,
  },
  start: ({ config, stores, edges, storage, egress, speechEngine, nodes, ...values }) =>
    createObservation({
      ...values,
      nodeFault: stores.cluster && (() => nodes.fault()),
      registry: stores.registry,
      deployments: stores.deployments,
      children: [...edges.children, storage, egress],
      builtins: config.builtinTenants.enabled,
      speechEngine: speechEngine?.engine,
    }),
});

/** What happened in each minute, for charts. */
const history = service({
  name: 'history',
  needs: { folders, tally, log, runtime, edges, storage, egress, stores },
  async start({ folders, tally, log, runtime, edges, storage, egress, stores }) {
    const history = await History.open(folders.history);
    const sampler = new HistorySampler({
      history,
      tally,
      log,
      dataFolder: folders.data,
      processes: () => [
        { group: 'supervisor', pid: process.pid },
        ...edges.children.map(({ pid }) => ({ group: 'edge' as const, pid })),
        { group: 'storage', pid: storage.pid },
        { group: 'egress', pid: egress.pid },
      ],
      edges: () =>
        edges.children.map((child) => ({
          process: child.name,
          read: async () => child.channel().call('metrics', undefined),
        })),
      instances() {
        const running = runtime.list().filter(({ status }) => status.state !== 'cold');
        const memoryBytes = running.reduce((sum, { status }) => sum + (status.memoryBytes ?? 0), 0);
        const instances = running.reduce((sum, { status }) => sum + (status.instances ?? 1), 0);
        return { running: instances, memoryBytes };
      },
      deployments: async () => (await stores.deployments.countByState()).active ?? 0,
    });
    sampler.start();
    return { history, sampler };
  },
  async stop({ history, sampler }) {
    await sampler.stop();
    await history.close();
  },
});

const domainChecks = service({
  name: 'domain checks',
  needs: { config, stores, clock, trustedClock, log, tls, routes },
  start: ({ config, stores: { domains, deployments }, clock, trustedClock, log, tls, routes }) =>
    new DomainChecks({
      domains,
      records: new OwnershipRecords(config.domains.resolver),
      clock,
      trustedNow: () => trustedClock.now(),
      log,
      registrarTokenHashes: config.domains.registrarTokens,
      servesAtOnce: tls.servesAtOnce,
      // What certificates do from here on is no work of the lease of a sweep.
      onChange: (_domain, tenant) =>
        unfenced(async () => {
          const row = await deployments.byTenant(tenant);
          if (row) await routes.push(row.slug);
          tls.namesChanged();
        }),
    }),
});

const backups = service({
  name: 'backups',
  needs: { config, folders, version, clock, trustedClock, storage, runtime },
  start: ({ config, folders, version, clock, trustedClock, storage, runtime }) =>
    new Backups({
      config,
      dataFolder: folders.data,
      hostVersion: version,
      trustedNow: async () => (await trustedClock.now()) - clock.offsetMs,
      live: {
        copyStores: (folder) => storage.channel().call('backup', { folder }),
        standStill: (tenant, work) => runtime.standStill(tenant, work),
        serviceFolders: () => new Map(runtime.list().map(({ tenant, slug }) => [tenant, path.join(folders.run, slug)])),
      },
    }),
});

const endpoints = service({
  name: 'endpoints',
  needs: { controlDeps, deploymentBodies, domainChecks, stores },
  start: ({ controlDeps, deploymentBodies, domainChecks, stores }) =>
    endpointTable(controlDeps, deploymentBodies, domainChecks, stores.cronRuns),
});

/** Of all nodes. */
const nodeHistory = service({
  name: 'history of all nodes',
  needs: { history, others },
  start: ({ history, others }) => new NodeHistory({ ...history, others }),
});

export const operatorApi = service({
  name: 'operator API',
  needs: {
    controlDeps,
    stores,
    folders,
    clock,
    observation,
    nodeHistory,
    tls,
    settingOrigins,
    startedAt,
    edges,
    storage,
    egress,
    timedWork,
    moveClock,
    backups,
    instanceClient,
    version,
    log,
  },
  start: ({ nodeHistory, ...parts }) => serveOperatorApi({ ...parts, history: nodeHistory }),
  stop: (api) => api.close(),
});

/** Continues payments that a crash interrupted, by the endpoints that they were for; then sends what is due. */
const paymentsWork = service({
  name: 'payments work',
  // Work under leases ends before a node gives them back.
  needs: { payments, endpoints, nodes },
  async start({ payments }) {
    await payments.start();
    return payments;
  },
  stop: (payments) => payments.stop(),
});

const controlServer = service({
  name: 'control server',
  needs: {
    controlDeps,
    endpoints,
    controlSocket,
    observation,
    metrics,
    network,
    tls,
    instanceClient,
    version,
    log,
    paymentsWork,
    nodes,
  },
  start({ controlDeps, endpoints, controlSocket, observation, metrics, network, tls, instanceClient, version, log }) {
    const { health } = observation;
    const problemPages = { home: controlDeps.publicUrl, network };
    const { forward } = instanceClient;
    const paymentPages = tenantPaymentPages(problemPages, forward, (tenant, text) => {
      void controlDeps.logs.append(tenant, { kind: 'platform', event: 'page_refused', text }).catch(() => {});
    });
    const app = createApp({
      problemPages,
      endpoints,
      pages: async () =>
        (await import('../../control/pages/index.ts')).pageTable({ control: controlDeps, endpoints, version, network }),
      mcp: async (fetch) =>
        (await import('../../control/mcp.ts')).mcpServer({
          endpoints,
          fetch,
          payments: controlDeps.payments,
          publicUrl: controlDeps.publicUrl,
          version,
        }),
      health,
      payments: controlDeps.payments,
      log,
      challenge: tls.challenge,
      observe: metrics.onControlRequest,
      tenant: (request, context, slug) => tenantRequest(controlDeps, forward, paymentPages, request, context, slug),
    });
    const sockets = handshakes((request, context, slug, caller) => {
      const { credentials } = controlDeps.payments.headers;
      const paid = paidByCookie(request, urlOf(context, request.url), credentials);
      return tenantSocket(controlDeps, paid, context, slug, caller, async () => app.fetch(request));
    }, log);
    const early = bareAnswers(controlDeps, problemPages, metrics.onControlRequest);
    return serve(app.fetch, { socket: controlSocket }, { early, handshakes: sockets });
  },
  stop: (server) => server.close(),
});

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
