/** The frame of the pages for people. No scripts at all: pages of other tenants may share the origin. */
import { html } from 'hono/html';

export type Html = ReturnType<typeof html>;

/** Everything a page of ours may load, and who may frame it: nobody. */
export const PAGE_HEADERS: Record<string, string> = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};

/** @param prefix path of this service on the origin, such as `/deals`; empty on a host name of its own */
export function page(title: string, prefix: string, body: Html | Promise<Html>) {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · Deals</title>
<meta name="description" content="Price drops verified by observed history, sold per call.">
<link rel="stylesheet" href="${prefix}/assets/deals.css">
<link rel="icon" href="data:,">
<link rel="service-desc" type="application/json" href="${prefix}/openapi.json">
</head>
<body>
<header><a class="name" href="${prefix}/">Deals</a><nav>
<a href="${prefix}/docs">Docs</a><a href="${prefix}/auth.md">Accounts</a><a href="${prefix}/llms.txt">llms.txt</a><a href="${prefix}/openapi.json">OpenAPI</a>
</nav></header>
<main>
${body}
</main>
</body>
</html>`;
}

/** The edge says where a tenant is; only a plain path is believed. */
export function prefixOf(request: Request): string {
  const prefix = request.headers.get('x-forwarded-prefix') ?? '';
  return /^(?:\/[a-z0-9][a-z0-9-]*)+$/.test(prefix) ? prefix : '';
}
