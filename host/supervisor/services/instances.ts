/** The runtime, and what its instances are made of: code, secrets and bindings of a deployment. */
import { workerdConfig } from '../../assets/asset-list.ts';
import type { AssetStore } from '../../assets/asset-store.ts';
import { folderSize, objectsFolder } from '../../bindings/durable-objects/folder.ts';
import { openBindingServers, ownedBindings, storeQuotas } from '../../bindings/index.ts';
import { sharedSpace, sharedStores, storeName } from '../../bindings/stores.ts';
import { createInstanceClient } from '../../control/instance-client.ts';
import { checkCall } from '../../control/service-calls.ts';
import { suspendedBindings, suspendedBundle, suspension } from '../../control/suspension.ts';
import { tollView } from '../../control/toll-view.ts';
import type { Payments } from '../../payments/index.ts';
import type { Deployments } from '../../registry/deployments.ts';
import type { Deployment } from '../../registry/schema/deployments.ts';
import type { Runtime } from '../../runtime/contract.ts';
import { createRuntime } from '../../runtime/runtime.ts';
import type { AssetSettings, InstanceAssets, InstancePlan, InstanceSpec, TenantId } from '../../shared/contracts.ts';
import { NO_OTHERS, type Others } from '../../shared/others.ts';
import { ownCaller } from '../../shared/own-caller.ts';
import { Problem } from '../../shared/problem.ts';
import { Later } from '../later.ts';
import type { ClusteredObjects } from '../objects-cluster.ts';
import { service } from '../service.ts';
import {
  assetStore,
  builtins,
  clock,
  codeStore,
  insideSocket,
  logs,
  metrics,
  ownCallerKey,
  sandbox,
  stores,
  tally,
} from './base.ts';
import { egress, storage } from './binding-processes.ts';
import { companions } from './companions.ts';
import { config, folders, log } from './given.ts';
import { edges } from './traffic.ts';

const later = <Value>(name: string) =>
  service({
    name: `${name}, later`,
    needs: {},
    start: () => new Later<Value>(),
    stop: (value) => value.abandon(),
  });

/** Loading payments takes most of a start: instances start before. */
export const paymentsLater = later<Payments>('payments');

/** Instances that call each other: what serves their bindings is there before the runtime. */
const runtimeLater = later<Runtime>('runtime');

/** What serves the bindings that the storage process does not. */
export const bindingServers = service({
  name: 'binding servers',
  needs: { config, folders, stores, sandbox, clock, log, logs, insideSocket, paymentsLater, runtimeLater },
  start({ config, folders, stores, sandbox, clock, log, logs, insideSocket, paymentsLater, runtimeLater }) {
    const tell = (tenant: TenantId, event: string, text: string) =>
      void logs
        .append(tenant, { kind: 'platform', event, text })
        .catch((error) => log.warn({ err: error }, "a tenant's log cannot be written"));
    return openBindingServers({
      tell,
      async deliverTail(from, consumer, events) {
        const called = { service: consumer, entrypoint: undefined };
        const { tenant, related } = await checkCall(stores.deployments, clock, from, called);
        const producer = await stores.deployments.byTenant(from);
        if (!related || !producer) throw new Problem('forbidden', `${consumer} belongs to another owner.`);
        const { outcome, ...said } = await (await runtimeLater.promise).tail(consumer, producer.slug, events);
        stores.usage.count(tenant, clock.now(), { requests: 1, errors: outcome === 'ok' ? 0 : 1 });
        if ('error' in said)
          tell(tenant, 'tail-failed', `tail() failed with traces of ${producer.slug}: ${said.error}`);
      },
      async sendToQueue(from, queue, call) {
        const { slug, binding } = await consumerOf(stores.deployments, from, queue);
        return (await runtimeLater.promise).callQueue(slug, binding, call);
      },
      config,
      isClustered: stores.cluster !== undefined,
      tenantsFolder: folders.tenants,
      runFolder: folders.run,
      sandbox,
      log,
      edgeSocket: insideSocket.path,
      payments: {
        async open({ tenant, slug, socket }) {
          const deployment = await stores.deployments.byTenant(tenant);
          if (!deployment) throw new Problem('not_found', `There is no deployment ${slug}.`);
          const { bindings } = await paymentsLater.promise;
          await bindings.open({ tenant, slug, socket, payTo: tollView(deployment).payTo });
        },
        close: async ({ tenant }) => (await paymentsLater.promise).bindings.close({ tenant }),
      },
      services: {
        check: (caller, called) => checkCall(stores.deployments, clock, caller, called),
        visit: async (slug) => (await runtimeLater.promise).visit(slug),
        count: (tenant, failed) => stores.usage.count(tenant, clock.now(), { requests: 1, errors: failed ? 1 : 0 }),
        refused: (tenant, text) => tell(tenant, 'service-refused', text),
      },
    });
  },
});

