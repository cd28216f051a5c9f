/** All bindings of the host. What else there is to know of them is derived from this list. */
import { z } from 'zod';
import type { Config } from '../shared/config.ts';
import type { BindingSet, StorageQuotas } from '../shared/contracts.ts';
import { whyAbsent } from './absent.ts';
import { ai } from './ai/binding.ts';
import { analytics } from './analytics/binding.ts';
import type { Binding } from './binding.ts';
import { d1 } from './d1/binding.ts';
import { durableObjects } from './durable-objects/binding.ts';
import { edge } from './edge/binding.ts';
import { hyperdrive } from './hyperdrive/binding.ts';
import { kv } from './kv/binding.ts';
import { payments } from './payments/binding.ts';
import { queues } from './queues/binding.ts';
import { r2 } from './r2/binding.ts';
import { ratelimit } from './ratelimit/binding.ts';
import type { BindingServer, BindingServers, ServerHost } from './server.ts';
import { services } from './services/binding.ts';
import { DEFAULT_STORE, serviceName } from './stores.ts';
import { tails } from './tails/binding.ts';
import { version } from './version/binding.ts';
import { workflows } from './workflows/binding.ts';

export const BINDINGS: readonly Binding[] = [
  kv,
  d1,
  r2,
  payments,
  ratelimit,
  version,
  durableObjects,
  queues,
  workflows,
  services,
  edge,
  analytics,
  tails,
  ai,
  hyperdrive,
];

/** What a deployment that asks for nothing has. */
export const NO_BINDINGS: BindingSet = bindingSet({});

/** `{"kv": true}` as a deployment or a manifest says it. */
export const bindingsSchema = z.strictObject(
  Object.fromEntries(
    BINDINGS.map(({ key, env, summary, settings }) => [
      key,
      settings.optional().describe(env ? `env.${env}: ${summary}` : summary),
    ]),
  ),
  {
    error(issue) {
      if (issue.code !== 'unrecognized_keys') return undefined;
      const said = issue.keys.flatMap((key) => (whyAbsent(key) === undefined ? [] : [`${key} ${whyAbsent(key)}`]));
      return said.length > 0 ? said.join('; ') : undefined;
    },
  },
);

/** What a deployment has, in the shape that is kept of it. @param asked by key, as `bindingsSchema` accepts it */
export function bindingSet(asked: z.infer<typeof bindingsSchema>): BindingSet {
  const named = BINDINGS.filter(({ key, env }) => env !== undefined || asked[key]);
  return Object.fromEntries(named.map(({ key }) => [key, kept(asked[key] as BindingSet[string] | undefined)]));
}

function kept(asked: BindingSet[string] | undefined): BindingSet[string] {
  if (typeof asked !== 'object') return asked ?? false;
  return Object.keys(asked).length === 0 || asked;
}

/** One binding of a deployment. */
export interface Bound {
  binding: Binding;
  /** In env. */
  name: string;
  /** Of its store. */
  id: string;
  /** Of its socket and of its service in workerd; two names of one store share them. */
  service: string;
  /** It is the owner's, and other deployments of the owner may use it. */
  shared: boolean;
  settings: Record<string, unknown>;
}

export function boundBindings(set: BindingSet): Bound[] {
  return allBindings(set).filter(({ binding, settings }) => !binding.hidden?.(settings));
}

/** Those that the handler finds in env. */
export function envBindings(set: BindingSet): Bound[] {
  return boundBindings(set).filter(({ binding }) => !binding.outsideEnv);
}

/** Those with data behind them that the owner may look at; a queue that is only consumed is one of them. */
export function ownedBindings(set: BindingSet): Bound[] {
  return allBindings(set).filter(
    ({ binding, settings }) => isInspectable(binding) && !(binding.asked && binding.isServed?.(settings)),
  );
}

function allBindings(set: BindingSet): Bound[] {
  return BINDINGS.flatMap((binding) => {
    const { key, env = '' } = binding;
    const asked = set[key] === true ? { [env]: {} } : set[key] || {};
    return Object.entries(asked).map(([name, settings]): Bound => {
      const id = binding.idOf?.(settings) ?? settings.id ?? (name === env ? DEFAULT_STORE : name);
      const shared = settings.shared === true;
      return { binding, name, id, service: serviceName(key, id, shared), shared, settings };
    });
  });
}

/**
 * Those that something serves, without those that lead to the same store as another.
 * @param isMember without those that are objects of the instance, as it is a member of its tenant's cluster
 */
export function distinctServices(bound: Iterable<Bound>, isMember = false): Bound[] {
  const served = [...bound].filter(
    ({ binding: { store, server, connectionSecret, within, isServed, serverForPreviews }, settings }) =>
      (store || server || connectionSecret) &&
      !within?.(settings) &&
      !(isMember && serverForPreviews) &&
      (isServed?.(settings) ?? true),
  );
  return [...new Map(served.map((one) => [one.service, one])).values()];
}

/** Secrets that belong to bindings: their names -> the bindings' names in env. The handler does not find them in env. */
export function connectionSecrets(bound: Iterable<Bound>): Map<string, string> {
  return new Map(
    [...bound].flatMap(({ binding, name }) => {
      const secret = binding.connectionSecret?.(name);
      return secret === undefined ? [] : [[secret, name] as const];
    }),
  );
}

/** Whether its owner may look at what is behind the binding: data, queues, workflows. */
export function isInspectable({ store, data, asked }: Binding): boolean {
  return store !== undefined || data?.copy !== undefined || asked === true;
}

/** What bounds a tenant's stores: the limits of all bindings. */
export function storeQuotas(config: Config): StorageQuotas {
  const { requestsInFlight, analyticsDays } = config.storage;
  return { ...bindingLimits(config), requestsInFlight, analyticsDays };
}

/** Limits of all bindings and of the Cache API, by their names in a deployment's metadata. */
export function bindingLimits(config: Config): Record<string, number> {
  return Object.assign({ cacheBytes: config.storage.cacheBytes }, ...BINDINGS.map(({ limits }) => limits?.(config)));
}

/** The servers of all bindings that have one, by key. */
export async function openBindingServers(host: ServerHost): Promise<BindingServers> {
  const servers = new Map<string, BindingServer>();
  for (const { key, server, serverForPreviews } of BINDINGS) {
    const serving = (host.isClustered ? serverForPreviews : undefined) ?? server;
    const made = (await serving?.())?.(host);
    if (made) servers.set(key, made);
  }
  return servers;
}
