/**
 * The owner's console: one page that the layout renders, and its modules in web/, which call the owner's API. The page
 * itself holds no data of an owner. Below a base domain it is alone on an origin (host/shared/console-place.ts).
 *
 * Without one, tenants at /<slug>/ are on the same origin. Their pages are sandboxed, so that none reaches the session,
 * which is in the page's sessionStorage and is sent as a bearer token: no cookie that somebody else's request could
 * carry along.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import {
  fileHeaders,
  html,
  type Part,
  type Place,
  page as renderPage,
} from '../../../builtin-tenants/kit/look/layout.ts';
import { FOOT, LOOK_FILE, LOOK_PATH } from '../../pages/look.ts';
import type { Config } from '../../shared/config.ts';
import { CONSOLE_PATH, type ConsolePlace, consolePlace } from '../../shared/console-place.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { lookPage, type Page, textPage } from '../pages/page.ts';
import type { ClientNetwork } from '../pages/stock-clients.ts';

const FOLDER = new URL('web/', import.meta.url);
const SHARED = new URL('../../pages/x402-exact.js', import.meta.url);
const FILES = new Map(
  [SHARED, ...readdirSync(FOLDER).map((name) => new URL(name, FOLDER))]
    .filter(({ pathname }) => pathname.endsWith('.js'))
    .map((file) => [basename(file.pathname), compacted(readFileSync(file, 'utf8'))] as const)
    .sort(),
);
/** Named by the content of all, so that browsers may keep them for ever, and modules name each other plainly. */
const FILES_PATH = `${CONSOLE_PATH}/${contentHash([...FILES.values()])}`;

export interface ConsoleDeps {
  config: Config;
  publicUrl: string;
  network: ClientNetwork;
  /** With the host's origin. */
  places: readonly Place[];
  testMoney(): boolean;
}

export function consolePages(deps: ConsoleDeps): Page[] {
  const place = consolePlace(deps.publicUrl, deps.config.baseDomain);
  const files = [...FILES].map(([name, text]) => ({
    path: `${FILES_PATH}/${name}`,
    render: () => new Response(text, { headers: fileHeaders('text/javascript') }),
  }));
  const page = (path: string) => ({ path, render: (context: EdgeContext) => consolePage(deps, place, context) });
  // Not for ever: the operator may change the base domain.
  const elsewhere = (path: string) => ({ path, render: () => Response.redirect(place.url, 302) });
  if (!place.isOwn) return [page(CONSOLE_PATH), elsewhere(`${CONSOLE_PATH}/`), ...files];
  const { host: at } = new URL(place.origin);
  const own: Page[] = [
    page('/'),
    elsewhere(CONSOLE_PATH),
    ...files,
    lookPage,
    { path: '/robots.txt', render: () => textPage('User-agent: *\nDisallow: /\n') },
    { path: '/favicon.ico', render: () => new Response(null, { status: 204 }) },
  ];
  return [elsewhere(CONSOLE_PATH), elsewhere(`${CONSOLE_PATH}/`), ...own.map((one) => ({ ...one, at }))];
}

function consolePage(deps: ConsoleDeps, { origin, url, isOwn }: ConsolePlace, context: EdgeContext): Response {
  if (!isOwn && deps.config.edge.pathPages === 'trust') {
    const why = html`<p class="note warn">This host lets pages of tenants at <code>/&lt;slug&gt;/</code> act for its own origin (<code>edge.pathPages = trust</code>): any of them could act as who is signed in here. So there is no console.</p>
<p>The <a href="/docs">turnpike command and the API</a> do the same.</p>`;
    return answer(deps, why, undefined);
  }
  // Wallets compare the name in the address bar with the one that is signed.
  if (context.host.toLowerCase() !== new URL(origin).host)
    return answer(deps, html`<p class="note">The console is at <a href="${url}">${url}</a>.</p>`, undefined);
  return answer(deps, shell(deps, isOwn), origin);
}

function shell({ config, publicUrl, network, testMoney }: ConsoleDeps, isOwn: boolean): Part {
  const { x402, name } = network;
  const about = {
    home: publicUrl,
    isOwn,
    deploy: config.prices.deploy,
    renew: config.prices.renew,
    termDays: config.slugs.termDays,
    testMoney: testMoney(),
    network: name,
    chain: x402?.walletChain ? { network: x402.network, ...x402.walletChain } : null,
  };
  return html`<noscript><p class="note warn">The console needs JavaScript. The <a href="${publicUrl}/docs">turnpike command and the API</a> do not.</p></noscript>
<div id="console" data-about="${JSON.stringify(about)}"></div>
<p class="sr" id="said" role="status"></p>`;
}

/** @param origin of the page's own modules and calls; undefined: it runs none */
function answer({ places, publicUrl }: ConsoleDeps, main: Part, origin: string | undefined): Response {
  const text = renderPage({
    title: 'Console',
    places,
    at: 'Console',
    style: LOOK_FILE,
    foot: FOOT.map(({ name, href }) => ({ name, href: `${publicUrl}${href}` })),
    ...(origin === undefined ? {} : { scripts: [`${FILES_PATH}/main.js`], who: html`<span id="who"></span>` }),
    main: origin === undefined ? html`<h1>Console</h1>${main}` : main,
  });
  // Paths, not 'self': files of tenants have the same origin.
  const own =
    origin === undefined
      ? "style-src 'self'"
      : `script-src ${origin}${FILES_PATH}/; connect-src ${origin}/_admin/; style-src ${origin}${LOOK_PATH}`;
  return new Response(String(text), {
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': `default-src 'none'; ${own}; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`,
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
      'cache-control': 'no-store',
    },
  });
}

/** Comments and indentation are for who reads the source; no text of the modules goes over several lines. */
function compacted(source: string): string {
  return source
    .replace(/^\s*\/\*\*[\s\S]*?\*\/$/gm, '')
    .replace(/^\s*\/\/.*$/gm, '')
    .replace(/^\s+/gm, '');
}

function contentHash(texts: readonly string[]): string {
  const hash = createHash('sha256');
  for (const text of texts) hash.update(text).update('\0');
  return hash.digest('hex').slice(0, 16);
}