/** The deployment of the same owner that takes the messages of a shared queue. @throws Problem */
async function consumerOf(
  deployments: Deployments,
  from: TenantId,
  queue: string,
): Promise<{ slug: string; binding: string }> {
  const sender = await deployments.byTenant(from);
  if (!sender) throw new Problem('not_found', 'The deployment is gone.');
  const { owner } = sender;
  const found = (await deployments.ofOwner(owner)).flatMap((row) => {
    const bound = ownedBindings({ queues: row.bindings.queues ?? false });
    const consumer = bound.find(({ shared, settings }) => shared && settings.queue === queue && settings.consumer);
    return consumer ? [{ row, binding: consumer.name }] : [];
  });
  const [first, ...others] = found;
  if (!first) {
    throw new Problem('not_found', `No deployment of yours has a consumer of the queue ${queue} with "shared": true.`);
  }
  if (others.length > 0) {
    const slugs = found.map(({ row }) => row.slug).join(', ');
    throw new Problem('conflict', `The queue ${queue} has several consumers: ${slugs}. Remove all but one.`);
  }
  const { row, binding } = first;
  if (row.state !== 'active' || suspension(row)) {
    throw new Problem('not_ready', `${row.slug}, which consumes the queue ${queue}, is not in service.`);
  }
  return { slug: row.slug, binding };
}

/** Objects of several nodes; undefined where this host is one box. The storage process makes the schema of their bucket. */
export const clusteredObjects = service({
  name: 'objects of several nodes',
  needs: { config, stores, storage, log, runtimeLater },
  async start({ config, stores, log, runtimeLater }): Promise<ClusteredObjects | undefined> {
    if (!stores.cluster) return undefined;
    const { openClusteredObjects } = await import('../objects-cluster.ts');
    const members = runtimeLater.promise.then((runtime) => runtime.members);
    members.catch(() => undefined);
    return await openClusteredObjects({ config: config.cluster, cluster: stores.cluster, stores, log, members });
  },
  stop: (objects) => objects?.close(),
});

/** The other nodes of this host. */
export const others = service({
  name: 'other nodes',
  needs: { clusteredObjects },
  start: ({ clusteredObjects }): Others => clusteredObjects?.others ?? NO_OTHERS,
});

/** What a start of an instance reads of its deployment. */
export const instanceSpecs = service({
  name: 'instance specs',
  needs: { config, stores, codeStore, assetStore, builtins, companions, ownCallerKey },
  start({ config, stores: { deployments, secrets }, codeStore, assetStore, builtins, companions, ownCallerKey }) {
    const companionsOf = (slug: string) =>
      (builtins.find(({ name }) => name === slug)?.asks.companions ?? []).flatMap((name) => {
        const socket = companions[name];
        return socket === undefined ? [] : [`unix:${socket}`];
      });
    /** Of a deployment as it is, or will be, with these secrets. */
    async function planned(row: Deployment, values: Record<string, string>): Promise<InstancePlan> {
      const { slug, tenant, compatibilityDate, compatibilityFlags, bindings, limits, vars, assets, crons } = row;
      const revision = Object.keys(limits).length > 0 ? `${row.revision} ${JSON.stringify(limits)}` : `${row.revision}`;
      return {
        ...{ slug, tenant, revision, deployedAt: row.updatedAt },
        ...{ compatibilityDate, compatibilityFlags, bindings, limits, vars, crons },
        secrets: values,
        sharedSpace: sharedSpace(row.owner),
        ownCaller: ownCaller(tenant, ownCallerKey),
        assets: assets ? await assetsOf(assetStore, tenant, assets) : undefined,
        egressAllow: [...(config.runtime.egressAllow[slug] ?? []), ...(row.builtin ? companionsOf(slug) : [])],
      };
    }
    async function resolve(slug: string, preview?: string): Promise<InstanceSpec> {
      const row = await deployments.bySlug(slug);
      if (row?.state !== 'active')
        throw new Problem('not_found', `${slug} is not running: it is ${row?.state ?? 'not deployed'}.`);
      const { tenant } = row;
      const suspended = suspension(row);
      if (suspended && preview !== undefined) throw suspended;
      if (suspended) {
        const plan = await planned({ ...row, assets: null }, {});
        return {
          ...plan,
          bindings: suspendedBindings(row.bindings),
          revision: `${plan.revision} suspended`,
          bundle: suspendedBundle(suspended),
          compatibilityFlags: [],
          vars: {},
          crons: [],
          egressAllow: [],
        };
      }
      const version = preview === undefined ? undefined : await deployments.versions.preview(tenant, preview);
      if (preview !== undefined && !version)
        throw new Problem('not_found', `${slug} has no such version any more; turnpike versions lists them.`);
      // All else is as it is for the one that is live.
      const { digest, assets } = version ?? row;
      const plan = await planned({ ...row, assets }, await secrets.reveal(tenant));
      const bundle = await codeStore.get(digest);
      if (!version) return { ...plan, bundle };
      const revision = `${plan.revision}, preview of version ${version.version}`;
      return { ...plan, deployedAt: version.createdAt, revision, bundle };
    }
    return { planned, resolve };
  },
});

