/**
 * The operator's console, at /console of the operator's port. It asks the operator's API for all that it shows and does,
 * as who is logged in. What protects a session: a cookie that scripts cannot read and that other sites cannot send, the
 * origin of every POST, a word in each form, and the token once more where money or access is at stake.
 */
import { type Context, Hono } from 'hono';
import type { Logger } from 'pino';
import { fileHeaders, html, type Part } from '../../../builtin-tenants/kit/look/layout.ts';
import { LOOK_CSS } from '../../pages/look.ts';
import type { Audit } from '../../registry/audit.ts';
import type { Guesses } from '../../registry/guesses.ts';
import { asProblem, PROBLEMS, Problem, type ProblemCode } from '../../shared/problem.ts';
import { readBody } from '../../shared/request-body.ts';
import { type ConsolePage, consoleAnswer, SCRIPT_PATH, STYLE_PATH, type View } from './page.ts';
import { CONSOLE_PAGES } from './pages/index.ts';
import { CONSOLE_SCRIPT } from './script.ts';
import { BASE, isSameText, type Session, type Sessions } from './sessions.ts';
import type { OperatorTokens, Role } from './tokens.ts';
import { json as jsonView } from './words.ts';

/** As whom the API is called, by what way, and whether the token was given for this very call. */
export interface Who {
  role: Role;
  address: string;
  /** Undefined: the caller has it anyway. */
  isConfirmed?: boolean;
}

export interface ConsoleOptions {
  sessions: Sessions;
  guesses: Pick<Guesses, 'failed'>;
  tokens: Pick<OperatorTokens, 'roleOf'>;
  audit: Pick<Audit, 'begin' | 'end'>;
  builtins: View['builtins'];
  publicUrl: string;
  log: Logger;
  /** The operator's API. */
  api(request: Request, who: Who): Response | Promise<Response>;
}

const COOKIE = 'turnpike-console';
const SECURE_COOKIE = `__Host-${COOKIE}`;
const MAX_FORM_BYTES = 65_536;
const ADDRESS = 'console';

interface LoggedIn {
  session: Session;
  cookie: string;
  who: Who;
}

/** `found` is undefined without a valid session. */
type Found = { Variables: { found: LoggedIn | undefined } };

