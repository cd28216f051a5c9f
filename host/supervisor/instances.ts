/** The runtime, and what its instances are made of: code, secrets and bindings of a deployment. */
import type { Logger } from 'pino';
import { storeQuotas } from '../bindings/index.ts';
import { openBindingServers } from '../bindings/open-servers.ts';
import type { BindingServers } from '../bindings/server.ts';
import type { Builtin, Companion } from '../control/builtins.ts';
import { tollView } from '../control/toll-view.ts';
import type { Payments } from '../payments/index.ts';
import type { CodeStore } from '../runtime/code-store.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import { createRuntime } from '../runtime/runtime.ts';
import type { Sandbox } from '../sandbox/confinement.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { InstanceSpec } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import type { BindingProcesses } from './binding-processes.ts';
import type { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import type { Observation } from './observation.ts';
import type { Stores } from './stores.ts';

export interface InstancesOptions extends Pick<BindingProcesses, 'storage' | 'egress'> {
  config: Config;
  folders: Folders;
  stores: Stores;
  codeStore: CodeStore;
  logs: LogStore;
  sandbox: Sandbox;
  clock: Clock;
  log: Logger;
  /** Sockets of what runs beside built-in tenants: a tenant's fetch() reaches those that it asks for. */
  companions: Companions;
  builtins: readonly Builtin[];
  edges(): Edges;
  servers: BindingServers;
  observation: Observation;
}

/** By name, those that run. */
export type Companions = Partial<Record<Companion, string>>;

export function openRuntime(options: InstancesOptions): Runtime {
  const { config, folders, stores, codeStore, logs, sandbox, clock, log, edges, servers, observation } = options;
  const { storage, egress } = options;
  const { deployments, secrets, usage } = stores;

  const companionsOf = (slug: string) =>
    (options.builtins.find(({ name }) => name === slug)?.asks.companions ?? []).flatMap((name) => {
      const socket = options.companions[name];
      return socket === undefined ? [] : [`unix:${socket}`];
    });

  async function resolve(slug: string): Promise<InstanceSpec> {
    const row = await deployments.bySlug(slug);
    if (row?.state !== 'active')
      throw new Problem('not_found', `${slug} is not running: it is ${row?.state ?? 'not deployed'}.`);
    return {
      slug,
      tenant: row.tenant,
      revision: String(row.revision),
      bundle: await codeStore.get(row.digest),
      compatibilityDate: row.compatibilityDate,
      compatibilityFlags: row.compatibilityFlags,
      secrets: await secrets.reveal(row.tenant),
      bindings: row.bindings,
      crons: row.crons,
      egressAllow: [...(config.runtime.egressAllow[slug] ?? []), ...(row.builtin ? companionsOf(slug) : [])],
    };
  }

  return createRuntime({
    config: config.runtime,
    storeQuotas: storeQuotas(config),
    runFolder: folders.run,
    logs,
    sandbox,
    clock,
    log,
    resolve,
    storage: {
      open: (tenant) => storage.channel().call('open', tenant),
      close: (tenant) => storage.channel().call('close', tenant),
    },
    egress: {
      open: (tenant) => egress.channel().call('open', tenant),
      close: (tenant) => egress.channel().call('close', tenant),
    },
    edges: {
      setInstance: async (instance) => void (await edges().each('setInstance', instance)),
      retire: async (instance) => {
        const answers = await edges().each('retire', instance);
        return { inFlight: answers.reduce((sum, { inFlight }) => sum + inFlight, 0) };
      },
      failed: async (instance) => void (await edges().each('failed', instance)),
    },
    servers,
    onEvent(event) {
      observation.metrics.onRuntimeEvent(event);
      if (event.type === 'used') usage.count(event.tenant, clock.now(), { cpuMs: event.cpuMs });
    },
  });
}

export interface ServersOptions extends Pick<InstancesOptions, 'config' | 'folders' | 'stores' | 'sandbox' | 'log'> {
  payments: Promise<Payments>;
}

/** What serves the bindings that the storage process does not. */
export function openServers({
  config,
  folders,
  stores,
  sandbox,
  log,
  payments,
}: ServersOptions): Promise<BindingServers> {
  return openBindingServers({
    config,
    tenantsFolder: folders.tenants,
    runFolder: folders.run,
    sandbox,
    log,
    payments: {
      async open({ tenant, slug, socket }) {
        const deployment = await stores.deployments.byTenant(tenant);
        if (!deployment) throw new Problem('not_found', `There is no deployment ${slug}.`);
        const { bindings } = await payments;
        await bindings.open({ tenant, slug, socket, payTo: tollView(deployment).payTo });
      },
      close: async ({ tenant }) => (await payments).bindings.close({ tenant }),
    },
  });
}
