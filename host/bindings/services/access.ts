/** Who may call whom. Pure. */
import type { BindingSet } from '../../shared/contracts.ts';

export interface Called {
  /** Slug. */
  service: string;
  /** Undefined: the default export. */
  entrypoint: string | undefined;
}

interface Party {
  slug: string;
  /** Lowercase 0x address. */
  owner: string;
}

/** Deployments of one owner may call each other; all others, only what the callee's owner has opened to them. */
export function mayCall(
  caller: Party,
  callee: Party & { bindings: BindingSet },
  entrypoint: string | undefined,
): boolean {
  if (caller.owner === callee.owner) return true;
  const allowed = new Set([caller.owner, `${caller.owner}/${caller.slug}`]);
  return settingsOf(callee.bindings).some(
    ({ open, entrypoint: opened }) =>
      Array.isArray(open) && opened === entrypoint && open.some((one) => allowed.has(String(one).toLowerCase())),
  );
}

/** The other deployments that these bindings call, each under the name that it has in env. */
export function calledBy(bindings: BindingSet): (Called & { name: string })[] {
  const all = bindings.services;
  return Object.entries(typeof all === 'object' ? all : {}).flatMap(([name, { service, entrypoint }]) =>
    service === undefined ? [] : [{ name, ...calledIn({ service, entrypoint }) }],
  );
}

/** @param settings of a binding that leads to another deployment */
export function calledIn({ service, entrypoint }: Readonly<Record<string, unknown>>): Called {
  return { service: String(service), entrypoint: entrypoint === undefined ? undefined : String(entrypoint) };
}

/** Entrypoints of the deployment itself that it binds or opens: the code has to export them. */
export function ownEntrypoints(bindings: BindingSet): string[] {
  const own = settingsOf(bindings).flatMap(({ service, entrypoint }) =>
    service === undefined && entrypoint !== undefined ? [String(entrypoint)] : [],
  );
  return [...new Set(own)];
}

function settingsOf({ services }: BindingSet): Readonly<Record<string, unknown>>[] {
  return typeof services === 'object' ? Object.values(services) : [];
}
