/** The table of the operator's endpoints: served by app.ts, described at /openapi.json of the operator's port. */
import { auditEndpoint } from './audit.ts';
import { blocksEndpoints } from './blocks.ts';
import { clockEndpoints } from './clock.ts';
import { clusterEndpoints } from './cluster.ts';
import { consoleLinkEndpoint } from './console-link.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';
import { healthEndpoints } from './health.ts';
import { historyEndpoint } from './history.ts';
import { hostEndpoints } from './host.ts';
import { paymentsEndpoints } from './payments.ts';
import { tenantReportsEndpoints } from './tenant-reports.ts';
import { tenantsEndpoints } from './tenants.ts';
import { tokenEndpoints } from './tokens.ts';
import { upkeepEndpoints } from './upkeep.ts';

export function operatorEndpoints(deps: OperatorDeps): OperatorEndpoint[] {
  return [
    ...healthEndpoints(deps),
    ...hostEndpoints(deps),
    historyEndpoint(deps),
    ...tenantsEndpoints(deps),
    ...tenantReportsEndpoints(deps),
    ...blocksEndpoints(deps),
    auditEndpoint(deps),
    ...paymentsEndpoints(deps),
    ...upkeepEndpoints(deps),
    ...clockEndpoints(deps),
    ...clusterEndpoints(deps),
    ...tokenEndpoints(deps),
    consoleLinkEndpoint(deps),
  ];
}
