/** Health and metrics of the whole host, read from its parts when somebody asks. */
import type { EngineProcess } from '../../builtin-tenants/speech/engine/start.ts';
import { type HealthDocument, health, type Part } from '../observability/health.ts';
import { createHostMetrics, type HostMetrics } from '../observability/host-metrics.ts';
import { metricsText } from '../observability/metrics-text.ts';
import type { Payments } from '../payments/index.ts';
import type { Network, NetworkHealth } from '../payments/network/types.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { TenantCrons } from '../scheduler/tenant-crons.ts';
import type { Methods } from '../shared/channel.ts';
import { parseUsd } from '../shared/money.ts';
import type { Child } from './child.ts';

export interface ObservationParts {
  version: string;
  startedAt: number;
  deployments: Deployments;
  /** Made later than this is: asked for when it is needed. */
  network(): Network;
  runtime(): Runtime;
  payments(): Payments;
  crons(): TenantCrons;
  children(): Child<ChildMethods>[];
  /** Slugs of built-in tenants that are switched on, and which of all slugs are not deployed yet. */
  builtins: readonly string[];
  deploying(): ReadonlySet<string>;
  /** undefined: switched off */
  speechEngine(): Pick<EngineProcess, 'running' | 'hasRun'> | undefined;
}

/** What every child process answers. */
interface ChildMethods extends Methods {
  metrics(nothing: undefined): unknown;
}

export interface Observation {
  metrics: HostMetrics;
  metricsText(): Promise<string>;
  health(): { ready: boolean; body: HealthDocument };
  /** Asks the payment network how it is; between calls the last answer counts. */
  checkNetwork(): Promise<void>;
  /** From now on the host counts as started. */
  setReady(): void;
}

export function createObservation(parts: ObservationParts): Observation {
  const { version, startedAt, deployments } = parts;
  let ready = false;
  let networkHealth: NetworkHealth = { ok: true, detail: 'not asked yet' };
  const metrics = createHostMetrics({
    deployments: () => deployments.countByState(),
    instances() {
      const byState: Record<string, number> = {};
      let memoryBytes = 0;
      for (const { status } of parts.runtime().list()) {
        byState[status.state] = (byState[status.state] ?? 0) + 1;
        memoryBytes += status.memoryBytes ?? 0;
      }
      return { byState, memoryBytes };
    },
    restarts: () => Object.fromEntries(parts.children().map((child) => [child.name, child.restarts])),
    async payments() {
      const open = await parts.payments().ledger.open();
      const byState: Record<string, number> = {};
      for (const { kind } of open) byState[kind] = (byState[kind] ?? 0) + 1;
      const owed = open
        .filter(({ kind }) => kind !== 'pending-settlement')
        .reduce((sum, { amount }) => sum + Number(parseUsd(amount)), 0);
      return { byState, owedMicroUsd: owed };
    },
    stoppedPayouts: () =>
      parts
        .payments()
        .ledger.stopped()
        ?.violations.map(({ invariant }) => invariant) ?? [],
    queues: () => ({ cron: parts.crons().waiting }),
  });

  return {
    metrics,
    metricsText: () =>
      metricsText(
        metrics.registry,
        parts.children().map((child) => ({
          process: child.name,
          read: async () => child.channel().call('metrics', undefined),
        })),
      ),
    health: () =>
      health(
        [
          { name: 'control', state: ready ? 'ready' : 'starting', essential: true },
          ...parts.children().map((child): Part => ({ name: child.name, state: child.state, essential: true })),
          {
            name: 'network',
            state: parts.network().name === 'none' ? 'off' : networkHealth.ok ? 'ready' : 'degraded',
            essential: false,
            detail: networkHealth.detail,
          },
          ...builtinParts(parts),
          ...stoppedPart(parts.payments()),
        ],
        {
          version,
          uptimeMs: Date.now() - startedAt,
          extra: {
            isolation: parts.runtime().isolation,
            payments: { network: parts.network().name, testMoney: parts.network().testMoney },
          },
        },
      ),
    async checkNetwork() {
      networkHealth = await parts.network().healthy();
    },
    setReady() {
      ready = true;
    },
  };
}

/** What is switched on counts until it answers for the first time; later it is no reason to take the host out of service. */
function builtinParts({ builtins, deploying, speechEngine }: ObservationParts): Part[] {
  const waiting = deploying();
  const tenants = builtins.map((name): Part => {
    if (!waiting.has(name)) return { name, state: 'ready', essential: true };
    return { name, state: 'starting', essential: true, detail: 'is being deployed; the log says what keeps it' };
  });
  const engine = speechEngine();
  if (!engine) return tenants;
  const state = engine.running() ? 'ready' : engine.hasRun() ? 'restarting' : 'starting';
  return [...tenants, { name: 'speech-engine', state, essential: !engine.hasRun() }];
}

/** What the public is told of a check that failed: which, and not whom it concerns. */
function stoppedPart({ ledger }: Payments): Part[] {
  const stopped = ledger.stopped();
  if (!stopped) return [{ name: 'payouts', state: 'ready', essential: false }];
  const what = stopped.violations.map((one) => one.what).join('; ');
  const detail = `stopped: ${what}; see turnpike payments, then turnpike payments resume`;
  return [{ name: 'payouts', state: 'degraded', essential: false, detail }];
}
