/** Starts the storage process (KV and objects) and the egress process (outbound requests of tenants). */
import path from 'node:path';
import type { Logger } from 'pino';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { ControlForEgress, EgressMethods, StorageMethods } from '../shared/contracts.ts';
import { Child } from './child.ts';
import type { Folders } from './folders.ts';
import { egressInit, storageInit } from './process-settings.ts';

/** The identity under which the host itself calls out (notify webhooks). */
const OWN_EGRESS = 'host';

export interface BindingProcessesOptions {
  config: Config;
  folders: Folders;
  publicUrl: string;
  /** Ports of the host itself, which tenants reach by its name alone. */
  ports: { http: number; https: number | undefined };
  clock: Clock & { offsetMs: number };
  /** What the egress and the edges know of each other. */
  ownCallerKey: string;
  log: Logger;
  logs: LogStore;
  /** A process was restarted: whatever was open in it must be opened again. */
  onRestart(process: 'storage' | 'egress'): Promise<void>;
}

export interface BindingProcesses {
  storage: Child<StorageMethods>;
  egress: Child<EgressMethods>;
  /** Socket by which the host itself calls out. */
  hostEgressSocket: string;
}

export function bindingProcesses(options: BindingProcessesOptions): BindingProcesses {
  const { config, folders, publicUrl, ports, clock, ownCallerKey, log, logs, onRestart } = options;
  const hostEgressSocket = path.join(folders.run, 'egress.sock');
  const storage = new Child<StorageMethods>({
    name: 'storage',
    process: 'storage',
    log,
    local: {},
    async setUp(channel) {
      await channel.call('init', storageInit(config, folders, clock.offsetMs));
    },
    onRestart: () => onRestart('storage'),
  });
  const egress = new Child<EgressMethods>({
    name: 'egress',
    process: 'egress',
    log,
    local: {
      notices: async (notices) => {
        for (const { tenant, code, target, detail, count } of notices) {
          const text = `${detail}${count > 1 ? ` (${count} times)` : ''}`;
          await logs.append(tenant, { kind: 'platform', event: code, text: `${target}: ${text}` });
        }
      },
    } satisfies ControlForEgress,
    async setUp(channel) {
      await channel.call('init', egressInit(config, publicUrl, ports.http, ports.https, clock.offsetMs, ownCallerKey));
      await channel.call('open', {
        tenant: OWN_EGRESS,
        slug: OWN_EGRESS,
        socket: hostEgressSocket,
        allow: [],
        limits: { inFlight: 20, bytesPerHour: 10_000_000, timeoutMs: 30_000 },
      });
    },
    onRestart: () => onRestart('egress'),
  });
  return { storage, egress, hostEgressSocket };
}
