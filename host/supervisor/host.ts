/**
 * The whole host, composed: opens the registry and the parts in order, wires them together, and stops them in reverse.
 * Nothing is decided here; every part gets what it needs from its constructor. Tenants are served first; payments and
 * control follow, because loading their code takes most of a start.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { checkCertificateFiles } from '../certificates/files.ts';
import { type BuiltinOwner, deployBuiltins } from '../control/builtin-tenants.ts';
import { readBuiltins, wantedCompanions } from '../control/builtins.ts';
import { readContext } from '../control/edge-context.ts';
import { createInstanceClient } from '../control/instance-client.ts';
import { RoutePublisher } from '../control/route-publisher.ts';
import type { Payments } from '../payments/index.ts';
import { loadPayments } from '../payments/load.ts';
import type { Network } from '../payments/network/index.ts';
import { usesTestMoney } from '../payments/network/test-money.ts';
import { CodeStore } from '../runtime/code-store.ts';
import { LogStore } from '../runtime/logs/log-store.ts';
import { detectSandbox } from '../sandbox/index.ts';
import { createScheduler } from '../scheduler/index.ts';
import { AdjustableClock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { EdgeTraffic } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { bindingProcesses } from './binding-processes.ts';
import { readClockOffset } from './clock-setting.ts';
import { openControl } from './control-service.ts';
import { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import { openRuntime, openServers } from './instances.ts';
import { bindSocket } from './listening-socket.ts';
import { openMailer } from './mailer.ts';
import { createObservation } from './observation.ts';
import { edgeInit, isLoopback } from './process-settings.ts';
import { openSpeechEngine } from './speech-engine.ts';
import { openStores } from './stores.ts';
import { openTls } from './tls.ts';

const FLUSH_USAGE_MS = 5_000;
const DRAIN_MS = 4_000;
const NETWORK_CHECK_MS = 10_000;
const TRAFFIC_MS = 1_000;
/** Loading payments waits this long in all for instances and databases that callers of a fresh host want. */
const TENANTS_FIRST_MS = 2_500;
/** What somebody who waited for the host asks for has begun to start by then. */
const FIRST_CALLERS_MS = 10;

export interface RunningHost {
  url: string;
  port: number;
  adminPort: number;
  /** Made at this start; shown once. */
  freshOperatorToken: string | undefined;
  isolation: { level: string; detail: string };
  /** `fault`: what is wrong with the network just now. */
  network: { name: string; testMoney: boolean; fault?: string; wallets: string[] };
  stop(): Promise<void>;
}

