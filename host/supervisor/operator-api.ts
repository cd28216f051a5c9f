/** The operator's API: on a socket in the data folder, and on the admin port of loopback. */
import path from 'node:path';
import type { Logger } from 'pino';
import type { Backups } from '../backup/backups.ts';
import type { BackupChoice } from '../backup/index.ts';
import { createOperatorApp, type OperatorAppOptions } from '../control/api/operator/app.ts';
import { builtinApis } from '../control/api/operator/builtin-apis.ts';
import { operatorEndpoints } from '../control/api/operator/index.ts';
import { moveBuiltinClocks } from '../control/builtin-secrets.ts';
import type { ControlDeps } from '../control/deps.ts';
import type { InstanceClient } from '../control/instance-client.ts';
import { Audit } from '../registry/audit.ts';
import { writeClockOffset } from '../registry/settings.ts';
import type { AdjustableClock } from '../shared/clock.ts';
import type { EgressMethods, StorageMethods } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { Child } from './child.ts';
import type { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import type { Observation } from './observation.ts';
import { serve } from './server.ts';
import type { Stores } from './stores.ts';
import type { TimedWork } from './timed-work.ts';

export interface OperatorApiOptions {
  controlDeps: ControlDeps;
  clock: AdjustableClock;
  stores: Stores;
  folders: Folders;
  observation: Observation;
  edges: Edges;
  storage: Child<StorageMethods>;
  egress: Child<EgressMethods>;
  timedWork: TimedWork;
  backups: Backups;
  instanceClient: InstanceClient;
  version: string;
  log: Logger;
}

/** @returns the admin port, and what closes both */
export async function serveOperatorApi(options: OperatorApiOptions): Promise<{ port: number; close(): Promise<void> }> {
  const { controlDeps: control, clock, stores, folders, observation, edges, storage, egress } = options;
  const { timedWork, backups, instanceClient, version, log } = options;
  const { forward } = instanceClient;
  const { config, publicUrl, payments } = control;
  const { registry, deployments, domains, secrets, blocks, operator } = stores;
  const audit = new Audit(registry.db, clock);
  const endpoints = operatorEndpoints({
    control,
    audit,
    pushBlocks: async () => void (await edges.each('setBlockedRanges', { ranges: blocks.ranges() })),
    deployments,
    secrets,
    payments,
    health: observation.health,
    metrics: observation.metricsText,
    async moveClock(offsetMs: number) {
      if (!config.clock.movable) {
        throw new Problem('forbidden', 'The clock cannot be moved; start the host with --clock-movable to allow it.');
      }
      clock.setOffset(offsetMs);
      await writeClockOffset(registry.db, offsetMs);
      await Promise.all([
        edges.each('setClock', { offsetMs }),
        storage.channel().call('setClock', { offsetMs }),
        egress.channel().call('setClock', { offsetMs }),
      ]);
      await timedWork.plan();
      await moveBuiltinClocks(control);
      return { now: clock.now(), offsetMs };
    },
    clockOffset: () => clock.offsetMs,
    backup: (choice: BackupChoice) => backups.run(choice),
    async mayServe(domain: string) {
      const row = await domains.byName(domain.toLowerCase());
      return row !== undefined && row.state !== 'pending';
    },
  });
  const app: OperatorAppOptions = {
    endpoints,
    tokenHash: operator.hash,
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
    return {
      port: onPort.port,
      close: async () => void (await Promise.all([onSocket.close(), onPort.close()])),
    };
  } catch (error) {
    await onSocket.close();
    throw error;
  }
}
