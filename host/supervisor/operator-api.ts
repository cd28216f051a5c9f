/** The operator's API: on a socket in the data folder, and on the admin port of loopback. */

import { statfs } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Backups } from '../backup/backups.ts';
import type { BackupChoice } from '../backup/index.ts';
import { createOperatorApp, type OperatorAppOptions } from '../control/api/operator/app.ts';
import { builtinApis } from '../control/api/operator/builtin-apis.ts';
import type { DescribeHost } from '../control/api/operator/endpoint.ts';
import { operatorEndpoints } from '../control/api/operator/index.ts';
import { moveBuiltinClocks } from '../control/builtin-secrets.ts';
import { Sessions } from '../control/console/sessions.ts';
import type { Role } from '../control/console/tokens.ts';
import type { ControlDeps } from '../control/deps.ts';
import type { InstanceClient } from '../control/instance-client.ts';
import type { NodeHistory } from '../observability/node-history.ts';
import { Audit } from '../registry/audit.ts';
import { Guesses } from '../registry/guesses.ts';
import { writeClockOffset } from '../registry/settings.ts';
import { usageOf } from '../sandbox/process-tree.ts';
import type { AdjustableClock } from '../shared/clock.ts';
import type { EgressMethods, StorageMethods } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { Child } from './child.ts';
import { settingsInForce } from './configuration.ts';
import type { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import type { Observation } from './observation.ts';
import { serve } from './server.ts';
import type { Stores } from './stores.ts';
import type { TimedWork } from './timed-work.ts';
import type { Tls } from './tls.ts';

export interface OperatorApiOptions {
  controlDeps: ControlDeps;
  clock: AdjustableClock;
  stores: Stores;
  folders: Folders;
  observation: Observation;
  history: NodeHistory;
  tls: Tls;
  settingOrigins: ReadonlyMap<string, string>;
  startedAt: number;
  edges: Edges;
  storage: Child<StorageMethods>;
  egress: Child<EgressMethods>;
  timedWork: TimedWork;
  moveClock(offsetMs: number): Promise<void>;
  backups: Backups;
  instanceClient: InstanceClient;
  version: string;
  log: Logger;
}

export interface OperatorApi {
  port: number;
  /** A link that logs in to the console, once. */
  consoleLink(): string;
  close(): Promise<void>;
}

/** Who reads the first start's screen may come back to it. */
const FIRST_LINK_MS = 3_600_000;

export async function serveOperatorApi(options: OperatorApiOptions): Promise<OperatorApi> {
  const { controlDeps: control, clock, stores, folders, observation, edges } = options;
  const { timedWork, backups, instanceClient, version, log } = options;
  const { forward } = instanceClient;
  const { config, publicUrl, payments } = control;
  const { registry, deployments, domains, secrets, blocks, tokens } = stores;
  const sessions = new Sessions({ passes: payments.passes, tokens, changes: registry.changes });
  let port = 0;
  const consoleLink = (role: Role, lifeMs?: number) => {
    const { code, expiresAt } = sessions.code(role, lifeMs);
    // In the fragment: no server, log or proxy sees it.
    return { url: `http://127.0.0.1:${port}/console/log-in#${code}`, expiresAt };
  };
  const audit = new Audit(registry.db, clock);
  const endpoints = operatorEndpoints({
    control,
    audit,
    async pushBlocks() {
      await edges.each('setBlockedRanges', { ranges: blocks.ranges() });
      await registry.changes.everywhere(['blocks']);
    },
    deployments,
    secrets,
    payments,
    health: observation.health,
    metrics: observation.metricsText,
    async moveClock(offsetMs: number) {
      if (!config.clock.movable) {
        throw new Problem('forbidden', 'The clock cannot be moved; start the host with --clock-movable to allow it.');
      }
      await writeClockOffset(registry.db, offsetMs);
      await options.moveClock(offsetMs);
      await registry.changes.everywhere(['settings:clock-offset-ms']);
      await timedWork.plan();
      await moveBuiltinClocks(control);
      return { now: clock.now(), offsetMs };
    },
    clockOffset: () => clock.offsetMs,
    history: options.history,
    tokens,
    consoleLink: (role) => consoleLink(role),
    describeHost: describeHost(options),
    cluster: stores.cluster,
    async backup(choice: BackupChoice) {
      if (stores.cluster)
        throw new Problem(
          'conflict',
          'A backup copies the files of one box: back up PostgreSQL (pg_dump, or its own archive), then the bucket.',
        );
      return backups.run(choice);
    },
    async mayServe(domain: string) {
      const row = await domains.byName(domain.toLowerCase());
      return row !== undefined && row.state !== 'pending';
    },
  });
  const app: OperatorAppOptions = {
    endpoints,
    tokens,
    console: {
      sessions,
      guesses: new Guesses(registry, 'console-guesses'),
      publicUrl,
      builtins: control.builtins
        .filter(({ name }) => config.builtinTenants.enabled.includes(name))
        .flatMap(({ name, asks: { title, operatorApi } }) =>
          operatorApi ? [{ slug: name, title, views: operatorApi.views, acts: operatorApi.acts }] : [],
        ),
    },
    names: config.adminNames.map((name) => name.toLowerCase()),
    builtinApis: builtinApis(control.builtins, { deployments, secrets, forward, publicUrl }),
    audit,
    version,
    log,
  };
  const onSocket = await serve(
    createOperatorApp(app, true).fetch,
    { socket: path.join(folders.run, 'operator.sock') },
    { strangers: true },
  );
  try {
    const onPort = await serve(
      createOperatorApp(app, false).fetch,
      { host: '127.0.0.1', port: config.adminPort },
      { strangers: true },
    );
    port = onPort.port;
    return {
      port,
      consoleLink: () => consoleLink('operator', FIRST_LINK_MS).url,
      close: async () => void (await Promise.all([onSocket.close(), onPort.close()])),
    };
  } catch (error) {
    await onSocket.close();
    throw error;
  }
}

function describeHost(options: OperatorApiOptions): DescribeHost {
  const { controlDeps, edges, storage, egress, tls, backups, folders, settingOrigins, startedAt, version } = options;
  const { config, runtime } = controlDeps;
  return {
    processes() {
      const own = [
        { name: 'supervisor', state: 'ready', pid: process.pid, restarts: 0 },
        ...[...edges.children, storage, egress].map(({ name, state, pid, restarts }) => ({
          name,
          state,
          pid,
          restarts,
        })),
      ];
      const running = runtime.list().filter(({ status }) => status.state !== 'cold');
      return {
        processes: own.map((one) => {
          const used = one.pid === undefined ? undefined : usageOf(one.pid);
          return { ...one, memoryBytes: used?.privateBytes ?? 0, cpuMs: used?.cpuMs ?? 0 };
        }),
        instances: {
          running: running.reduce((sum, { status }) => sum + (status.instances ?? 1), 0),
          memoryBytes: running.reduce((sum, { status }) => sum + (status.memoryBytes ?? 0), 0),
        },
      };
    },
    async disk() {
      const { bavail, blocks, bsize } = await statfs(folders.data);
      return { free: bavail * bsize, total: blocks * bsize };
    },
    settings: () => settingsInForce(config, settingOrigins),
    certificates: () => tls.certificates(),
    backups: () => backups.list(),
    version: () => ({
      version,
      node: process.version,
      workerd: createRequire(import.meta.url)('workerd/package.json').version,
      startedAt: new Date(startedAt).toISOString(),
    }),
  };
}
