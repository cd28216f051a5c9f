/** GET /_admin/get/:slug: what everybody may know of a deployment. */

import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { describe } from '../../metadata.ts';
import { noDeployment } from '../../ownership.ts';

export function getEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/get/:slug',
    tool: 'show',
    access: 'public',
    summary: 'Metadata of a deployment',
    description:
      'State, suspension, owner, version, bindings, expiry, limits, paid routes. Never code, vars, secrets or names of secrets.',
    responses: { 200: 'The metadata.', 404: 'There is no such deployment.' },
    handle: async ({ params }) => {
      const deployment = await deps.deployments.bySlug(params.slug ?? '');
      if (!deployment) throw noDeployment(params.slug ?? '');
      return json(await describe(deps, deployment));
    },
  };
}
