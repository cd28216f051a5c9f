/**
 * The whole host, composed: opens the registry, the payment network and the parts in order, wires them together, and
 * stops them in reverse. Nothing is decided here; every part gets what it needs from its constructor.
 */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { createApp } from '../control/app.ts';
import { deployBuiltin } from '../control/builtin-tenants.ts';
import { deploymentParser } from '../control/deployment-input.ts';
import { createForwarding } from '../control/forward.ts';
import { Lifecycle } from '../control/lifecycle.ts';
import { createOperatorApp } from '../control/operator/app.ts';
import { operatorToken } from '../control/operator/token.ts';
import type { ControlParts } from '../control/parts.ts';
import { createPipeline } from '../control/pipeline.ts';
import { RouteTable } from '../control/route-table.ts';
import { endpointTable, pageTable } from '../control/routes.ts';
import { tenantRequest } from '../control/tenant-requests.ts';
import { createPayments } from '../payments/index.ts';
import { openNetwork } from '../payments/network/index.ts';
import { CronRuns } from '../registry/cron-runs.ts';
import { Deployments } from '../registry/deployments.ts';
import { Domains } from '../registry/domains.ts';
import { openRegistry } from '../registry/index.ts';
import { SecretBox } from '../registry/secret-box.ts';
import { Secrets } from '../registry/secrets.ts';
import { Usage } from '../registry/usage.ts';
import { CodeStore } from '../runtime/code-store.ts';
import { LogStore } from '../runtime/logs/log-store.ts';
import { createRuntime } from '../runtime/runtime.ts';
import { detectSandbox } from '../runtime/sandbox.ts';
import { createScheduler } from '../scheduler/index.ts';
import { TenantCrons } from '../scheduler/tenant-crons.ts';
import { AdjustableClock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { EgressMethods, EgressLimits, StorageMethods } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { Child } from './child.ts';
import { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import { bindSocket } from './listening-socket.ts';
import { serve } from './server.ts';

const FLUSH_USAGE_MS = 5_000;
const DRAIN_MS = 4_000;
const LIFECYCLE_TICK_MS = 60_000;

export interface RunningHost {
  url: string;
  port: number;
  adminPort: number;
  /** Made at this start; shown once. */
  freshOperatorToken: string | undefined;
  isolation: { level: string; detail: string };
  network: { name: string; testMoney: boolean; wallets: string[] };
  stop(): Promise<void>;
}

/** @throws Problem when a part cannot start; what was started by then is stopped again */
export async function startHost(config: Config, folders: Folders, log: Logger): Promise<RunningHost> {
  /** Newest first: run in this order at the end. */
  const stops: (() => Promise<unknown> | unknown)[] = [];
  const onStop = (stop: () => Promise<unknown> | unknown) => stops.unshift(stop);
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
    return { ...(await compose(config, folders, log, onStop)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function compose(
  config: Config,
  folders: Folders,
  log: Logger,
  onStop: (stop: () => Promise<unknown> | unknown) => void,
): Promise<Omit<RunningHost, 'stop'>> {
  const clock = new AdjustableClock();
  const scheduler = createScheduler({ clock, log });
  onStop(() => scheduler.stop());

  const registry = await openRegistry(folders.registry);
  onStop(() => registry.close());
  const secrets = new Secrets(registry.db, await SecretBox.open(folders.secretsKey));
  const deployments = new Deployments(registry.db);
  const domains = new Domains(registry.db);
  const usage = new Usage(registry.db);
  onStop(() => usage.flush());
  const codeStore = new CodeStore(folders.code);
  const logs = new LogStore({ folder: folders.tenants, clock, maxBytes: config.runtime.logBytes });
  const operator = await operatorToken(registry.db);

  const publicSocket = bindSocket(config.host, config.port);
  onStop(() => publicSocket.close());
  const publicUrl = (config.publicUrl || `http://localhost:${publicSocket.port}`).replace(/\/$/, '');

  const network = await openNetwork({ config, dataFolder: folders.data, clock, log });
  onStop(() => network.close());
  refuseTestMoneyInPublic(config, network.testMoney);
}
