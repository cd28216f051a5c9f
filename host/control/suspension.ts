/** How a suspended deployment behaves: it serves nobody, and its code does not run. */
import { BINDINGS, isInspectable } from '../bindings/index.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { BindingSet, CodeBundle } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';

type Suspendable = Pick<Deployment, 'slug' | 'state' | 'suspendedAt' | 'suspendedReason'>;

/** @returns what callers are told; undefined: they are served, as far as the operator is concerned */
export function suspension({ slug, state, suspendedAt, suspendedReason }: Suspendable): Problem | undefined {
  if (!suspendedAt || state === 'decommissioned') return undefined;
  return new Problem('suspended', `${slug} is suspended by the operator of this host: ${suspendedReason}`);
}

/**
 * Stands in for the tenant's code: an instance of it gives the owner the data through the host's own worker, and
 * answers what a request would be told that came too late to hear of the suspension.
 */
export function suspendedBundle(problem: Problem): CodeBundle {
  const document = JSON.stringify(problem.toDocument());
  const code = `const init = {status: ${problem.status}, headers: {'content-type': 'application/problem+json', 'cache-control': 'no-store'}};
export default { fetch: () => new Response(${JSON.stringify(document)}, init) };
`;
  return {
    modules: [{ name: 'suspended.js', type: 'esModule', body: Buffer.from(code) }],
    sourceMap: undefined,
  };
}

/** Those to data that lies outside of the instance. Objects, queues and workflows run the tenant's own code. */
export function suspendedBindings(set: BindingSet): BindingSet {
  const kept = BINDINGS.filter((binding) => isInspectable(binding) && !binding.asked);
  return Object.fromEntries(kept.flatMap(({ key }) => (set[key] === undefined ? [] : [[key, set[key]]])));
}
