/**
 * Control, composed: what the platform itself answers to callers, owners and the operator, and what it does by the
 * clock. Nothing is decided here.
 */
import path from 'node:path';
import type { Logger } from 'pino';
import type { BindingServers } from '../bindings/server.ts';
import { createApp } from '../control/app.ts';
import { bareAnswers } from '../control/bare-answers.ts';
import type { Builtin } from '../control/builtins.ts';
import { deploymentParser } from '../control/deployment-input.ts';
import type { ControlDeps } from '../control/deps.ts';
import { handshakes } from '../control/handshakes.ts';
import type { InstanceClient } from '../control/instance-client.ts';
import { Lifecycle } from '../control/lifecycle.ts';
import type { RoutePublisher } from '../control/route-publisher.ts';
import { endpointTable, pageTable } from '../control/routes.ts';
import { tenantRequest, tenantSocket } from '../control/tenant-requests.ts';
import { DomainChecks } from '../domains/domain-checks.ts';
import { OwnershipRecords } from '../domains/ownership-record.ts';
import type { Payments } from '../payments/index.ts';
import type { Network } from '../payments/network/index.ts';
import { TrustedClock } from '../registry/trusted-clock.ts';
import type { CodeStore } from '../runtime/code-store.ts';
import type { Runtime } from '../runtime/contract.ts';
import { Pipeline } from '../runtime/deploy/pipeline.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Sandbox } from '../sandbox/confinement.ts';
import type { Scheduler } from '../scheduler/index.ts';
import { TenantCrons } from '../scheduler/tenant-crons.ts';
import type { AdjustableClock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import { KeyedLock, Mutex } from '../shared/mutex.ts';
import type { BindingProcesses } from './binding-processes.ts';
import type { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import type { Observation } from './observation.ts';
import { serveOperatorApi } from './operator-api.ts';
import { postOutside } from './outside.ts';
import { type RunningServer, serve } from './server.ts';
import type { Stores } from './stores.ts';
import { TimedWork } from './timed-work.ts';
import type { Tls } from './tls.ts';

const DOMAIN_SWEEP_MS = 15_000;
const CODE_SWEEP_MS = 86_400_000;

export interface ControlServiceOptions extends BindingProcesses {
  config: Config;
  folders: Folders;
  log: Logger;
  version: string;
  publicUrl: string;
  clock: AdjustableClock;
  stores: Stores;
  codeStore: CodeStore;
  logs: LogStore;
  sandbox: Sandbox;
  scheduler: Scheduler;
  tls: Tls;
  servers: BindingServers;
  /** The built-in tenants of this version. */
  builtins: readonly Builtin[];
  runtime: Runtime;
  instanceClient: InstanceClient;
  edges: Edges;
  routes: RoutePublisher;
  network: Network;
  payments: Payments;
  observation: Observation;
  /** What is to be stopped with the host, before what was named earlier. */
  onStop(step: () => Promise<unknown> | unknown): void;
}

export interface ControlService {
  deps: ControlDeps;
  parse: ReturnType<typeof deploymentParser>;
  crons: TenantCrons;
  adminPort: number;
  /** Answers what the edges hand over, on a unix socket. */
  serve(socket: string): Promise<RunningServer>;
  /** Begins all that is done by the clock. */
  start(): Promise<void>;
}

/** The operator's API answers once this resolves; everything else waits for `serve` and `start`. */
export async function openControl(options: ControlServiceOptions): Promise<ControlService> {
  const { config, folders, log, version, publicUrl, clock, stores, logs, scheduler, tls, onStop } = options;
  const { runtime, instanceClient, routes, network, payments, observation, storage, servers } = options;
  const { deployments, secrets, domains, usage } = stores;

  const crons = new TenantCrons({
    scheduler,
    history: stores.cronRuns,
    clock,
    log,
    run: (slug, cron, time) => runtime.runScheduled(slug, cron, time),
    onRun: (run) => observation.metrics.onCronRun(run),
  });
  const trustedClock = new TrustedClock(stores.registry.db, clock);
  const timedWork = new TimedWork({ scheduler, lifecycle: openLifecycle(options, trustedClock), crons, deployments });
  const pipeline = openPipeline(options);
  onStop(() => pipeline.close());
  const deps: ControlDeps = {
    config,
    clock,
    log,
    publicUrl,
    deployments,
    secrets,
    domains,
    usage,
    routes,
    pipeline,
    runtime,
    payments,
    logs,
    storageUsage: async (tenant) => ({
      ...(await storage.channel().call('usage', { tenant })),
      ...Object.assign({}, ...(await Promise.all([...servers.values()].map((server) => server.usage?.(tenant))))),
    }),
    updates: new KeyedLock(),
    removeCode: (digests) => removeCode(options, digests),
    async releaseCode(digest) {
      options.codeStore.release(digest);
      await removeCode(options, [digest]).catch((error: Error) => {
        log.warn({ err: error }, 'refused code was not removed; tried again within a day');
      });
    },
    builtins: options.builtins,
    builtinTurns: new Mutex(),
    scheduleChanged: () => void timedWork.plan(),
    demoWalletKey: network.name === 'local' ? network.wallets?.at(-1)?.privateKey : undefined,
  };
  const parse = deploymentParser(config.runtime);
  const checks = new DomainChecks({
    domains,
    records: new OwnershipRecords(config.domains.resolver),
    clock,
    trustedNow: () => trustedClock.now(),
    log,
    registrarTokenHashes: config.domains.registrarTokens,
    servesAtOnce: tls.servesAtOnce,
    async onChange(_domain, tenant) {
      const row = await deployments.byTenant(tenant);
      if (row) await routes.push(row.slug);
      tls.namesChanged();
    },
  });
  const endpoints = endpointTable(deps, parse, checks, stores.cronRuns);
  const pages = pageTable({
    control: deps,
    endpoints,
    version,
    network,
    health: observation.health,
  });
  const { onControlRequest } = observation.metrics;
  const app = createApp({
    endpoints,
    pages,
    log,
    challenge: tls.challenge,
    observe: onControlRequest,
    tenant: (request, context, slug) => tenantRequest(deps, instanceClient.forward, request, context, slug),
  });
  const { Backups } = await import('../backup/index.ts');
  const backups = new Backups({
    config,
    dataFolder: folders.data,
    hostVersion: version,
    trustedNow: async () => (await trustedClock.now()) - clock.offsetMs,
    live: {
      copyStores: (folder) => storage.channel().call('backup', { folder }),
      serviceFolders: () => new Map(runtime.list().map(({ tenant, slug }) => [tenant, path.join(folders.run, slug)])),
    },
  });
  const operatorApi = await serveOperatorApi({
    ...options,
    control: deps,
    timedWork,
    backups,
    forward: instanceClient.forward,
  });
  onStop(() => operatorApi.close());

  return {
    deps,
    parse,
    crons,
    adminPort: operatorApi.port,
    serve(socket) {
      const sockets = handshakes(
        (request, context, slug, caller) =>
          tenantSocket(deps, request, context, slug, caller, async () => app.fetch(request)),
        log,
      );
      return serve(app.fetch, { socket }, { early: bareAnswers(deps, onControlRequest), handshakes: sockets });
    },
    async start() {
      await timedWork.start();
      backups.schedule(scheduler, log);
      scheduler.every(DOMAIN_SWEEP_MS, 'domains', () => checks.sweep());
      const sweepCode = (): Promise<void> =>
        options.codeStore
          .sweep((digests) => deployments.unusedCode(digests))
          .catch((error: Error) => {
            log.warn({ err: error }, 'code that nothing uses was not removed');
          });
      scheduler.every(CODE_SWEEP_MS, 'code', sweepCode);
      void sweepCode();
    },
  };
}

function openLifecycle(options: ControlServiceOptions, trustedClock: TrustedClock): Lifecycle {
  const { config, folders, log, clock, stores, logs, runtime, routes, storage, servers, hostEgressSocket } = options;
  return new Lifecycle({
    config: config.slugs,
    clock,
    log,
    deployments: stores.deployments,
    trustedClock,
    routes,
    runtime,
    logs,
    tenantsFolder: folders.tenants,
    async purgeStorage(tenant) {
      await storage.channel().call('purge', { tenant });
      for (const server of servers.values()) await server.purge?.(tenant);
      await stores.cronRuns.forget(tenant);
      await logs.forget(tenant);
    },
    removeCode: (digests) => removeCode(options, digests),
    post: (url, body, timeoutMs) => postOutside(hostEgressSocket, url, body, timeoutMs),
  });
}

async function removeCode({ codeStore, stores }: ControlServiceOptions, digests: string[]): Promise<void> {
  const isUnused = async (digest: string): Promise<boolean> =>
    (await stores.deployments.unusedCode([digest])).length > 0;
  await Promise.all(digests.map((digest) => codeStore.remove(digest, () => isUnused(digest))));
}

function openPipeline({ config, folders, clock, codeStore, sandbox }: ControlServiceOptions): Pipeline {
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
}