async function assetsOf(store: AssetStore, tenant: TenantId, settings: AssetSettings): Promise<InstanceAssets> {
  const list = await store.list(tenant, settings.list);
  return {
    name: `files.${settings.list.slice(0, 12)}`,
    binding: settings.binding,
    config: workerdConfig(settings, list),
    place: (folder) => store.place(tenant, list, folder),
  };
}

export const runtime = service({
  name: 'runtime',
  needs: {
    config,
    folders,
    logs,
    sandbox,
    clock,
    log,
    instanceSpecs,
    storage,
    egress,
    edges,
    bindingServers,
    clusteredObjects,
    metrics,
    stores,
    runtimeLater,
    tally,
  },
  start(values): Runtime {
    const { config, folders, logs, sandbox, clock, log, storage, egress, edges, metrics, stores, tally } = values;
    const runtime = createRuntime({
      config: config.runtime,
      storeQuotas: storeQuotas(config),
      tenantsFolder: folders.tenants,
      runFolder: folders.run,
      logs,
      sandbox,
      clock,
      log,
      resolve: values.instanceSpecs.resolve,
      ...(values.clusteredObjects && { cluster: values.clusteredObjects.cluster }),
      storage: {
        open: (tenant) => storage.channel().call('open', tenant),
        close: (tenant) => storage.channel().call('close', tenant),
      },
      egress: {
        open: (tenant) => egress.channel().call('open', tenant),
        close: (tenant) => egress.channel().call('close', tenant),
      },
      edges: {
        setInstance: async (instance) => void (await edges.each('setInstance', instance)),
        retire: async (instance) => {
          const answers = await edges.each('retire', instance);
          return { inFlight: answers.reduce((sum, { inFlight }) => sum + inFlight, 0) };
        },
        failed: async (instance) => void (await edges.each('failed', instance)),
      },
      servers: values.bindingServers,
      onEvent(event) {
        metrics.onRuntimeEvent(event);
        if (event.type !== 'used') return;
        stores.usage.count(event.tenant, clock.now(), { cpuMs: event.cpuMs });
        tally.onInstanceCpu(event.cpuMs);
      },
    });
    values.runtimeLater.resolve(runtime);
    // What was open in a process that died is opened again.
    storage.onRestart(() => runtime.reopen('storage'));
    egress.onRestart(() => runtime.reopen('egress'));
    void stores.deployments
      .withObjects()
      .then((deployments) => runtime.watchAlarms(deployments))
      .catch((error) => log.error({ err: error }, 'alarms of Durable Objects are not watched'));
    return runtime;
  },
  stop: (runtime) => runtime.close(),
});

/** Sends requests that control received to instances. */
export const instanceClient = service({
  name: 'instance client',
  needs: { config, runtime },
  start: ({ config, runtime }) => createInstanceClient(runtime, config.runtime.requestIdleMs),
  stop: (client) => client.close(),
});

/** What tenants have stored, wherever it is. */
export const tenantData = service({
  name: 'data of tenants',
  needs: { folders, storage, bindingServers, assetStore, stores, logs, clusteredObjects },
  start: ({ folders, storage, bindingServers, assetStore, stores, logs, clusteredObjects }) => {
    /** Of all that the owner's deployments share. */
    async function sharedUsage(tenant: TenantId): Promise<Record<string, number>> {
      const row = await stores.deployments.byTenant(tenant);
      if (!row || sharedStores(row.bindings).length === 0) return {};
      const usage = await storage.channel().call('usage', { tenant: sharedSpace(row.owner) });
      return Object.fromEntries(
        Object.entries(usage).map(([name, value]) => [`shared${name[0]?.toUpperCase()}${name.slice(1)}`, value]),
      );
    }
    return {
      usage: async (tenant: TenantId) => ({
        ...(await storage.channel().call('usage', { tenant })),
        ...(await sharedUsage(tenant)),
        ...(await assetStore.usage(tenant)),
        durableObjectBytes:
          (await clusteredObjects?.records.bytesOf(tenant)) ??
          (await folderSize(objectsFolder(folders.tenants, tenant))).bytes,
        ...Object.assign(
          {},
          ...(await Promise.all([...bindingServers.values()].map((server) => server.usage?.(tenant)))),
        ),
      }),
      async purge(tenant: TenantId): Promise<void> {
        await storage.channel().call('purge', { tenant });
        for (const { owner, kind, id } of await stores.sharedStores.onlyOf(tenant))
          await storage.channel().call('purge', { tenant: sharedSpace(owner), stores: [storeName(kind, id)] });
        await stores.sharedStores.forget(tenant);
        for (const server of bindingServers.values()) await server.purge?.(tenant);
        await clusteredObjects?.records.purge(tenant);
        await assetStore.purge(tenant);
        await stores.cronRuns.forget(tenant);
        await logs.forget(tenant);
      },
    };
  },
});
