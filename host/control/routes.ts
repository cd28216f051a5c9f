/** The endpoint table: every endpoint and page of the host, once. Served by app.ts, described by the pages themselves. */

import { html } from '../../builtin-tenants/kit/look/layout.ts';
import type { DomainChecks } from '../domains/domain-checks.ts';
import type { CronRuns } from '../registry/cron-runs.ts';
import { assetEndpoints } from './api/owner/assets.ts';
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
import { consolePages } from './owner-console/pages.ts';
import { docsPage, searchScript } from './pages/docs.ts';
import { forSalePage } from './pages/for-sale.ts';
import { landingPage } from './pages/landing.ts';
import { llmsPage } from './pages/llms.ts';
import { openApiPage } from './pages/openapi.ts';
import { COMMAND_PATH, htmlPage, lookPage, type Page, textPage } from './pages/page.ts';
import { placesOf } from './pages/places.ts';
import type { ClientNetwork } from './pages/stock-clients.ts';

export function endpointTable(
  deps: ControlDeps,
  parse: DeploymentParser,
  checks: DomainChecks,
  cronRuns: CronRuns,
): Endpoint[] {
  return [
    deployEndpoint(deps, parse),
    renewEndpoint(deps),
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

export interface PageDeps {
  control: ControlDeps;
  endpoints: Endpoint[];
  version: string;
  network: ClientNetwork;
  health(): { ready: boolean; body: unknown };
}

export function pageTable({ control, endpoints, version, network, health }: PageDeps): Page[] {
  const { config, payments, deployments, builtins, publicUrl } = control;
  const { termDays } = config.slugs;
  const places = placesOf(control);
  return [
    landingPage({
      payments,
      deployments,
      builtins,
      publicUrl,
      price: config.prices.deploy,
      feeBps: config.payments.feeBps,
      termDays,
      network,
      places,
    }),
    docsPage({ endpoints, publicUrl, network, places }),
    lookPage,
    searchScript,
    ...consolePages({ config, publicUrl, network, places, testMoney: () => payments.status().testMoney }),
    llmsPage({ endpoints, payments, deployments, publicUrl, termDays, network }),
    openApiPage({ endpoints, payments, publicUrl, version }),
    forSalePage({ endpoints, deployments, builtins, publicUrl }),
    {
      path: '/healthz',
      render: () => {
        const { ready, body } = health();
        const answer = textPage(JSON.stringify(body), 'application/json');
        return new Response(answer.body, { status: ready ? 200 : 503, headers: answer.headers });
      },
    },
    {
      path: COMMAND_PATH,
      render: async () =>
        new Response(
          (await (await import('./command-package.ts')).commandPackage(version)) as Uint8Array<ArrayBuffer>,
          {
            headers: { 'content-type': 'application/gzip', 'cache-control': 'public, max-age=3600' },
          },
        ),
    },
    { path: '/robots.txt', render: () => textPage('User-agent: *\nDisallow: /_admin/\n') },
    {
      path: '/.well-known/security.txt',
      render: () =>
        textPage(`Contact: ${publicUrl}/docs\nExpires: ${new Date(Date.now() + 31_536_000_000).toISOString()}\n`),
    },
    { path: '/favicon.ico', render: () => new Response(null, { status: 204 }) },
    { path: '/.well-known/openapi.json', render: () => Response.redirect(`${publicUrl}/openapi.json`, 308) },
    { path: '/.well-known/llms.txt', render: () => Response.redirect(`${publicUrl}/llms.txt`, 308) },
    {
      path: '/_admin',
      render: () =>
        htmlPage(places, { title: 'Admin API', main: html`<h1>Admin API</h1><p>See <a href="/docs">/docs</a>.</p>` }),
    },
  ];
}
