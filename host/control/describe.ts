/** The metadata answer of a deployment, with what the registry and the runtime know of it now. */
import type { Deployment } from '../registry/schema/deployments.ts';
import type { ControlDeps } from './deps.ts';
import { metadata } from './metadata.ts';

export async function describe(deps: ControlDeps, deployment: Deployment) {
  const status = deps.runtime.status(deployment.slug);
  return metadata(deployment, {
    config: deps.config,
    now: deps.clock.now(),
    publicUrl: deps.publicUrl,
    domains: await deps.domains.ofTenant(deployment.tenant),
    runtime: { state: status.state, ...(status.lastExit ? { lastExit: status.lastExit } : {}) },
  });
}
