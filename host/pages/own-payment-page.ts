/**
 * The 402 as a page that a tenant designed: its HTML, with what is known of the price put in as text, and the host's
 * card with the wallet in place of `MARKER`. The card lives in a shadow tree, which the tenant's styles do not reach, and
 * its script is the only one that runs: the policy names it by a nonce that nobody knew when the page was written. The
 * same holds for the id by which the script finds the card: whatever the page has of the same form, it is not that.
 */
import { randomBytes } from 'node:crypto';
import { html, raw } from '../../builtin-tenants/kit/look/layout.ts';
import { LOOK_CSS } from './look.ts';
import { type PaymentPageParts, piecesOf, WALLET_SCRIPT } from './payment-page.ts';
import { ALONE_HEADERS } from './problem-page.ts';

/** Where the card goes, exactly once. */
export const MARKER = '<turnpike-payment></turnpike-payment>';
const PLACEHOLDER = /\{\{(price|currency|path|description)\}\}/g;

/** The same stylesheet, for a tree of its own: nothing is inherited from the page around it. */
const STYLE = `${LOOK_CSS.replaceAll(':root', ':host')}:host{all:initial;display:block;color:var(--ink);color-scheme:inherit;font:16px/1.6 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:break-word}.card .card{padding:0;border:0}`;

/**
 * @param template the tenant's HTML, with `MARKER` once
 * @param path as the tenant sees it, without its query
 */
export function ownPaymentPage(
  parts: PaymentPageParts,
  template: string,
  path: string,
): { headers: Record<string, string>; body: string } {
  const [before = '', after = ''] = template.split(MARKER);
  const { description, what, price, isMost, proof, refusal, testMoney, wallet, terminal, hasScript } = piecesOf(parts);
  const values = { price, currency: 'USD', path: plainPath(path), description: description || what };
  const filled = (text: string) =>
    text.replace(PLACEHOLDER, (_whole, name: keyof typeof values) => String(html`${values[name]}`));
  const { requestId } = parts.document;
  const nonce = randomBytes(18).toString('base64');
  const id = `card-${randomBytes(18).toString('hex')}`;
  // Names of forms and images on the page become members of `document` itself, in place of its methods.
  const root = `Document.prototype.getElementById.call(document, '${id}')?.shadowRoot`;
  const card = html`<turnpike-payment id="${id}"><template shadowrootmode="open"><style>${raw(STYLE)}</style><section class="card" aria-label="Payment">
${refusal}${proof ? '' : html`<p class="price">${isMost ? 'at most' : ''} <strong>${price} USD</strong></p>`}
${testMoney}${wallet}${terminal === '' ? '' : html`<details><summary>From a terminal</summary>${terminal}</details>`}
${requestId === undefined ? '' : html`<p class="soft small">Request <code>${requestId}</code></p>`}
</section></template>${hasScript ? raw(`<script nonce="${nonce}">{const WALLET_ROOT = ${root};\n${WALLET_SCRIPT}}</script>`) : ''}</turnpike-payment>`;
  return { headers: headersFor(nonce), body: `${filled(before)}${card}${filled(after)}` };
}

/** What the tenant's files may do to the page: style and pictures. */
function headersFor(nonce: string): Record<string, string> {
  return {
    ...ALONE_HEADERS,
    'content-security-policy': `default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; media-src 'self'; script-src 'nonce-${nonce}'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'`,
    'x-frame-options': 'DENY',
  };
}

/** A caller's path means nothing in a style, an attribute or an address of a link. */
function plainPath(path: string): string {
  return path
    .replace(/^\/{2,}/, '/')
    .replace(/[^A-Za-z0-9/_.~%-]/g, (sign) => [...Buffer.from(sign)].map(percent).join(''));
}

function percent(byte: number): string {
  return `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
}
