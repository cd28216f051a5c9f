/** What most other services need: the public socket, what is stored, the clocks, the sandbox, the built-in tenants. */

import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { AssetStore } from '../../assets/asset-store.ts';
import { readBuiltins } from '../../control/builtins.ts';
import { Tally } from '../../observability/history-sampler.ts';
import { createHostMetrics } from '../../observability/host-metrics.ts';
import { readClockOffset } from '../../registry/settings.ts';
import { TrustedClock } from '../../registry/trusted-clock.ts';
import { CodeStore } from '../../runtime/code-store.ts';
import { LogStore } from '../../runtime/logs/log-store.ts';
import { detectSandbox } from '../../sandbox/index.ts';
import { createScheduler } from '../../scheduler/index.ts';
import { AdjustableClock } from '../../shared/clock.ts';
import { bindSocket, bindUnixSocket } from '../listening-socket.ts';
import { service } from '../service.ts';
import { openStores } from '../stores.ts';
import { config, folders, log, version } from './given.ts';

const BUILTIN_TENANTS = fileURLToPath(new URL('../../../builtin-tenants/', import.meta.url));

export const publicSocket = service({
  name: 'public socket',
  needs: { config },
  start: ({ config }) => bindSocket(config.host, config.port),
  stop: (socket) => socket.close(),
});

/** Where instances reach the edges. */
export const insideSocket = service({
  name: 'inside socket',
  needs: { folders },
  start: ({ folders }) => bindUnixSocket(path.join(folders.run, 'edge.sock')),
  stop: (socket) => socket.close(),
});

/** Public origin without a trailing slash. */
export const publicUrl = service({
  name: 'public URL',
  needs: { config, publicSocket },
  start: ({ config, publicSocket }) => (config.publicUrl || `http://localhost:${publicSocket.port}`).replace(/\/$/, ''),
});

export const stores = service({
  name: 'stores',
  needs: { config, folders, version },
  start: ({ config, folders, version }) => openStores(config, folders, version),
  stop: (stores) => stores.close(),
});

export const clock = service({
  name: 'clock',
  needs: { config, stores },
  start: async ({ config, stores }) =>
    new AdjustableClock(config.clock.movable ? await readClockOffset(stores.registry.db) : 0),
});

export const trustedClock = service({
  name: 'trusted clock',
  needs: { stores, clock },
  start: ({ stores, clock }) => new TrustedClock(stores.registry.db, clock),
});

/** Its jobs read and write the stores, so it ends before them. */
export const scheduler = service({
  name: 'scheduler',
  needs: { clock, log, stores },
  start: createScheduler,
  stop: (scheduler) => scheduler.stop(),
});

export const codeStore = service({
  name: 'code store',
  needs: { folders, stores },
  start: ({ folders, stores }) => new CodeStore(folders.code, stores.cluster?.bucket.code),
});

export const assetStore = service({
  name: 'static files',
  needs: { config, folders, stores },
  start: ({ config, folders, stores: { deployments, cluster } }) =>
    new AssetStore(
      folders.tenants,
      async (tenant) => {
        const limits = (await deployments.byTenant(tenant))?.limits ?? {};
        return limits['storage.assetBytes'] ?? config.storage.assetBytes;
      },
      cluster?.bucket.assets,
    ),
});

/** Logs of tenants. */
export const logs = service({
  name: 'logs',
  needs: { config, folders, clock },
  start: ({ config, folders, clock }) =>
    new LogStore({ folder: folders.tenants, clock, maxBytes: config.runtime.logBytes }),
  stop: (logs) => logs.close(),
});

export const sandbox = service({
  name: 'sandbox',
  needs: { config },
  start: ({ config }) => detectSandbox(config.runtime.sandbox),
});

/** The built-in tenants of this version, enabled or not. */
export const builtins = service({
  name: 'built-in tenants',
  needs: { config },
  start: ({ config }) => readBuiltins(BUILTIN_TENANTS, config.builtinTenants),
});

/** Names of the built-in tenants that are enabled and did not answer yet. */
export const builtinsWaiting = service({
  name: 'waiting built-in tenants',
  needs: { config },
  start: ({ config }) => new Set(config.builtinTenants.enabled),
});

export const metrics = service({ name: 'metrics', needs: {}, start: () => createHostMetrics() });

/** What the history counts as it happens. */
export const tally = service({ name: 'tally', needs: {}, start: () => new Tally() });

/** What the egress and the edges know of each other: by it an edge recognises the host's own tenants as callers. */
export const ownCallerKey = service({
  name: 'own caller key',
  needs: {},
  start: () => randomBytes(32).toString('hex'),
});
