/** What happens to deployments by the clock: crons, warnings, expiry, and the removal of code that nothing uses. */
import { Lifecycle } from '../../control/lifecycle.ts';
import { TenantCrons } from '../../scheduler/tenant-crons.ts';
import { postOutside } from '../outside.ts';
import { service } from '../service.ts';
import { TimedWork } from '../timed-work.ts';
import { clock, codeStore, logs, metrics, scheduler, stores, trustedClock } from './base.ts';
import { ownEgressSocket } from './binding-processes.ts';
import { config, folders, log } from './given.ts';
import { runtime, tenantData } from './instances.ts';
import { routes } from './traffic.ts';

/** Removes code that no version uses any more. */
export const removeCode = service({
  name: 'removal of code',
  needs: { codeStore, stores },
  start: ({ codeStore, stores: { deployments } }) =>
    async function removeCode(digests: string[]): Promise<void> {
      const isUnused = async (digest: string) => (await deployments.versions.unusedCode([digest])).length > 0;
      await Promise.all(digests.map((digest) => codeStore.remove(digest, () => isUnused(digest))));
    },
});

export const crons = service({
  name: 'crons',
  needs: { scheduler, stores, clock, log, runtime, metrics },
  start: ({ scheduler, stores, clock, log, runtime, metrics }) =>
    new TenantCrons({
      scheduler,
      history: stores.cronRuns,
      clock,
      log,
      run: (slug, cron, time) => runtime.runScheduled(slug, cron, time),
      onRun: (run) => metrics.onCronRun(run),
    }),
});

const lifecycle = service({
  name: 'lifecycle',
  needs: {
    config,
    folders,
    clock,
    trustedClock,
    log,
    logs,
    stores,
    routes,
    runtime,
    tenantData,
    removeCode,
    ownEgressSocket,
  },
  start: ({ config, folders, stores, tenantData, ownEgressSocket, ...values }) =>
    new Lifecycle({
      ...values,
      config: config.slugs,
      deployments: stores.deployments,
      tenantsFolder: folders.tenants,
      purgeStorage: tenantData.purge,
      post: (url, body, timeoutMs) => postOutside(ownEgressSocket, url, body, timeoutMs),
    }),
});

export const timedWork = service({
  name: 'timed work',
  needs: { scheduler, lifecycle, crons, stores },
  start: ({ scheduler, lifecycle, crons, stores }) =>
    new TimedWork({ scheduler, lifecycle, crons, deployments: stores.deployments, registry: stores.registry }),
});
