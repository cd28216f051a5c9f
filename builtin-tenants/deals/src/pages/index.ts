/** What everybody reads for nothing: pages for people, texts and descriptions for programs. */
import { Hono } from 'hono';
import { LOOK_PATH, lookResponse, prefixOf, readPlaces } from '../../../kit/look/tenant.ts';
import { findDeals } from '../prices/query.ts';
import type { Service } from '../service.ts';
import { docsPage } from './docs.ts';
import { landingPage } from './landing.ts';
import { FORM_HEADERS, PAGE_HEADERS, type Site } from './layout.ts';
import { filledIn, readSearch, searchPage } from './search.ts';
import { readShowcase } from './showcase.ts';
import {
  addressesOf,
  apiCatalog,
  authText,
  forSale,
  llmsText,
  openApi,
  robotsText,
  securityText,
  sitemapText,
} from './texts.ts';

const MINUTE = 'public, max-age=60';
const FIVE_MINUTES = 'public, max-age=300';

export function siteOf({ env }: Pick<Service, 'env'>, request: Request): Site {
  return {
    prefix: prefixOf(request),
    places: readPlaces(env.PLACES, { name: 'Turnpike', href: env.APP_URL }),
  };
}

export function pages(service: Service): Hono {
  const { env, now } = service;
  const where = addressesOf(env.APP_URL);
  const site = (request: Request): Site => siteOf(service, request);
  const routes = new Hono();

  routes.get('/', async (c) => {
    const showcase = await readShowcase(env.DB, now());
    return c.html(landingPage(site(c.req.raw), where, showcase, now()), 200, {
      ...PAGE_HEADERS,
      'cache-control': MINUTE,
    });
  });
  routes.get('/search', async (c) => {
    const given = filledIn(new URL(c.req.url).searchParams);
    const asked = readSearch(given);
    const search = asked && !('fault' in asked) ? { ...asked, limit: 1 } : undefined;
    // The unpaid call says no more: 402, or an empty answer.
    const found = search && (await findDeals(env.DB, search, env.DEALS_SECRET, now()));
    const shown = searchPage(site(c.req.raw), where, given, asked, found && found.deals.length > 0);
    return c.html(shown, 200, { ...FORM_HEADERS, 'cache-control': 'no-store' });
  });
  routes.get('/docs', (c) =>
    c.html(docsPage(site(c.req.raw), where), 200, { ...PAGE_HEADERS, 'cache-control': FIVE_MINUTES }),
  );

  const file = (path: string, type: string, text: () => string) =>
    routes.get(path, (c) =>
      c.body(text(), 200, {
        'content-type': type,
        'cache-control': FIVE_MINUTES,
        'x-content-type-options': 'nosniff',
        // Descriptions are for programs anywhere, also in browsers.
        'access-control-allow-origin': '*',
      }),
    );
  const json = (path: string, document: () => object, type = 'application/json') =>
    file(path, type, () => JSON.stringify(document(), null, 2));
  routes.get(LOOK_PATH, () => lookResponse());
  file('/llms.txt', 'text/plain; charset=utf-8', () => llmsText(where));
  file('/.well-known/llms.txt', 'text/plain; charset=utf-8', () => llmsText(where));
  file('/auth.md', 'text/markdown; charset=utf-8', () => authText(where));
  json('/openapi.json', () => openApi(where));
  json('/.well-known/x402', () => forSale(where));
  json('/.well-known/openapi.json', () => openApi(where));
  json('/.well-known/api-catalog', () => apiCatalog(where), 'application/linkset+json');
  file('/.well-known/security.txt', 'text/plain; charset=utf-8', () => securityText(where, now()));
  file('/robots.txt', 'text/plain; charset=utf-8', () => robotsText(where));
  file('/sitemap.xml', 'application/xml; charset=utf-8', () => sitemapText(where));
  return routes;
}
