/** The frame of every page. No scripts at all; the one stylesheet is a file of our own. */
import { html, page as lookPage, type Part, type Place, PRIVATE_PAGE } from '../../../kit/look/layout.ts';
import { lookFile } from '../../../kit/look/tenant.ts';
import type { Visitor } from './visitor.ts';

/** Everything a page of ours may load, and who may frame it: nobody. */
export const PAGE_HEADERS: Record<string, string> = {
  ...PRIVATE_PAGE,
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
};

export interface Frame {
  visitor: Visitor;
  /** What else the host has. */
  places: readonly Place[];
}

interface Shape {
  /** Name of the page in the tabs. */
  at?: string;
  /** For forms. */
  narrow?: boolean;
  /** Whether the title is the heading, too; default: yes. */
  heading?: boolean;
}

export function page(title: string, { visitor, places }: Frame, main: Part, shape: Shape = {}) {
  const { at, narrow = false, heading = true } = shape;
  const who = visitor.human
    ? html`<span>${visitor.human.email}</span><form method="post" action="/sign-out">${csrfField(visitor)}<button class="quiet small">Sign out</button></form>`
    : html`<a href="/sign-in">Sign in</a>`;
  return lookPage({
    title,
    site: 'Pay',
    style: lookFile(''),
    places,
    at: 'Pay',
    who,
    pages: [
      { name: 'Overview', href: '/' },
      { name: 'Your account', href: '/dashboard' },
      { name: 'Connect a program', href: '/device' },
    ],
    ...(at === undefined ? {} : { page: at }),
    ...(narrow ? { width: 'narrow' } : {}),
    main: heading ? html`<h1>${title}</h1>\n${main}` : main,
  });
}

export function csrfField({ csrf }: Visitor) {
  return html`<input type="hidden" name="csrf" value="${csrf}">`;
}
