/** All bindings of the host. What else there is to know of them is derived from this list. */
import { z } from 'zod';
import type { Config } from '../shared/config.ts';
import type { BindingSet, StorageQuotas } from '../shared/contracts.ts';
import type { Binding } from './binding.ts';
import { d1 } from './d1/binding.ts';
import { kv } from './kv/binding.ts';
import { payments } from './payments/binding.ts';
import { r2 } from './r2/binding.ts';
import type { BindingServer, BindingServers, ServerHost } from './server.ts';

export const BINDINGS: readonly Binding[] = [kv, d1, r2, payments];

/** What a deployment that asks for nothing has. */
export const NO_BINDINGS: BindingSet = bindingSet({});

/** `{"kv": true}` as a deployment or a manifest says it. */
export const bindingsSchema = z.strictObject(
  Object.fromEntries(
    BINDINGS.map(({ key, env, summary, settings }) => [key, settings.optional().describe(`env.${env}: ${summary}`)]),
  ),
);

/** The bindings that are on. @param asked by key, as `bindingsSchema` accepts it */
export function bindingSet(asked: Record<string, unknown>): BindingSet {
  return Object.fromEntries(BINDINGS.map(({ key }) => [key, (asked[key] ?? false) !== false]));
}

export function enabledBindings(set: BindingSet): Binding[] {
  return BINDINGS.filter(({ key }) => set[key]);
}

/** What bounds a tenant's stores: the limits of all bindings. */
export function storeQuotas(config: Config): StorageQuotas {
  return { ...bindingLimits(config), requestsInFlight: config.storage.requestsInFlight };
}

/** Limits of all bindings, by their names in a deployment's metadata. */
export function bindingLimits(config: Config): Record<string, number> {
  return Object.assign({}, ...BINDINGS.map(({ limits }) => limits?.(config)));
}

/** The servers of all bindings that have one, by key. */
export async function openBindingServers(host: ServerHost): Promise<BindingServers> {
  const servers = new Map<string, BindingServer>();
  for (const { key, server } of BINDINGS) {
    const made = (await server?.())?.(host);
    if (made) servers.set(key, made);
  }
  return servers;
}
