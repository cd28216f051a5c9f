/** Which stores a deployment shares with others of its owner. */
import type { BindingSet } from './contracts.ts';

/** @returns each kind and id once */
export function sharedBindings(bindings: BindingSet): { kind: string; id: string }[] {
  const found = Object.entries(bindings).flatMap(([kind, asked]) =>
    Object.values(typeof asked === 'object' ? asked : {}).flatMap(({ id, shared }) =>
      shared === true && id !== undefined ? { kind, id } : [],
    ),
  );
  return [...new Map(found.map((one) => [`${one.kind} ${one.id}`, one])).values()];
}
