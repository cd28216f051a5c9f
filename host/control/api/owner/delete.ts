/** DELETE /_admin/:slug: the owner decommissions; data goes after the grace period. */
import { DAY_MS } from '../../../registry/deployments.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { describe } from '../../metadata.ts';
import { requireOwner } from '../../ownership.ts';

export function deleteEndpoint(deps: ControlDeps): Endpoint {
  const { graceDays, cooldownDays } = deps.config.slugs;
  return {
    method: 'DELETE',
    path: '/_admin/:slug',
    tool: 'delete',
    access: 'owner',
    summary: 'Decommission a deployment',
    description:
      `The URL answers 410 at once. Data is removed after ${graceDays} days; the slug is free for others after ` +
      `${cooldownDays} days, and for its former owner at once. Nothing is refunded.`,
    responses: {
      200: 'Decommissioned. The metadata of the deployment.',
      403: 'Another wallet owns the slug.',
      404: 'There is no such deployment.',
      410: 'It was decommissioned before.',
    },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `DELETE /_admin/${call.params.slug}`);
      if ('response' in owned) return owned.response;
      return json(await describe(deps, await decommission(deps, owned.deployment, 'by the owner')));
    },
  };
}

/** @param how for the owner's log */
export async function decommission(
  { config, clock, deployments, routes, runtime, logs, scheduleChanged }: ControlDeps,
  { slug, tenant }: Pick<Deployment, 'slug' | 'tenant'>,
  how: string,
): Promise<Deployment> {
  const { graceDays, cooldownDays } = config.slugs;
  const gone = await deployments.terms.decommission(tenant, clock.now(), graceDays * DAY_MS, cooldownDays * DAY_MS);
  await routes.push(slug);
  scheduleChanged();
  await runtime.stop(slug, 'stopped');
  await logs.append(tenant, { kind: 'platform', event: 'decommissioned', text: how });
  return gone;
}