/** @throws Problem when a part cannot start; what was started by then is stopped again */
export async function startHost(config: Config, folders: Folders, log: Logger, version: string): Promise<RunningHost> {
  /** Newest first: run in this order at the end. */
  const stops: Stop[] = [];
  const stop = async () => {
    for (const step of stops.splice(0)) {
      try {
        await step();
      } catch (error) {
        log.error({ err: error }, 'a part did not stop cleanly');
      }
    }
  };
  try {
    return { ...(await compose({ config, folders, log, version, onStop: (step) => stops.unshift(step) })), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Stop = () => Promise<unknown> | unknown;

interface Composition {
  config: Config;
  folders: Folders;
  log: Logger;
  version: string;
  onStop(step: Stop): void;
}

async function compose({ config, folders, log, version, onStop }: Composition): Promise<Omit<RunningHost, 'stop'>> {
  const startedAt = Date.now();
  await checkCertificateFiles(config.tls, log);
  // It starts a program to see whether it can; the rest of the start does not wait for that.
  const detected = detectSandbox(config.runtime.sandbox);
  detected.catch(() => undefined);

  const publicSocket = bindSocket(config.host, config.port);
  onStop(() => publicSocket.close());
  const publicUrl = (config.publicUrl || `http://localhost:${publicSocket.port}`).replace(/\/$/, '');

  const stores = await openStores(folders);
  onStop(() => stores.close());
  const { registry, deployments, domains, usage, operator } = stores;
  const clock = new AdjustableClock(config.clock.movable ? await readClockOffset(registry.db) : 0);
  const codeStore = new CodeStore(folders.code);
  const logs = new LogStore({ folder: folders.tenants, clock, maxBytes: config.runtime.logBytes });
  onStop(() => logs.close());

  const scheduler = createScheduler({ clock, log });
  onStop(() => scheduler.stop());
  refuseTestMoneyInPublic(config);
  const builtins = readBuiltins(BUILTIN_TENANTS, config.builtinTenants);
  const wanted = wantedCompanions(builtins, config.builtinTenants.enabled);

  const builtinsWaiting = new Set(config.builtinTenants.enabled);
  const observation = createObservation({
    version,
    log,
    startedAt,
    deployments,
    network: () => network,
    runtime: () => runtime,
    payments: () => payments,
    crons: () => control.crons,
    children: () => [...edges.children, storage, egress],
    builtins: config.builtinTenants.enabled,
    builtinsWaiting,
    speechEngine: () => speech?.engine,
  });
  const tls = await openTls({
    config,
    publicUrl,
    folder: folders.certificates,
    clock,
    log,
    domains,
    deployments,
    tellEdges: (method, argument) => edges.each(method, argument),
    pushRoutes: (slug) => routes.push(slug),
  });
  onStop(() => tls.stop());

  // --- child processes -------------------------------------------------------------------------------------------
  const ownCallerKey = randomBytes(32).toString('hex');
  const { storage, egress, hostEgressSocket } = bindingProcesses({
    config,
    folders,
    publicUrl,
    ports: { http: publicSocket.port, https: tls.socket?.port },
    clock,
    ownCallerKey,
    log,
    logs,
    onRestart: (part) => runtime.reopen(part),
  });
  onStop(() => Promise.all([storage.stop(), egress.stop()]));
  const bindingsReady = Promise.all([storage.start(), egress.start()]);
  // Waited for when the edges are there, too.
  bindingsReady.catch(() => undefined);

  const speech = wanted.has('speech-engine') ? openSpeechEngine(config, folders, log) : undefined;
  onStop(() => speech?.engine.stop());
  const mailer = wanted.has('mailer') ? await openMailer(config, folders, log) : undefined;
  onStop(() => mailer?.close());
  if (config.payments.network !== 'local' && wanted.has('mailer') && !mailer)
    log.warn(
      'the pay platform gives no welcome bonus: set mail.smtpUrl and mail.from, so that it can confirm addresses',
    );

  const paymentsOpened = Promise.withResolvers<Payments>();
  paymentsOpened.promise.catch(() => undefined);
  onStop(() => paymentsOpened.reject(new Problem('not_ready', 'The host is stopping.')));

  // --- instances -------------------------------------------------------------------------------------------------
  const sandbox = await detected;
  const servers = await openServers({ config, folders, stores, sandbox, log, payments: paymentsOpened.promise });
  const runtime = openRuntime({
    config,
    folders,
    stores,
    codeStore,
    logs,
    sandbox,
    clock,
    log,
    builtins,
    companions: {
      ...(speech ? { 'speech-engine': speech.socket } : {}),
      ...(mailer ? { mailer: mailer.socket } : {}),
    },
    edges: () => edges,
    servers,
    observation,
    storage,
    egress,
  });
  onStop(() => runtime.close());
  const instanceClient = createInstanceClient(runtime, config.runtime.requestIdleMs);
  onStop(() => instanceClient.close());

  // --- edges and the route table ---------------------------------------------------------------------------------
  const controlSocket = path.join(folders.run, 'control.sock');
  const edges = new Edges({
    count: config.edge.processes,
    log,
    local: {
      acquire: ({ slug }: { slug: string }) => runtime.acquire(slug),
      traffic: (traffic: EdgeTraffic[]) => countTraffic(traffic),
    },
    init: () => edgeInit(config, controlSocket, tls.edge, clock.offsetMs, ownCallerKey),
    async routes() {
      await bindingsReady;
      return routes.all();
    },
    listeners: [
      { kind: 'http', socket: publicSocket },
      ...(tls.socket ? [{ kind: 'https' as const, socket: tls.socket }] : []),
    ],
  });
  const routes = new RoutePublisher({
    deployments,
    domains,
    clock,
    config: { ...config.runtime, pathPages: config.edge.pathPages },
    edges: () => edges.channels(),
    deploying: config.builtinTenants.enabled,
  });

  async function countTraffic(traffic: EdgeTraffic[]): Promise<void> {
    runtime.reportTraffic(traffic);
    for (const { slug, requests, errors, bytesIn, bytesOut } of traffic) {
      // Long answers and sockets have seconds without a new request.
      if (requests + errors + bytesIn + bytesOut === 0) continue;
      const row = await deployments.bySlug(slug);
      if (row) usage.count(row.tenant, clock.now(), { requests, errors, bytesIn, bytesOut });
    }
  }

  // Routes that are sold, and all that control answers, are refused until it listens.
  onStop(() => edges.stop(DRAIN_MS));
  await Promise.all([edges.start(), bindingsReady]);

  // --- payments --------------------------------------------------------------------------------------------------
  const tenantsFirst = performance.now() + TENANTS_FIRST_MS;
  const { openNetwork, createPayments } = await loadPayments(async () => {
    await delay(FIRST_CALLERS_MS);
    while (runtime.starting && performance.now() < tenantsFirst) await delay(FIRST_CALLERS_MS);
  });
  const network = await openNetwork({ config, dataFolder: folders.data, clock, log });
  onStop(() => network.close());
  const payments = await createPayments({
    config: config.payments,
    network,
    registry,
    dataFolder: folders.data,
    publicUrl,
    clock,
    log,
    forward: (slug, request, headers, signal) =>
      instanceClient.forward(slug, request, readContext(request), headers, signal),
    openSocket: (slug, request, headers, signal) =>
      instanceClient.openSocket(slug, request, readContext(request), headers, signal),
    onPayment: observation.metrics.onPayment,
  });
  paymentsOpened.resolve(payments);

  // --- control ---------------------------------------------------------------------------------------------------
  const control = await openControl({
    config,
    folders,
    log,
    version,
    publicUrl,
    clock,
    stores,
    codeStore,
    logs,
    sandbox,
    scheduler,
    tls,
    storage,
    egress,
    hostEgressSocket,
    servers,
    builtins,
    runtime,
    instanceClient,
    edges,
    routes,
    network,
    payments,
    observation,
    onStop,
  });

  // --- start -----------------------------------------------------------------------------------------------------
  await payments.start();
  onStop(() => payments.stop());
  const controlServer = await control.serve(controlSocket);
  onStop(() => controlServer.close());
  // Before all that requests in flight may need.
  onStop(() => edges.stop(DRAIN_MS));
  await control.start();
  await tls.start();
  scheduler.every(FLUSH_USAGE_MS, 'usage', () => usage.flush());
  // For the instances alone: in usage, an edge has counted what it handed over.
  scheduler.every(TRAFFIC_MS, 'traffic of control', async () => runtime.reportTraffic(instanceClient.traffic()));
  scheduler.every(NETWORK_CHECK_MS, 'network health', () => observation.checkNetwork());
  const networkHealth = await observation.checkNetwork();
  observation.setReady();
  // In the background: the host serves meanwhile.
  const stopping = new AbortController();
  onStop(() => stopping.abort());
  void deployBuiltins(control.deps, control.parse, {
    owner: builtinOwner(network),
    forward: instanceClient.forward,
    waiting: builtinsWaiting,
    stopping: stopping.signal,
  });

  return {
    url: publicUrl,
    port: publicSocket.port,
    adminPort: control.adminPort,
    freshOperatorToken: operator.fresh,
    isolation: runtime.isolation,
    network: {
      name: network.name,
      testMoney: network.testMoney,
      ...(networkHealth.ok ? {} : { fault: networkHealth.detail }),
      wallets: network.wallets?.map(({ address }) => address) ?? [],
    },
  };
}

const BUILTIN_TENANTS = fileURLToPath(new URL('../../builtin-tenants/', import.meta.url));

/** Built-in tenants belong to the wallet that receives the operator's money. */
function builtinOwner(network: Network): BuiltinOwner {
  const address = (network.mpp?.recipient ?? network.x402?.recipient ?? `0x${'0'.repeat(40)}`).toLowerCase();
  const chain = network.mpp?.chain.id ?? network.x402?.chain.id ?? 0;
  return { address, did: `did:pkh:eip155:${chain}:${address}` };
}

function refuseTestMoneyInPublic(config: Config): void {
  if (!usesTestMoney(config.payments) || isLoopback(config.host) || config.payments.allowTestMoneyInPublic) return;
  throw new Problem(
    'invalid_config',
    `The ${config.payments.network} network is test money, and ${config.host} is reachable by others. Set payments.network ` +
      'and payments.recipient for real money, or payments.allowTestMoneyInPublic if you mean it.',
  );
}
