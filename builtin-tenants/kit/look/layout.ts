/**
 * The one layout of every page: the host's, and those of the tenants that come with it. Rendered on the server; what is
 * put into a template is escaped (hono/html). No inline style and no inline script, so that policies can forbid both.
 */
import { html, raw } from 'hono/html';

export { html, raw };

/** Escaped HTML. */
export type Html = ReturnType<typeof html>;

/** What may be put into a template; text is escaped. */
export type Part = Html | string | number | undefined | readonly Part[];

/** A place that the header or the footer leads to. */
export interface Place {
  name: string;
  href: string;
}

/** Files that a page loads from its own origin, or a style that its policy names by its hash. */
export type Style = { href: string } | { text: string };

export interface PageParts {
  title: string;
  /** Whose page it is, such as `Deals`; default: the host's. */
  site?: string;
  description?: string;
  style: Style;
  /** Addresses of module scripts. */
  scripts?: readonly string[];
  /** Further elements of the head. */
  head?: Part;
  /** The header leads to these on every page; the first is home. */
  places: readonly Place[];
  /** Name of the place that this page belongs to. */
  at?: string;
  /** Pages of the same site, below the header. */
  pages?: readonly Place[];
  /** Name of the one of them that this is. */
  page?: string;
  /** Right end of the header, such as who is signed in. */
  who?: Part;
  /** The footer leads to these. */
  foot?: readonly Place[];
  /** `narrow` for forms, `read` for text, `full` for consoles. */
  width?: 'narrow' | 'read' | 'full';
  main: Part;
}

/** A barrier across a road: the sign of the house. */
const BARRIER = `<svg viewBox="0 0 24 24" aria-hidden="true"><rect x="2" y="8" width="4" height="14" rx="1" fill="currentColor"/><path d="M4 9.5 21.5 4" stroke="currentColor" stroke-width="4" stroke-linecap="round"/><path d="m10.3 7.5 3-.95m3.4-1.05 2.4-.75" stroke="var(--card)" stroke-width="2"/></svg>`;

const ICON =
  'data:image/svg+xml,%3Csvg%20xmlns=%22http:%2F%2Fwww.w3.org%2F2000%2Fsvg%22%20viewBox=%220%200%2024%2024%22%20stroke=%22%233d6bea%22%3E%3Crect%20x=%222%22%20y=%228%22%20width=%224%22%20height=%2214%22%20rx=%221%22%20fill=%22%233d6bea%22/%3E%3Cpath%20d=%22M4%209.5%2021.5%204%22%20stroke-width=%224%22%20stroke-linecap=%22round%22/%3E%3C/svg%3E';

const HOME: Place = { name: 'Turnpike', href: '/' };

export function page(parts: PageParts): Html {
  const { title, description, style, scripts = [], head, at, who, foot = [], width, main } = parts;
  const [home = HOME, ...places] = parts.places;
  const site = parts.site ?? home.name;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title === site ? title : `${title} · ${site}`}</title>
${description === undefined ? '' : html`<meta name="description" content="${description}">`}
${'href' in style ? html`<link rel="stylesheet" href="${style.href}">` : raw(`<style>${style.text}</style>`)}
<link rel="icon" href="${raw(ICON)}">
${head ?? ''}${scripts.map((script) => html`<script type="module" src="${script}"></script>`)}
</head>
<body>
<a class="sr skip" href="#main">Skip to the content</a>
<header class="top"><div>
<a class="brand" href="${home.href}">${raw(BARRIER)}${home.name}</a>
<nav aria-label="This host">${links(places, at)}</nav>
${who === undefined ? '' : html`<div class="who">${who}</div>`}
</div></header>
<main id="main"${width === undefined ? '' : html` class="${width}"`}>
${tabsOf(parts)}${main}
</main>
<footer class="bottom"><div>
<span>${site === home.name ? 'Turnpike: pay per use, no account' : html`${site}, on ${home.name}`}</span>
<nav aria-label="For programs">${links(foot, undefined)}</nav>
</div></footer>
</body>
</html>
`;
}

function tabsOf({ pages = [], page: here, site }: PageParts): Html | '' {
  return pages.length === 0
    ? ''
    : html`<nav class="tabs" aria-label="${site ?? 'Pages'}">${links(pages, here)}</nav>\n`;
}

function links(places: readonly Place[], at: string | undefined): Html {
  return html`${places.map(({ name, href }) => html`<a href="${href}"${name === at ? raw(' aria-current="page"') : ''}>${name}</a>`)}`;
}

/** Examples of the same thing, one shown at a time, without a script. @param id unique on the page */
export function tabs(id: string, legend: string, panels: readonly { name: string; body: Part }[]): Html {
  return html`<fieldset class="tabs"><legend class="sr">${legend}</legend>
${panels.map(({ name }, index) => html`<label><input type="radio" name="${id}"${index === 0 ? raw(' checked') : ''}>${name}</label>`)}
${panels.map(({ body }) => html`<div>${body}</div>`)}
</fieldset>`;
}

/** Comments and white space are for who reads the source. */
export function compactCss(css: string): string {
  return css
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .replace(/ ?([{}:;,>]) ?/g, (whole, sign: string) => (sign === ':' ? whole.trimEnd() : sign))
    .replace(/;}/g, '}')
    .trim();
}

/** Not for security: a name that changes with the content, so that browsers may keep the file for ever (FNV-1a). */
export function contentName(base: string, text: string, extension: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return `${base}.${hash.toString(36)}.${extension}`;
}

/** Headers of a page for somebody who is signed in; its content security policy is its own. */
export const PRIVATE_PAGE: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // With `no-referrer` forms would be sent with the origin `null`.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** Headers of a file that `contentName` named. */
export function fileHeaders(type: 'text/css' | 'text/javascript'): Record<string, string> {
  return {
    'content-type': `${type}; charset=utf-8`,
    'cache-control': 'public, max-age=31536000, immutable',
    'x-content-type-options': 'nosniff',
    'cross-origin-resource-policy': 'same-origin',
  };
}
