/** The table of the operator's endpoints: served by app.ts, described at /openapi.json of the operator's port. */
import { auditEndpoint } from './audit.ts';
import { blocksEndpoints } from './blocks.ts';
import { clockEndpoints } from './clock.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';
import { healthEndpoints } from './health.ts';
import { paymentsEndpoints } from './payments.ts';
import { tenantsEndpoints } from './tenants.ts';
import { upkeepEndpoints } from './upkeep.ts';

export function operatorEndpoints(deps: OperatorDeps): OperatorEndpoint[] {
  return [
    ...healthEndpoints(deps),
    ...tenantsEndpoints(deps),
    ...blocksEndpoints(deps),
    auditEndpoint(deps),
    ...paymentsEndpoints(deps),
    ...upkeepEndpoints(deps),
    ...clockEndpoints(deps),
  ];
}
