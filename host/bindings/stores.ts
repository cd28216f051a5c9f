/**
 * The stores of a deployment. It may have several of a kind, each with an id by which its data is found again, whatever
 * the binding to it is called.
 */
import { createHash } from 'node:crypto';
import type { BindingSet, TenantId } from '../shared/contracts.ts';
import { sharedBindings } from '../shared/shared-bindings.ts';

/** Id of the store that `{"kv": true}` asks for. */
export const DEFAULT_STORE = 'default';
/** It becomes a part of a folder's name. */
export const STORE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Name of a store among those of its deployment, and of its folder: `kv`, or `kv.sessions`. */
export function storeName(kind: string, id: string): string {
  return id === DEFAULT_STORE ? kind : `${kind}.${id}`;
}

/** `kv.sessions` -> `kv`. */
export function kindOfStore(name: string): string {
  return name.split('.', 1)[0] ?? name;
}

/** The stores of one kind. @param folders names in a deployment's folder */
export function storesOf(kind: string, folders: Iterable<string>): string[] {
  return [...folders].filter((name) => name === kind || name.startsWith(`${kind}.`));
}

/**
 * Name for a store's socket and service. Short: a unix socket's path holds 107 bytes.
 * @param shared a deployment may have a store of its own of the same id
 */
export function serviceName(key: string, id: string, shared = false): string {
  if (id === DEFAULT_STORE && !shared) return key;
  const whole = shared ? `shared/${id}` : id;
  return `${key}.${createHash('sha256').update(whole).digest('base64url').slice(0, 6)}`;
}

/**
 * In whose name the store process keeps what deployments of one owner share: apart from every deployment, with one quota.
 * @param owner lowercase 0x address
 */
export function sharedSpace(owner: string): TenantId {
  if (!/^0x[0-9a-f]{40}$/.test(owner)) throw new TypeError(`an owner has no such address: ${owner}`);
  return `shared-${owner.slice(2)}`;
}

/** Names of the stores that these bindings share. */
export function sharedStores(bindings: BindingSet): string[] {
  return sharedBindings(bindings).map(({ kind, id }) => storeName(kind, id));
}

/** Where a store's objects are in a bucket of all tenants: none is below another's. @param name of the store */
export function objectPlace(tenant: string, name: string): string {
  const kind = kindOfStore(name);
  return name === kind ? tenant : `${tenant}.${name.slice(kind.length + 1)}`;
}
