/** GET /_admin/deployments: what the wallet that proves itself owns. */
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { describe } from '../../metadata.ts';

export function listEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/deployments',
    access: 'owner',
    summary: 'List your deployments',
    description: 'Those of the wallet that signs, newest first, with their metadata; without those that were deleted.',
    responses: { 200: '`{deployments: [metadata]}`' },
    handle: async ({ request, context }) => {
      const proof = { scope: 'GET /_admin/deployments', description: 'Prove which wallet is yours' };
      const result = await deps.payments.proveOwner(request, context, proof);
      if ('response' in result) return result.response;
      const rows = await deps.deployments.ofOwner(result.payer.address);
      return json({ deployments: await Promise.all(rows.map((row) => describe(deps, row))) });
    },
  };
}
