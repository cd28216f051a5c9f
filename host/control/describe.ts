/** The metadata answer of a deployment, with what the registry and the runtime know of it now. */
import type { Deployment } from '../registry/schema/deployments.ts';
import { metadata } from './metadata.ts';
import type { ControlParts } from './parts.ts';

export async function describe(parts: ControlParts, deployment: Deployment) {
  const status = parts.runtime.status(deployment.slug);
  return metadata(deployment, {
    config: parts.config,
    now: parts.clock.now(),
    publicUrl: parts.publicUrl,
    domains: await parts.domains.ofTenant(deployment.tenant),
    runtime: { state: status.state, ...(status.lastExit ? { lastExit: status.lastExit } : {}) },
  });
}
