/** Puts a change of a deployment into service, and takes it back when the new instance does not start. */

import type { DeploymentChange } from '../registry/deployments.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { ControlParts } from './parts.ts';

/**
 * @returns the deployment as it is in service now
 * @throws Problem what the runtime says of a revision that does not start; everything is then as it was before
 */
export async function bringIntoService(
  parts: Pick<ControlParts, 'deployments' | 'clock' | 'runtime' | 'routes' | 'scheduleChanged'>,
  present: Deployment,
  change: DeploymentChange,
): Promise<Deployment> {
  const { deployments, clock, runtime, routes } = parts;
  const before = await deployments.snapshot(present.tenant);
  const updated = await deployments.update(present.tenant, change, clock.now());
  try {
    await runtime.activate(updated.slug);
  } catch (error) {
    await deployments.restore(before, updated, clock.now());
    throw error;
  }
  await routes.push(updated.slug);
  parts.scheduleChanged();
  return updated;
}
