/**
 * The routes of the service. Everything below /v1 and /internal is called by the pay platform's gateway, which signs;
 * a priced call without payment is answered with its usage, which the gateway turns into a price.
 */
import { type Context, Hono } from 'hono';
import { aloneHeaders } from '../../../kit/look/tenant.ts';
import { prefersHtml } from '../../../kit/prefers-html.ts';
import { isPrivate } from '../../../kit/webhooks.ts';
import { DEMO_PRODUCTS, demoCatalog, demoPrice } from '../demo/shop.ts';
import { foundPage } from '../pages/found.ts';
import { pages, siteOf } from '../pages/index.ts';
import { withHistory } from '../pages/showcase.ts';
import { addressesOf } from '../pages/texts.ts';
import { findDeals, parseSearch } from '../prices/query.ts';
import { invalidField, Problem } from '../problem.ts';
import { readRules } from '../rules/published-rules.ts';
import { rulesReference, type Service } from '../service.ts';
import { givenSources } from '../sources/collect.ts';
import { resume } from '../watches/charging.ts';
import { payPlatform } from '../watches/credit.ts';
import { parseWatch, watchView } from '../watches/watch.ts';
import { type Signed, verifyGateway } from './gateway-signature.ts';
import { callOf } from './operations.ts';

const SERVICE = 'deals';
const WATCHES = 'deals-watches';
const MOST_WATCHES_A_PAGE = 100;
const MOST_EVENTS = 200;

export function app(service: Service): Hono {
  const { env, watches, now } = service;
  const routes = new Hono();

  routes.onError((error) => {
    if (error instanceof Problem) return error.toResponse();
    console.error(error);
    return new Problem('internal', 'An unexpected error; nothing was charged. Try again.').toResponse();
  });

  const signed = (c: Context) => verifyGateway(c.req.raw, env, service.keys);

  routes.get('/v1/deals', async (c) => {
    const call = await signed(c);
    const search = parseSearch(new URL(c.req.url).searchParams);
    const page = await findDeals(env.DB, search, env.DEALS_SECRET, now());
    // An empty page is free; a call that was paid when there was a deal yet is refused, which costs nothing either.
    const price = page.deals.length > 0 ? asksFor(call, SERVICE, 'deal_query') : undefined;
    if (price) return price;
    if (page.deals.length === 0 && call.usage)
      throw new Problem('not_found', 'The deals that matched have ended meanwhile; nothing is charged.');
    if (prefersHtml(c.req.header('accept'))) {
      const where = addressesOf(env.APP_URL);
      const facts = {
        deals: await withHistory(env.DB, page.deals, now()),
        next: page.cursor === undefined ? undefined : nextPage(where.pay, c.req.url, page.cursor),
        asked: new URL(c.req.url).search,
        paid: call.usage !== undefined,
        now: now(),
      };
      return c.html(foundPage(siteOf(service, c.req.raw), where, facts), 200, await aloneHeaders());
    }
    return c.json({ ...page, ruleset: rulesReference(service.rules) }, 200, { 'cache-control': 'private, no-store' });
  });

  routes.get('/v1/rules', async (c) => {
    const call = await signed(c);
    const version = c.req.query('version');
    if (version !== undefined && !/^\d{1,6}$/.test(version))
      throw invalidField('?version', 'takes the number of a version');
    const rules = version === undefined ? service.rules : await readRules(env.DB, Number(version));
    if (!rules) throw new Problem('not_found', `There is no version ${version} of the rules.`);
    const etag = `"${rules.digest}"`;
    // Who has it already pays nothing.
    if (c.req.header('if-none-match') === etag) return c.body(null, 304, { etag });
    const price = asksFor(call, SERVICE, 'rules_read');
    if (price) return price;
    return c.body(rules.body, 200, {
      'content-type': 'application/json',
      etag,
      'cache-control': 'private, max-age=3600',
    });
  });

  routes.post('/v1/watches', async (c) => {
    const call = await signed(c);
    const asked = asksFor(call, WATCHES, 'watch_created');
    // An indexer calls with nothing, to hear the price.
    if (asked && call.body.length === 0) return asked;
    const input = parseWatch(call.body);
    const { webhook } = input.delivery;
    if (webhook && isPrivate(webhook, givenSources(env)))
      throw invalidField('/delivery/webhook', 'that host is not public');
    // Without an account too: the platform's answer says how to get one.
    if (asked) return asked;
    const account = accountOf(call);
    const { watch, secret } = await watches.create(account, call.requestId, input, now());
    return c.json({ ...watch, ...(secret ? { webhook_secret: secret } : {}) }, 201);
  });

  routes.get('/v1/watches', async (c) => {
    const account = accountOf(await signed(c));
    const after = c.req.query('cursor');
    const rows = await watches.list(account, after, MOST_WATCHES_A_PAGE + 1);
    const page = rows.slice(0, MOST_WATCHES_A_PAGE);
    const last = page.at(-1);
    const eventsAfter = c.req.query('events_after');
    if (eventsAfter !== undefined && !/^\d{0,15}$/.test(eventsAfter))
      throw invalidField('?events_after', 'takes nothing, or what the answer before said');
    const events =
      eventsAfter === undefined ? undefined : await watches.events(account, Number(eventsAfter), MOST_EVENTS);
    return c.json({
      watches: page.map(watchView),
      ...(rows.length > MOST_WATCHES_A_PAGE && last ? { cursor: last.id } : {}),
      ...(events
        ? {
            events: events.map(({ body }) => JSON.parse(body) as object),
            events_after: String(events.at(-1)?.place ?? eventsAfter),
          }
        : {}),
    });
  });

  routes.post('/v1/watches/:id/pause', async (c) => {
    const row = await watches.pause(accountOf(await signed(c)), c.req.param('id'), now());
    if (!row) throw new Problem('not_found', 'This account has no such watch.');
    return c.json(watchView(row));
  });

  routes.post('/v1/watches/:id/resume', async (c) => {
    const account = accountOf(await signed(c));
    const row = await watches.unpause(account, c.req.param('id'), now());
    if (!row) throw new Problem('not_found', 'This account has no such watch.');
    return c.json(watchView(row));
  });

  routes.delete('/v1/watches/:id', async (c) => {
    const account = accountOf(await signed(c));
    if (!(await watches.delete(account, c.req.param('id'), now())))
      throw new Problem('not_found', 'This account has no such watch.');
    return c.body(null, 204);
  });

  routes.post('/internal/pay-events', async (c) => {
    const call = await signed(c);
    const event = JSON.parse(new TextDecoder().decode(call.body)) as { type?: string; accountId?: string };
    // The account is what was signed, not what the body says.
    if (event.type === 'credit_granted' && call.account) await resume(watches, payPlatform(env), call.account, now());
    return c.body(null, 204);
  });

  routes.get('/demo/products.json', (c) => {
    const etag = `"${Math.floor(now() / 86_400_000)}"`;
    if (c.req.header('if-none-match') === etag) return c.body(null, 304, { etag });
    return c.json(demoCatalog(now()), 200, { etag });
  });
  routes.get('/demo/products/:handle', (c) => {
    const product = DEMO_PRODUCTS.find(({ handle }) => handle === c.req.param('handle'));
    if (!product) throw new Problem('not_found', 'The demo shop has no such product.');
    return c.html(demoPage(product.title, product.sku, product.gtin, demoPrice(product, now())));
  });

  routes.get('/healthz', async (c) => {
    const { results } = await env.DB.prepare(
      'SELECT id, kind, state, failures, error, last_ok_at AS lastOkAt FROM sources ORDER BY id',
    ).all<{ id: string; lastOkAt: number | null }>();
    return c.json({
      status: 'ok',
      ruleset: rulesReference(service.rules),
      sources: results.map(({ lastOkAt, ...source }) => ({
        ...source,
        lastOkAt: lastOkAt === null ? null : new Date(lastOkAt).toISOString(),
      })),
    });
  });

  routes.route('/', pages(service));
  routes.notFound((c) =>
    new Problem('not_found', `Nothing is at ${new URL(c.req.url).pathname}; see llms.txt.`).toResponse(),
  );
  return routes;
}

