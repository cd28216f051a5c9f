/**
 * A problem as a page for people: what happened, what to do next, and the id to quote. Edges make it, so it costs little:
 * the frame is rendered once, and nothing is loaded by it.
 */
import { html, type Part, type Place, page } from '../../builtin-tenants/kit/look/layout.ts';
import type { ProblemDocument } from '../shared/problem.ts';
import { LOOK_HASH, LOOK_TEXT } from './look.ts';

/** What a page that stands alone may do: show its own style. */
export const ALONE_POLICY = `default-src 'none'; style-src ${LOOK_HASH}; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'`;

/** Headers of a page that stands alone. */
export const ALONE_HEADERS: Record<string, string> = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': ALONE_POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};

/** Beside what the problem itself says. */
const NEXT: Record<string, string> = {
  not_found: 'Check the address. What this host has is on its start page.',
  gone: 'Nobody can bring it back; another deployment may take its place.',
  suspended: 'If it is yours, ask the operator of this host and quote the request id.',
  blocked: 'Ask the operator of this host and quote the request id.',
  not_ready: 'It is ready in a moment: load this page again.',
  overloaded: 'Wait a few seconds, then load this page again.',
  rate_limited: 'Wait a little, then load this page again.',
  payment_pending: 'Nothing is paid twice: load this page again in a few seconds.',
  upstream_failed: 'Load this page again. If it stays so, tell the owner; the logs have the reason.',
  upstream_timeout: 'Load this page again. If it stays so, tell the owner; the logs have the reason.',
  start_failed: 'Tell the owner; `turnpike logs` has the reason.',
  crash_loop: 'Tell the owner; `turnpike logs` has the reason.',
  cpu_exceeded: 'Load this page again, or ask for less. The owner sees the reason in the logs.',
  memory_exceeded: 'Load this page again, or ask for less. The owner sees the reason in the logs.',
  internal: 'Load this page again. If it stays so, tell the operator of this host and quote the request id.',
};

const AGAIN = new Set([408, 429, 500, 502, 503, 504]);
/** Stands where something is put in; no character of a document. */
const HOLE = '\u0001';
const MAX_FRAMES = 8;
const frames = new Map<string, string[]>();

/** @param home origin of the host; empty: the origin of the page */
export function problemPage(document: ProblemDocument, home: string): string {
  const { title, status, code, detail, requestId, errors = [] } = document;
  const next = NEXT[code];
  const main = html`<p class="row"><span class="badge ${status >= 500 ? 'bad' : 'warn'}">${status}</span><code>${code}</code></p>
<h1>${title}</h1>
<p class="lead">${detail}</p>
${errors.length === 0 ? '' : html`<ul>${errors.slice(0, 20).map((one) => html`<li><code>${one.pointer}</code> ${one.detail}</li>`)}</ul>`}
${next === undefined ? '' : html`<p>${next.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}</p>`}
<p class="row">${AGAIN.has(status) ? html`<a class="button" href="">Load again</a>` : ''}<a class="button quiet" href="${home}/">Start page</a><a href="${home}/docs">Docs</a></p>
${requestId === undefined ? '' : html`<p class="soft small">Request <code>${requestId}</code></p>`}`;
  return framed(String(title), main, home);
}

/** Puts a page that stands alone into its frame. */
export function framed(title: string, main: Part, home: string, known = frames): string {
  let pieces = known.get(home);
  if (!pieces) {
    const places: Place[] = [
      { name: 'Turnpike', href: `${home}/` },
      { name: 'Docs', href: `${home}/docs` },
    ];
    const whole = String(page({ title: HOLE, style: LOOK_TEXT, places, width: 'read', main: HOLE }));
    pieces = whole.split(HOLE);
    if (known.size < MAX_FRAMES) known.set(home, pieces);
  }
  const [before = '', between = '', after = ''] = pieces;
  return `${before}${html`${title}`}${between}${html`${main}`}${after}`;
}
