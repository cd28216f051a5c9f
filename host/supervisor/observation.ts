/** Health and metrics of the whole host, read from its components on request. */

import type { Logger } from 'pino';
import type { EngineProcess } from '../../builtin-tenants/speech/engine/start.ts';
import { type Component, type HealthDocument, health } from '../observability/health.ts';
import type { HostMetrics } from '../observability/host-metrics.ts';
import { metricsText } from '../observability/metrics-text.ts';
import type { Payments } from '../payments/index.ts';
import type { Network, NetworkHealth } from '../payments/network/types.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Registry } from '../registry/index.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { TenantCrons } from '../scheduler/tenant-crons.ts';
import type { Methods } from '../shared/channel.ts';
import { parseUsd } from '../shared/money.ts';
import type { Child } from './child.ts';
import { NETWORK_FAILS } from './start-failures.ts';

export interface ObservationDeps {
  version: string;
  log: Logger;
  startedAt: number;
  metrics: HostMetrics;
  deployments: Deployments;
  network: Network;
  runtime: Runtime;
  payments: Payments;
  crons: TenantCrons;
  children: Child<ChildMethods>[];
  registry: Pick<Registry, 'failure'>;
  /** Why this node of several does not serve; undefined: there is one node. */
  nodeFault: (() => string | undefined) | undefined;
  /** Built-in tenants that are switched on, and those of them that did not answer yet. */
  builtins: readonly string[];
  builtinsWaiting: ReadonlySet<string>;
  /** undefined: switched off */
  speechEngine: Pick<EngineProcess, 'running' | 'hasRun'> | undefined;
}

/** What every child process answers. */
interface ChildMethods extends Methods {
  metrics(nothing: undefined): unknown;
}

export interface Observation {
  metricsText(): Promise<string>;
  health(): { ready: boolean; body: HealthDocument };
  /** Asks the payment network how it is; between calls the last answer counts. Logs a change. */
  checkNetwork(): Promise<NetworkHealth>;
  /** From now on the host counts as started. */
  setReady(): void;
}

export function createObservation(deps: ObservationDeps): Observation {
  const { version, log, startedAt, metrics, deployments, network, runtime, payments, crons, children } = deps;
  let ready = false;
  let networkHealth: NetworkHealth = { ok: true, detail: 'not asked yet' };
  metrics.watch({
    deployments: () => deployments.countByState(),
    instances() {
      const byState: Record<string, number> = {};
      let memoryBytes = 0;
      for (const { status } of runtime.list()) {
        byState[status.state] = (byState[status.state] ?? 0) + 1;
        memoryBytes += status.memoryBytes ?? 0;
      }
      return { byState, memoryBytes };
    },
    restarts: () => Object.fromEntries(children.map((child) => [child.name, child.restarts])),
    async payments() {
      const open = await payments.ledger.open();
      const byState: Record<string, number> = {};
      for (const { kind } of open) byState[kind] = (byState[kind] ?? 0) + 1;
      const owed = open
        .filter(({ kind }) => kind !== 'pending-settlement')
        .reduce((sum, { amount }) => sum + Number(parseUsd(amount)), 0);
      return { byState, owedMicroUsd: owed };
    },
    stoppedPayouts: () => payments.ledger.stopped()?.violations.map(({ invariant }) => invariant) ?? [],
    queues: () => ({ cron: crons.waiting }),
  });

  return {
    metricsText: () =>
      metricsText(
        metrics.registry,
        children.map((child) => ({
          process: child.name,
          read: async () => child.channel().call('metrics', undefined),
        })),
      ),
    health: () =>
      health(
        [
          { name: 'control', state: ready ? 'ready' : 'starting', essential: true },
          registryComponent(deps),
          ...children.map((child): Component => ({ name: child.name, state: child.state, essential: true })),
          {
            name: 'network',
            state: network.name === 'none' ? 'off' : networkHealth.ok ? 'ready' : 'degraded',
            essential: false,
            detail: networkHealth.detail,
          },
          ...builtinComponents(deps),
          ...stoppedComponent(payments),
          ...nodeComponent(deps),
        ],
        {
          version,
          uptimeMs: Date.now() - startedAt,
          extra: {
            isolation: runtime.isolation,
            payments: { network: network.name, testMoney: network.testMoney },
          },
        },
      ),
    async checkNetwork() {
      const { ok: before } = networkHealth;
      networkHealth = await network.healthy();
      const { ok, detail } = networkHealth;
      if (before && !ok) log.warn({ detail }, `the payment network fails: ${NETWORK_FAILS}`);
      if (!before && ok) log.info({ detail }, 'the payment network is well again');
      return networkHealth;
    },
    setReady() {
      ready = true;
    },
  };
}

/** What is switched on counts until it answers for the first time; later it is no reason to take the host out of service. */
function builtinComponents({ builtins, builtinsWaiting, speechEngine }: ObservationDeps): Component[] {
  const tenants = builtins.map((name): Component => {
    if (!builtinsWaiting.has(name)) return { name, state: 'ready', essential: true };
    return { name, state: 'starting', essential: true, detail: 'does not answer yet; the log says why' };
  });
  if (!speechEngine) return tenants;
  const state = speechEngine.running() ? 'ready' : speechEngine.hasRun() ? 'restarting' : 'starting';
  return [...tenants, { name: 'speech-engine', state, essential: !speechEngine.hasRun() }];
}

function registryComponent({ registry }: ObservationDeps): Component {
  if (!registry.failure) return { name: 'registry', state: 'ready', essential: true };
  const detail = 'the disk failed: start the host again once it is well; the log says more';
  return { name: 'registry', state: 'stopped', essential: true, detail };
}

function nodeComponent({ nodeFault }: ObservationDeps): Component[] {
  if (!nodeFault) return [];
  const detail = nodeFault();
  return [
    { name: 'node', essential: true, ...(detail === undefined ? { state: 'ready' } : { state: 'stopped', detail }) },
  ];
}

/** What the public is told of a check that failed: which, and not whom it concerns. */
function stoppedComponent({ ledger }: Payments): Component[] {
  const stopped = ledger.stopped();
  if (!stopped) return [{ name: 'payouts', state: 'ready', essential: false }];
  const what = stopped.violations.map((one) => one.what).join('; ');
  const detail = `stopped: ${what}; see turnpike payments, then turnpike payments resume`;
  return [{ name: 'payouts', state: 'degraded', essential: false, detail }];
}
