/** The frame of the pages for people. No scripts at all: pages of other tenants may share the origin. */
import { html, page as lookPage, type Part, type Place, type Style } from '../../../kit/look/layout.ts';
import { lookFile } from '../../../kit/look/tenant.ts';

export type { Html } from '../../../kit/look/layout.ts';

/** Everything a page of ours may load, and who may frame it: nobody. */
export const PAGE_HEADERS: Record<string, string> = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};

/** Of a page with a form that asks this service. */
export const FORM_HEADERS: Record<string, string> = {
  ...PAGE_HEADERS,
  'content-security-policy': String(PAGE_HEADERS['content-security-policy']).replace(
    "form-action 'none'",
    "form-action 'self'",
  ),
};

export interface Site {
  /** Path of this service on the origin, such as `/deals`; empty on a host name of its own. */
  prefix: string;
  /** What else the host has. */
  places: readonly Place[];
}

/** @param style default: a file of this service */
export function page(
  title: string,
  { prefix, places }: Site,
  name: string,
  main: Part,
  style: Style = lookFile(prefix),
) {
  return lookPage({
    title,
    site: 'Deals',
    description: 'Price drops verified by observed history, sold per call.',
    style,
    head: html`<link rel="service-desc" type="application/json" href="${prefix}/openapi.json">`,
    places,
    at: 'Deals',
    pages: [
      { name: 'Deals', href: `${prefix}/` },
      { name: 'Search', href: `${prefix}/search` },
      { name: 'Docs', href: `${prefix}/docs` },
    ],
    page: name,
    foot: [
      { name: 'Accounts', href: `${prefix}/auth.md` },
      { name: 'llms.txt', href: `${prefix}/llms.txt` },
      { name: 'OpenAPI', href: `${prefix}/openapi.json` },
    ],
    main,
  });
}
