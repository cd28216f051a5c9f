/** Free pages of the host, in the look that all pages share. */
import {
  fileHeaders,
  html,
  type PageParts,
  type Part,
  type Place,
  page as renderPage,
} from '../../../builtin-tenants/kit/look/layout.ts';
import { FOOT, LOOK_CSS, LOOK_FILE, LOOK_PATH } from '../../pages/look.ts';
import type { EdgeContext } from '../../shared/contracts.ts';

/** Where a host gives out the command (host/control/command-package.ts). */
export const COMMAND_PATH = '/turnpike.tgz';

export interface Page {
  path: string;
  /** Host, with its port, that has this page and no others than those that name it; undefined: the rest. */
  at?: string;
  render(context: EdgeContext): Response | Promise<Response>;
}

/** @param scripts whether the page runs files of its own origin, which may call that origin */
function policy(scripts: boolean): string {
  return `default-src 'none'; style-src 'self'; img-src 'self' data:;${scripts ? " script-src 'self'; connect-src 'self';" : ''} form-action 'none'; base-uri 'none'; frame-ancestors 'none'`;
}

export type HtmlParts = Omit<PageParts, 'style' | 'foot' | 'places'>;

/** @param places what the header leads to; placesOf */
export function htmlPage(places: readonly Place[], parts: HtmlParts): Response {
  const text = renderPage({ ...parts, places, style: LOOK_FILE, foot: FOOT });
  return new Response(String(text), {
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': policy((parts.scripts ?? []).length > 0),
      'cache-control': 'no-cache',
    },
  });
}

/** The stylesheet of the host's pages. */
export const lookPage: Page = {
  path: LOOK_PATH,
  render: () => new Response(LOOK_CSS, { headers: fileHeaders('text/css') }),
};

export function textPage(text: string, type = 'text/plain'): Response {
  return new Response(text, { headers: { 'content-type': `${type}; charset=utf-8`, 'cache-control': 'no-cache' } });
}

/** Text of the endpoint table, in which backticks mark code. */
export function prose(text: string): Part {
  return text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part));
}