/** Address of the deals after those of a page. */
function nextPage(base: string, url: string, cursor: string): string {
  const { searchParams } = new URL(url);
  searchParams.set('cursor', cursor);
  return `${base}/v1/deals?${searchParams}`;
}

/** The price of a call that is not paid yet; undefined where it is. @throws Problem where something else was paid */
function asksFor(call: Signed, serviceSlug: string, meterSlug: string): Response | undefined {
  if (!call.usage) {
    const asked = { serviceSlug, usage: [{ meterSlug, quantity: 1 }], call: callOf(meterSlug) };
    return new Response(JSON.stringify(asked), {
      status: 402,
      headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
    });
  }
  const [line] = call.usage;
  if (call.usage.length === 1 && line?.meterSlug === meterSlug && line.quantity === 1) return undefined;
  throw new Problem('conflict', 'The payment was for another request; nothing is charged. Pay for this request.');
}

/** Watches belong to accounts: a wallet that pays once cannot be charged every day. */
function accountOf({ account }: Signed): string {
  if (account?.startsWith('acc_')) return account;
  throw new Problem(
    'account_required',
    'Watches need an account with credit: see auth.md, or run turnpike account register.',
  );
}

/** Only text of our own goes in. */
function demoPage(title: string, sku: string, gtin: string, minor: number): string {
  const data = {
    '@context': 'https://schema.org',
    '@type': 'Product',
    name: title,
    sku,
    gtin13: gtin,
    offers: {
      '@type': 'Offer',
      price: (minor / 100).toFixed(2),
      priceCurrency: 'EUR',
      availability: 'https://schema.org/InStock',
    },
  };
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title} (demo)</title>
<script type="application/ld+json">${JSON.stringify(data)}</script></head>
<body><h1>${title}</h1><p>${(minor / 100).toFixed(2)} EUR. This shop is a demo: nothing can be bought here.</p></body></html>`;
}
