/** GET /tenants: every deployment that this host knows. */
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

export function tenantsEndpoint({ deployments }: OperatorDeps): OperatorEndpoint {
  return {
    method: 'GET',
    path: '/tenants',
    access: 'operator',
    summary: 'All deployments',
    description: 'Expired and decommissioned ones too; `expiresAt` of a built-in tenant is null.',
    responses: { 200: '`{tenants: [{slug, tenant, state, owner, version, builtin, createdAt, expiresAt}]}`' },
    handle: async () =>
      json({
        tenants: (await deployments.all()).map(
          ({ slug, tenant, state, owner, version, createdAt, expiresAt, builtin }) => ({
            slug,
            tenant,
            state,
            owner,
            version,
            builtin,
            createdAt: iso(createdAt),
            expiresAt: builtin ? null : iso(expiresAt),
          }),
        ),
      }),
  };
}
