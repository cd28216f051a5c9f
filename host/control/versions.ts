/** Puts a change of a deployment into service, and takes it back when the new instance does not start. */

import type { DeploymentChange, Deployments } from '../registry/deployments.ts';
import { unfenced } from '../registry/fences.ts';
import type { Deployment, Version } from '../registry/schema/deployments.ts';
import type { ProbePlace } from '../runtime/deploy/probe.ts';
import type { ControlDeps } from './deps.ts';

/**
 * Older versions of a deployment are forgotten: changing it costs nothing, and each may take maxCodeBytes. `bytes`: of all
 * versions together; the newest two are kept whatever they take.
 */
export const KEPT_VERSIONS = { count: 50, bytes: 100 * 1_048_576 };

type Parts = Pick<
  ControlDeps,
  'deployments' | 'clock' | 'log' | 'runtime' | 'routes' | 'removeCode' | 'assets' | 'scheduleChanged'
>;

/** What the owner's log says of a new version. */
export function liveText({ version, handlers }: Pick<Deployment, 'version' | 'handlers'>): string {
  return `version ${version} is live${handlers.includes('fetch') ? '' : '; it has no fetch(), so requests are answered 500'}`;
}

/**
 * Call it in the deployment's turn (`ControlDeps.updates`).
 * @param changed the deployment with its new settings
 * @returns `at` for `bringIntoService`, and where the code can be probed so that the instance that was probed takes over
 */
export async function planUpdate(
  { clock, planInstance, runtime }: Pick<ControlDeps, 'clock' | 'planInstance' | 'runtime'>,
  changed: Deployment,
  secrets: Record<string, string>,
): Promise<{ at: number; place(): ProbePlace | undefined }> {
  const at = clock.now();
  const planned = await planInstance({ ...changed, revision: changed.revision + 1, updatedAt: at }, secrets);
  return { at, place: () => runtime.expectUpdate(planned) };
}

/**
 * Call it in the deployment's turn (`ControlDeps.updates`).
 * @param at business time of the change, ms: where an instance of it is there already, what that was planned with
 * @returns the deployment as it is in service now
 * @throws Problem what the runtime says of a revision that does not start; everything is then as it was before
 */
export function bringIntoService(
  deps: Pick<ControlDeps, 'secrets'> & Parts,
  present: Deployment,
  change: DeploymentChange,
  at = deps.clock.now(),
): Promise<Deployment> {
  // At once: the keys that sealed what is in `change` are to be kept.
  return deps.secrets.keepingKeys(() => replace(deps, present, change, at));
}

async function replace(deps: Parts, present: Deployment, change: DeploymentChange, at: number): Promise<Deployment> {
  const { deployments, clock, runtime, routes } = deps;
  const before = await deployments.snapshot(present.tenant);
  const updated = await deployments.update(present.tenant, change, at);
  try {
    // The lease of this change does not cover what the instance writes later.
    await unfenced(() => runtime.activate(updated.slug));
  } catch (error) {
    await deployments.restore(before, updated, clock.now());
    // One that was started meanwhile has what was taken back.
    runtime.endPreviews(updated.slug);
    throw error;
  }
  await Promise.all([routes.push(updated.slug), forgetOld(deps, updated, change)]);
  deps.scheduleChanged();
  return updated;
}

/**
 * Keeps a version that is not live; it has an address of its own. Call it in the deployment's turn.
 * @throws Problem gone when the deployment was decommissioned meanwhile
 */
export async function keepPreview(
  deps: Parts,
  present: Deployment,
  code: Parameters<Deployments['versions']['add']>[1],
): Promise<Version> {
  const { deployments, clock, routes } = deps;
  const added = await deployments.versions.add(present.tenant, code, clock.now());
  await forgetVersions(deps, present);
  await forgetAssets(deps, present);
  await routes.push(present.slug);
  return added;
}

async function forgetOld(deps: Parts, updated: Deployment, { code, settings }: DeploymentChange): Promise<void> {
  if (code) await forgetVersions(deps, updated);
  if (code || settings?.assets !== undefined) await forgetAssets(deps, updated);
}

async function forgetVersions(deps: Parts, { tenant, slug }: Deployment): Promise<void> {
  await deps.deployments.versions
    .forget(tenant, KEPT_VERSIONS)
    .then((digests) => deps.removeCode(digests))
    .catch((error) => deps.log.warn({ err: error, slug }, 'old versions were not removed'));
}

/** Removes static files that no kept version has. */
async function forgetAssets({ deployments, assets, log }: Parts, { tenant, slug, ...row }: Deployment): Promise<void> {
  try {
    const used = [row, ...(await deployments.versions.of(tenant))].flatMap(({ assets: files }) => files ?? []);
    await assets.collect(tenant, used);
  } catch (error) {
    log.warn({ err: error, slug }, 'old static files were not removed');
  }
}
