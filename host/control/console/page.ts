/**
 * A page of the operator's console: one file in pages/, and one line in pages/index.ts. A page reads everything from the
 * operator's API (`ask`), with the rights of the session's role.
 */
import {
  contentName,
  html,
  type Part,
  type Place,
  PRIVATE_PAGE,
  page as renderPage,
} from '../../../builtin-tenants/kit/look/layout.ts';
import { LOOK_CSS } from '../../pages/look.ts';
import type { Builtin } from '../builtins.ts';
import { CONSOLE_SCRIPT } from './script.ts';
import { BASE, type Session } from './sessions.ts';

type OperatorApi = NonNullable<Builtin['asks']['operatorApi']>;

export interface ConsolePage {
  /** Below `/console`, such as `/tenants/:slug`. */
  path: string;
  /** Name in the navigation; pages below another have that one's. */
  place: string;
  /** Not in the navigation. */
  hidden?: true;
  title(view: View): string;
  render(view: View): Promise<Part> | Part;
}

export interface View {
  session: Session;
  params: Record<string, string>;
  query: URLSearchParams;
  /** The answer of a GET of the operator's API. @throws Problem as the API answers it */
  ask<T>(path: string): Promise<T>;
  /** Operator APIs of built-in tenants, by slug. */
  builtins: readonly ({ slug: string; title: string } & Pick<OperatorApi, 'views' | 'acts'>)[];
  publicUrl: string;
  /** ms since the epoch. */
  now: number;
}

const HOME: Place = { name: 'Turnpike console', href: BASE };

export const STYLE_PATH = `${BASE}/${contentName('look', LOOK_CSS, 'css')}`;
export const SCRIPT_PATH = `${BASE}/${contentName('console', CONSOLE_SCRIPT, 'js')}`;

const HEADERS: Record<string, string> = {
  ...PRIVATE_PAGE,
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
};

export interface Frame {
  title: string;
  /** Places of the navigation; none before somebody is logged in. */
  pages: readonly Place[];
  page?: string;
  session?: Session;
  width?: 'narrow' | 'full';
  main: Part;
  status?: number;
  headers?: Record<string, string>;
}

export function consoleAnswer({ title, pages, page, session, width = 'full', main, status, headers }: Frame): Response {
  const flash = session?.flash;
  if (session) delete session.flash;
  const text = renderPage({
    title,
    site: HOME.name,
    style: { href: STYLE_PATH },
    scripts: [SCRIPT_PATH],
    places: [HOME],
    pages,
    ...(page === undefined ? {} : { page }),
    ...(session ? { who: logOut(session) } : {}),
    width,
    main: html`${flash ? html`<p class="note ${flash.level}" role="status">${flash.text}</p>` : ''}${main}`,
  });
  return new Response(String(text), { status: status ?? 200, headers: { ...HEADERS, ...headers } });
}

function logOut({ id, role }: Session) {
  return html`<span>${role === 'reader' ? 'read-only' : 'operator'}</span>
<form method="post" action="${BASE}/log-out"><input type="hidden" name="csrf" value="${id}"><button class="quiet small">Log out</button></form>`;
}

export interface Act {
  session: Session;
  method: 'POST' | 'PUT' | 'DELETE';
  /** Of the operator's API. */
  path: string;
  /** Page of the console to go to afterwards. */
  back: string;
  button: string;
  fields?: Part;
  /** Asks for the operator's token: the API would refuse without. */
  asksAgain?: boolean;
  /** Has to be typed in. */
  expected?: string;
  /** The answer is shown: what was found, or a key. */
  isShown?: boolean;
  look?: 'quiet' | 'danger' | 'small' | 'quiet small';
}

/**
 * A form that calls the API. Its fields are named by how their text is to be read: `text.reason`, `optional.memo`
 * (left out when empty), `number.days`, `flag.enabled`; `path.service` takes the place of `{service}` in the path.
 */
export function act(given: Act): Part {
  const { session, method, path, back, button, fields, asksAgain, expected, isShown, look } = given;
  // Who may only read is not offered what would be refused.
  if (session.role === 'reader') return '';
  return html`<form method="post" action="${BASE}/act">
<input type="hidden" name="csrf" value="${session.id}"><input type="hidden" name="method" value="${method}">
<input type="hidden" name="path" value="${path}"><input type="hidden" name="back" value="${back}">
${isShown ? html`<input type="hidden" name="shown" value="yes">` : ''}${fields ?? ''}
${
  expected === undefined
    ? ''
    : html`<input type="hidden" name="expected" value="${expected}">
<label class="field">Type <code>${expected}</code> to confirm<input name="typed" required autocomplete="off" spellcheck="false"></label>`
}
${
  asksAgain
    ? html`<label class="field">Operator token<span class="hint">Asked for again, since this may move money or give access. A code of <code>turnpike console</code> will do, too.</span>
<input type="password" name="token" required autocomplete="off"></label>`
    : ''
}
<p class="row"><button${look === undefined ? '' : html` class="${look}"`}>${button}</button></p>
</form>`;
}
