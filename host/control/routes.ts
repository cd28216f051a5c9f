/** The endpoint table: every endpoint of the host, once. Served by app.ts, described by the pages (pages/index.ts). */

import type { DomainChecks } from '../domains/domain-checks.ts';
import type { CronRuns } from '../registry/cron-runs.ts';
import { assetEndpoints } from './api/owner/assets.ts';
import { autoRenewEndpoints } from './api/owner/auto-renew.ts';
import { cronsEndpoint } from './api/owner/crons.ts';
import { dataEndpoints } from './api/owner/data.ts';
import { deleteEndpoint } from './api/owner/delete.ts';
import { deployEndpoint } from './api/owner/deploy.ts';
import { domainEndpoints } from './api/owner/domains.ts';
import { getEndpoint } from './api/owner/get.ts';
import { keyEndpoints } from './api/owner/keys.ts';
import { listEndpoint } from './api/owner/list.ts';
import { logsEndpoint } from './api/owner/logs.ts';
import { renewEndpoint } from './api/owner/renew.ts';
import { secretsEndpoint } from './api/owner/secrets.ts';
import { sessionEndpoints } from './api/owner/session.ts';
import { updateEndpoint } from './api/owner/update.ts';
import { usageEndpoint } from './api/owner/usage.ts';
import { rollbackEndpoint, versionsEndpoint } from './api/owner/versions.ts';
import type { DeploymentParser } from './deployment-input.ts';
import type { ControlDeps } from './deps.ts';
import type { Endpoint } from './endpoint.ts';

export function endpointTable(
  deps: ControlDeps,
  parse: DeploymentParser,
  checks: DomainChecks,
  cronRuns: CronRuns,
): Endpoint[] {
  return [
    deployEndpoint(deps, parse),
    renewEndpoint(deps),
    ...autoRenewEndpoints(deps),
    updateEndpoint(deps, parse),
    // Before the slugs: no slug has this name.
    ...sessionEndpoints(deps),
    deleteEndpoint(deps),
    getEndpoint(deps),
    listEndpoint(deps),
    logsEndpoint(deps),
    usageEndpoint(deps),
    versionsEndpoint(deps),
    rollbackEndpoint(deps),
    secretsEndpoint(deps),
    cronsEndpoint(deps, cronRuns),
    ...domainEndpoints(deps, checks),
    ...assetEndpoints(deps),
    ...dataEndpoints(deps),
    ...keyEndpoints(deps),
  ];
}
