/**
 * The look of the host's own pages: the stylesheet that all pages share, as a file for pages of the host's origin, and
 * as text for answers that stand alone on any origin. Edges load this, too: it stays small.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { compactCss, contentName, type Place, type Style } from '../../builtin-tenants/kit/look/layout.ts';

const FILE = new URL('../../builtin-tenants/kit/look/look.css', import.meta.url);

export const LOOK_CSS = compactCss(readFileSync(FILE, 'utf8'));

/** Path of the stylesheet on the host's own origin. */
export const LOOK_PATH = `/${contentName('look', LOOK_CSS, 'css')}`;

/** For pages of the host's own origin. */
export const LOOK_FILE: Style = { href: LOOK_PATH };

/** For pages that load nothing. */
export const LOOK_TEXT: Style = { text: LOOK_CSS };

/** How a policy names that style: `style-src ${LOOK_HASH}`. */
export const LOOK_HASH = `'sha256-${createHash('sha256').update(LOOK_CSS).digest('base64')}'`;

/** What the footer of the host's pages leads to. */
export const FOOT: readonly Place[] = [
  { name: 'llms.txt', href: '/llms.txt' },
  { name: 'OpenAPI', href: '/openapi.json' },
  { name: 'Status', href: '/healthz' },
];