export function createConsole(options: ConsoleOptions): Hono<Found> {
  const { sessions, guesses, tokens, audit, builtins, publicUrl, log, api } = options;
  const app = new Hono<Found>();
  const places = CONSOLE_PAGES.filter(({ hidden }) => !hidden).map(({ place, path }) => ({
    name: place,
    href: path === '/' ? BASE : BASE + path,
  }));

  app.onError((error, c) => {
    const problem = asProblem(error);
    if (problem.isFault) log.error({ err: error }, 'unexpected error in the console');
    return problemPage(problem, c.get('found'));
  });

  function problemPage(problem: Problem, found: LoggedIn | undefined, back?: string): Response {
    return consoleAnswer({
      title: problem.title,
      pages: found ? places : [],
      ...(found ? { session: found.session } : {}),
      width: 'narrow',
      status: problem.status,
      headers: problem.headers,
      main: html`<h1>${problem.title}</h1><p class="note bad">${problem.message}</p>
<p><a href="${back ?? BASE}">${back === undefined ? 'To the overview' : 'Back'}</a></p>`,
    });
  }

  async function sessionOf(request: Request): Promise<LoggedIn | undefined> {
    const cookies = new Map(
      (request.headers.get('cookie') ?? '').split(';').map((pair) => {
        const [name = '', value = ''] = pair.trim().split('=', 2);
        return [name, value] as const;
      }),
    );
    for (const [name, isSecure] of [
      [SECURE_COOKIE, true],
      [COOKIE, false],
    ] as const) {
      const given = cookies.get(name);
      const session = given === undefined ? undefined : await sessions.find(given, isSecure);
      if (given !== undefined && session)
        return { session, cookie: given, who: { role: session.role, address: ADDRESS, isConfirmed: false } };
    }
    return undefined;
  }

  async function ask<T>(path: string, who: Who): Promise<T> {
    const response = await api(new Request(`http://console.internal${path}`), who);
    const text = await response.text();
    if (response.ok || response.headers.get('content-type')?.startsWith('application/json'))
      return JSON.parse(text) as T;
    throw problemOf(text, response.status);
  }

  app.get(STYLE_PATH.slice(BASE.length), () => new Response(LOOK_CSS, { headers: fileHeaders('text/css') }));
  app.get(
    SCRIPT_PATH.slice(BASE.length),
    () => new Response(CONSOLE_SCRIPT, { headers: fileHeaders('text/javascript') }),
  );

  app.use(async function findSession(c, next) {
    const found = await sessionOf(c.req.raw);
    c.set('found', found);
    await next();
    if (!found || c.res.headers.has('set-cookie')) return;
    c.header('set-cookie', cookie(sessions.renewed(found.session), found.session.isSecure));
  });

  app.get('/log-in', (c) => {
    if (c.get('found')) return c.redirect(BASE, 303);
    return loginPage(backOf(c.req.query('to')));
  });

  app.post('/log-in', async (c) => {
    requireOwnOrigin(c.req.raw);
    const form = await formOf(c.req.raw);
    const to = backOf(form.get('to') ?? undefined);
    const given = (form.get('token') ?? '').trim();
    // Looked at in any case: a stranger's guesses must not keep the operator out.
    const role = tokens.roleOf(given) ?? (await sessions.useCode(given));
    if (!role) {
      const wait = await guesses.failed();
      if (wait > 0) {
        return loginPage(to, `Too many attempts failed. Try again in ${wait} s.`, 429, { 'retry-after': String(wait) });
      }
      log.warn('a log-in to the console failed');
      return loginPage(to, 'Neither a token of this host, nor a link that is still good.', 401);
    }
    const isSecure = c.req.header('origin')?.startsWith('https:') ?? false;
    await note('POST /console/log-in', role);
    return redirect(to, cookie(sessions.open(role, isSecure), isSecure));
  });

  app.post('/log-out', async (c) => {
    const { session, who, cookie: given } = await loggedInForm(c);
    await sessions.end(given);
    await note('POST /console/log-out', who.role);
    return redirect(`${BASE}/log-in`, cookie('', session.isSecure));
  });

  /** Reading the API as who is logged in: streams of logs, and files. No page of ours is made of these answers. */
  app.get('/api/*', async (c) => {
    requireSameSite(c.req.raw);
    const found = c.get('found');
    if (!found) throw new Problem('unauthorized', 'Log in to the console first.');
    const { pathname, search } = new URL(c.req.url);
    const headers = new Headers();
    for (const name of ['accept', 'last-event-id']) {
      const value = c.req.header(name);
      if (value !== undefined) headers.set(name, value);
    }
    const signal = AbortSignal.any([c.req.raw.signal, await sessions.ended(found.session)]);
    const request = new Request(`http://console.internal${pathname.slice(`${BASE}/api`.length)}${search}`, {
      headers,
      signal,
    });
    const response = await api(request, found.who);
    const answer = new Response(response.body, response);
    answer.headers.set('content-security-policy', "sandbox; default-src 'none'");
    answer.headers.set('x-content-type-options', 'nosniff');
    answer.headers.set('cross-origin-resource-policy', 'same-origin');
    answer.headers.set('cache-control', 'no-store');
    answer.headers.delete('set-cookie');
    return answer;
  });

  app.post('/act', async (c) => {
    const { session, who, form } = await loggedInForm(c);
    const back = backOf(form.get('back') ?? undefined);
    const method = form.get('method') ?? '';
    const path = pathOf(form);
    if (!/^(?:POST|PUT|DELETE)$/.test(method) || !path.startsWith('/') || path.startsWith('//'))
      throw new Problem('bad_request', 'The form is not one of this console; open the page again.');
    if (form.has('expected') && form.get('typed')?.trim() !== form.get('expected')) {
      const problem = new Problem('invalid_field', 'What you typed is another name. Nothing was done.');
      return problemPage(problem, c.get('found'), back);
    }
    const token = form.get('token');
    if (token !== null && who.role === 'operator') await confirm(token);
    const body = bodyOf(form);
    const request = new Request(`http://console.internal${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    const response = await api(request, { ...who, isConfirmed: token !== null });
    const text = await response.text();
    const isReport = form.has('shown') && response.headers.get('content-type')?.startsWith('application/json');
    if (!response.ok && !isReport) return problemPage(problemOf(text, response.status), c.get('found'), back);
    if (isReport) {
      const main = html`<h1>${response.ok ? 'Done' : 'What was found'}</h1>${jsonView(parsed(text))}<p><a href="${back}">Back</a></p>`;
      return consoleAnswer({ title: 'Answer', pages: places, session, main, width: 'full' });
    }
    session.flash = { level: 'good', text: 'Done.' };
    return redirect(back);
  });

  /** @throws Problem for a wrong token, and when too many were */
  async function confirm(token: string): Promise<void> {
    if (tokens.roleOf(token.trim()) === 'operator' || (await sessions.useCode(token.trim())) === 'operator') return;
    const wait = await guesses.failed();
    if (wait > 0) throw new Problem('rate_limited', `Too many wrong tokens. Try again in ${wait} s.`);
    throw new Problem(
      'unauthorized',
      'That is neither the operator’s token nor a code that is still good. Nothing was done.',
    );
  }

  for (const page of CONSOLE_PAGES) {
    app.get(page.path === '/' ? '/' : page.path, async (c) => {
      const found = c.get('found');
      const { pathname, search, searchParams } = new URL(c.req.url);
      if (!found) return redirect(`${BASE}/log-in?to=${encodeURIComponent(pathname + search)}`);
      const view: View = {
        session: found.session,
        params: c.req.param() as Record<string, string>,
        query: searchParams,
        ask: (path) => ask(path, found.who),
        builtins,
        publicUrl,
        now: Date.now(),
      };
      return pageAnswer(page, view);
    });
  }

  async function pageAnswer(page: ConsolePage, view: View): Promise<Response> {
    const main: Part = await page.render(view);
    return consoleAnswer({ title: page.title(view), pages: places, page: page.place, session: view.session, main });
  }

  app.notFound((c) =>
    c.get('found')
      ? problemPage(new Problem('not_found', 'The console has no such page.'), c.get('found'))
      : redirect(`${BASE}/log-in`),
  );

  async function loggedInForm(c: Context<Found>): Promise<LoggedIn & { form: URLSearchParams }> {
    requireOwnOrigin(c.req.raw);
    const found = c.get('found');
    if (!found) throw new Problem('unauthorized', 'The session has ended. Log in again; nothing was done.');
    const form = await formOf(c.req.raw);
    if (!isSameText(form.get('csrf') ?? '', found.session.id))
      throw new Problem('forbidden', 'The form is of another session. Open the page again; nothing was done.');
    return { ...found, form };
  }

  async function note(what: string, role: Role): Promise<void> {
    const entry = await audit.begin({ act: what, subject: null, reason: null, parameters: {}, address: ADDRESS, role });
    await audit.end(entry, 303);
  }

  return app;
}

function loginPage(to: string, fault?: string, status = 200, headers: Record<string, string> = {}): Response {
  return consoleAnswer({
    title: 'Log in',
    pages: [],
    width: 'narrow',
    status,
    headers,
    main: html`<h1>Log in</h1>
${fault === undefined ? '' : html`<p class="note bad" role="alert">${fault}</p>`}
<form id="log-in" method="post" action="${BASE}/log-in" class="card">
<input type="hidden" name="to" value="${to}">
<label class="field">Token<span class="hint">The first start of the host printed it. <code>turnpike console</code>, run on the host, prints a link that logs in.</span>
<input type="password" name="token" required autocomplete="off"></label>
<button>Log in</button>
</form>`,
  });
}

/** Where a form returns to. Only paths of this console are taken, so that no link redirects to another site. */
function backOf(path: string | undefined): string {
  return path !== undefined && /^\/console(?:[/?][\w\-./?=&%+:~,]*)?$/.test(path) && !path.includes('//') ? path : BASE;
}

function redirect(to: string, cookie?: string): Response {
  const headers = {
    location: to,
    'cache-control': 'no-store',
    ...(cookie === undefined ? {} : { 'set-cookie': cookie }),
  };
  return new Response(null, { status: 303, headers });
}

/**
 * Cookies know no ports: with the path, tenants on the same host name do not get it. `console` is a reserved slug.
 * @param value empty: removes it
 */
function cookie(value: string, isSecure: boolean): string {
  const ends = value === '' ? '; Max-Age=0' : '';
  const attributes = isSecure ? 'Path=/; Secure' : `Path=${BASE}`;
  return `${isSecure ? SECURE_COOKIE : COOKIE}=${value}; ${attributes}; HttpOnly; SameSite=Strict${ends}`;
}

/** @throws Problem `forbidden` for a form of another site, or of another port of this machine */
function requireOwnOrigin(request: Request): void {
  const origin = request.headers.get('origin') ?? '';
  const host = request.headers.get('host') ?? new URL(request.url).host;
  const site = request.headers.get('sec-fetch-site');
  const isOwn = URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
  if (isOwn && (site === null || site === 'same-origin')) return;
  throw new Problem('forbidden', 'The form came from another site. Nothing was done.');
}

function requireSameSite(request: Request): void {
  const site = request.headers.get('sec-fetch-site');
  if (site === null || site === 'same-origin' || site === 'none') return;
  throw new Problem('forbidden', 'Another site may not read this.');
}

async function formOf(request: Request): Promise<URLSearchParams> {
  return new URLSearchParams((await readBody(request, MAX_FORM_BYTES, 'operator')).toString('utf8'));
}

function pathOf(form: URLSearchParams): string {
  return (form.get('path') ?? '').replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(form.get(`path.${name}`) ?? ''),
  );
}

/** @returns undefined where the form has no field for the API. @throws Problem `invalid_field` */
function bodyOf(form: URLSearchParams): Record<string, unknown> | undefined {
  const body: Record<string, unknown> = {};
  for (const [field, given] of form) {
    const [, kind, name = ''] = /^(text|optional|number|flag)\.([\w.]+)$/.exec(field) ?? [];
    const text = given.replaceAll('\r\n', '\n');
    if (kind === 'text' || (kind === 'optional' && text.trim() !== '')) body[name] = text;
    else if (kind === 'flag') body[name] = text === 'true';
    else if (kind === 'number' && text.trim() !== '') {
      if (!/^-?\d+$/.test(text.trim())) throw new Problem('invalid_field', `${name} takes a whole number.`);
      body[name] = Number(text);
    }
  }
  return Object.keys(body).length > 0 ? body : undefined;
}

function problemOf(text: string, status: number): Problem {
  const { code, detail } = (parsed(text) ?? {}) as { code?: string; detail?: string };
  const known = code !== undefined && Object.hasOwn(PROBLEMS, code) ? (code as ProblemCode) : 'bad_request';
  return new Problem(known, detail ?? `The API answered ${status}.`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
