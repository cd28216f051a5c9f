/** POST /_admin/session/:slug: one proof, then a bearer token for a series of calls. */

import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { requireOwner } from '../../ownership.ts';

export function sessionEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'POST',
    path: '/_admin/session/:slug',
    access: 'owner',
    summary: 'Get an owner token',
    description: 'For a long log tail or a series of calls: `Authorization: Bearer <token>` for this slug, 15 minutes.',
    responses: { 201: '`{token, slug, expiresAt}`', 403: 'Another wallet owns the slug.', 404: 'No such deployment.' },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `POST /_admin/session/${call.params.slug}`);
      if ('response' in owned) return owned.response;
      const { token, expiresAt } = deps.payments.ownerTokens.issue(owned.deployment.slug, owned.payer);
      return json({ token, slug: owned.deployment.slug, expiresAt: iso(expiresAt) }, 201);
    },
  };
}
