/** GET /_admin/deployments: what the wallet that proves itself owns. */
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { describe } from '../../metadata.ts';
import { bearerOf, requireWallet } from '../../ownership.ts';

export function listEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/deployments',
    tool: 'list',
    access: 'owner',
    summary: 'List your deployments',
    description: 'Those of the wallet that signs, newest first, with their metadata; without those that were deleted.',
    responses: { 200: '`{deployments: [metadata]}`' },
    handle: async (call) => {
      const proof = { scope: 'GET /_admin/deployments', description: 'Prove which wallet is yours' };
      const token = await deps.payments.ownerTokens.read(bearerOf(call.request) ?? '');
      const result = token ?? (await requireWallet(deps, call, proof));
      if ('response' in result) return result.response;
      const all = await deps.deployments.ofOwner(result.payer.address);
      // A token of one slug shows that one.
      const rows = token && token.slug !== null ? all.filter(({ slug }) => slug === token.slug) : all;
      return json({ deployments: await Promise.all(rows.map((row) => describe(deps, row))) });
    },
  };
}
