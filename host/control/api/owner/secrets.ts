/** GET /_admin/:slug/secrets: the names of secrets; values are never shown. */
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { requireOwner } from '../../ownership.ts';

export function secretsEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/:slug/secrets',
    tool: 'secret_names',
    access: 'owner',
    summary: 'List the names of secrets',
    description: 'Names alone: values are never shown again. An update sets and removes them.',
    responses: { 200: '`{slug, names}`', 403: 'Another wallet owns the slug.' },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/secrets`);
      if ('response' in owned) return owned.response;
      const names = await deps.deployments.secretNames(owned.deployment.tenant);
      return json({ slug: owned.deployment.slug, names: names.sort() });
    },
  };
}
