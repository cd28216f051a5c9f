/** Every free page of the host, once. Loaded with the first that is asked for, so that the host starts sooner. */
import { html } from '../../../builtin-tenants/kit/look/layout.ts';
import type { ControlDeps } from '../deps.ts';
import type { Endpoint } from '../endpoint.ts';
import { consolePages } from '../owner-console/pages.ts';
import { docsPage, searchScript } from './docs.ts';
import { forSalePage } from './for-sale.ts';
import { landingPage } from './landing.ts';
import { llmsPage } from './llms.ts';
import { openApiPage } from './openapi.ts';
import { COMMAND_PATH, htmlPage, lookPage, type Page, textPage } from './page.ts';
import { placesOf } from './places.ts';
import type { ClientNetwork } from './stock-clients.ts';

export interface PageDeps {
  control: ControlDeps;
  endpoints: Endpoint[];
  version: string;
  network: ClientNetwork;
}

export function pageTable({ control, endpoints, version, network }: PageDeps): Page[] {
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
    ...consolePages({
      config,
      publicUrl,
      network,
      places: placesOf(control, publicUrl),
      testMoney: () => payments.status().testMoney,
    }),
    llmsPage({
      endpoints,
      payments,
      deployments,
      publicUrl,
      termDays,
      network,
      models: config.ai.url === '' ? [] : Object.keys(config.ai.models),
    }),
    openApiPage({ endpoints, payments, publicUrl, version }),
    forSalePage({ endpoints, deployments, builtins, publicUrl }),
    {
      path: COMMAND_PATH,
      render: async () =>
        new Response(
          (await (await import('../command-package.ts')).commandPackage(version)) as Uint8Array<ArrayBuffer>,
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
