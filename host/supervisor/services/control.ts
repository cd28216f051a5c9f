/** Control: what the platform itself answers to callers, owners and the operator. */
import path from 'node:path';
import { Backups } from '../../backup/backups.ts';
import { builtinApis } from '../../control/api/operator/builtin-apis.ts';
import { createApp } from '../../control/app.ts';
import { bareAnswers } from '../../control/bare-answers.ts';
import { KeyRing } from '../../control/deploy-keys.ts';
import { deploymentParser } from '../../control/deployment-input.ts';
import type { ControlDeps } from '../../control/deps.ts';
import { handshakes } from '../../control/handshakes.ts';
import { NodeLogs } from '../../control/node-logs.ts';
import { urlOf } from '../../control/pages/problem.ts';
import { paidByCookie } from '../../control/payment-cookie.ts';
import { renewalCredit } from '../../control/renewal-credit.ts';
import { endpointTable } from '../../control/routes.ts';
import { tenantPaymentPages } from '../../control/tenant-payment-page.ts';
import { tenantRequest, tenantSocket } from '../../control/tenant-requests.ts';
import { DomainChecks } from '../../domains/domain-checks.ts';
import { OwnershipRecords } from '../../domains/ownership-record.ts';
import { unfenced } from '../../registry/fences.ts';
import { Pipeline } from '../../runtime/deploy/pipeline.ts';
import { serveOperatorApi } from '../operator-api.ts';
import { serve } from '../server.ts';
import { service } from '../service.ts';
import {
  assetStore,
  builtins,
  clock,
  codeStore,
  logs,
  metrics,
  publicUrl,
  sandbox,
  stores,
  trustedClock,
} from './base.ts';
import { egress, storage } from './binding-processes.ts';
import { controlSocket } from './edge-processes.ts';
import { config, folders, log, settingOrigins, version } from './given.ts';
import { instanceClient, instanceSpecs, others, runtime, tenantData } from './instances.ts';
import { moveClock, nodes, updates } from './nodes.ts';
import { nodeHistory, observation, startedAt } from './observation.ts';
import { network, payments } from './payments.ts';
import { removeCode, timedWork } from './timed-work.ts';
import { edges, liveRequests, routes, tls } from './traffic.ts';

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

export const deploymentBodies = service({
  name: 'parser of deployments',
  needs: { config },
  start: ({ config }) => deploymentParser(config.runtime),
});

const nodeLogs = service({
  name: 'logs of all nodes',
  needs: { logs, liveRequests, others, clock },
  start: ({ clock, ...parts }) => new NodeLogs({ ...parts, now: () => clock.now() }),
});

export const controlDeps = service({
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
    instanceSpecs,
    assetStore,
    codeStore,
    removeCode,
    builtins,
    timedWork,
    updates,
  },
  start(needed): ControlDeps {
    const { stores, network, tenantData, codeStore, assetStore, instanceClient, instanceSpecs, timedWork, ...values } =
      needed;
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
      planInstance: instanceSpecs.planned,
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

export const domainChecks = service({
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

export const backups = service({
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

export const controlServer = service({
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
