/**
 * The pages for people. They are served on their own host name only (PAGES_URL), where no tenant's page can be, and
 * nothing of an origin is ever served there.
 */
import { type Context, Hono } from 'hono';
import type { Place } from '../../../kit/look/layout.ts';
import { LOOK_PATH, lookResponse } from '../../../kit/look/tenant.ts';
import { PAYMENT_COOKIE } from '../../../kit/payment-cookie.ts';
import { parseUsd } from '../../../kit/usd.ts';
import type { Account, Accounts } from '../accounts/accounts.ts';
import type { Confirmation } from '../accounts/confirmation.ts';
import type { DeviceFlow } from '../accounts/device-flow.ts';
import type { Humans } from '../accounts/humans.ts';
import { capOf, overview } from '../accounts/me.ts';
import type { PasswordReset } from '../accounts/password-reset.ts';
import { newId } from '../accounts/tokens.ts';
import type { Welcome } from '../accounts/welcome.ts';
import type { Ledger } from '../credit/ledger.ts';
import { monthAt, monthStatement, readMonth } from '../credit/month.ts';
import type { Renewals } from '../credit/renewals.ts';
import { statement, statementCsv } from '../credit/statement.ts';
import type { Database } from '../environment.ts';
import type { OwnCall } from '../gateway/gateway.ts';
import type { Webhooks } from '../notices/webhooks.ts';
import { Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import type { AutoTopUp } from '../topup/auto-topup.ts';
import { type AboutFacts, aboutPage } from './about.ts';
import { dashboardPage } from './dashboard.ts';
import { askResetPage, codePage, confirmPage, decidedPage, messagePage, newPasswordPage, signPage } from './forms.ts';
import { type Frame, PAGE_HEADERS } from './layout.ts';
import { monthPage } from './month.ts';
import { renewalRoutes } from './renewals.ts';
import { pick, signedIn } from './signed-in.ts';
import { type Visitor, Visitors } from './visitor.ts';
import { readWatches, watchBody, watchesPage } from './watches.ts';
import { webhookRoutes } from './webhooks.ts';

export interface PagesParts {
  db: Database;
  accounts: Accounts;
  humans: Humans;
  device: DeviceFlow;
  ledger: Ledger;
  welcome: Welcome;
  confirmation: Confirmation;
  passwordReset: PasswordReset;
  secret: string;
  pagesUrl: string;
  purchaseUrl: string;
  topUp: TopUp;
  /** What the overview says. */
  about(): Promise<AboutFacts>;
  watches: WatchService;
  webhooks: Webhooks;
  topUps: AutoTopUp;
  renewals: Renewals;
  mandateUrl: string;
  /** Sends what is due, after the answer. */
  deliver(): void;
  /** What else the host has. */
  places: readonly Place[];
  /** Business time, ms. */
  now(): number;
}

/** Buying credit on a page. */
export interface TopUp {
  /** micro-USD; undefined: none is for sale. */
  minimum(): Promise<number | undefined>;
  /**
   * @param resource address of the page
   * @returns 201 when it is paid, else the page that asks for it
   * @throws Problem
   */
  buy(account: Account, amountUsd: string, resource: string, request: Request): Promise<Response>;
}

/** The service whose watches the pages show. */
export interface WatchService {
  prices(): Promise<{ first: number; day: number } | undefined>;
  /** @param most what it may cost, micro-USD @throws Problem */
  call(account: Account, call: OwnCall, most: number): Promise<Response>;
}

const STATEMENT_LINES = 100;
const MONTH_LINES = 500;
/** Wrong codes a person may type in an hour: 34 bits stay out of reach. */
const CODE_TRIES = 20;
const HOUR_MS = 3_600_000;

export function pagesApp(parts: PagesParts): Hono {
  const { db, accounts, humans, device, ledger } = parts;
  const { places } = parts;
  const visitors = new Visitors(humans, parts.secret, parts.pagesUrl);
  const frameOf = async (c: Context): Promise<Frame> => ({ visitor: await visitors.of(c), places });
  const app = new Hono();
  app.use(async function pageHeaders(c, next) {
    await next();
    for (const [name, value] of Object.entries(PAGE_HEADERS))
      if (!c.res.headers.has(name)) c.res.headers.set(name, value);
  });
  app.onError(async (error, c) => {
    const problem = error instanceof Problem ? error : undefined;
    if (!problem) console.error(error);
    const text = problem?.message ?? 'Something went wrong here; try again.';
    const shown = await visitors.of(c).catch((): Visitor => ({ human: undefined, csrf: '' }));
    return c.html(
      messagePage('That did not work', { visitor: shown, places }, text),
      (problem?.status ?? 500) as 500,
      PAGE_HEADERS,
    );
  });

  app.get(LOOK_PATH, () => lookResponse());
  app.get('/robots.txt', (c) => c.text('User-agent: *\nDisallow: /\n'));
  app.get('/', async (c) => c.html(aboutPage(await frameOf(c), await parts.about())));

  for (const kind of ['in', 'up'] as const) {
    app.get(`/sign-${kind}`, async (c) => {
      const visitor = await visitors.of(c);
      const next = localPath(c.req.query('next'));
      return visitor.human ? c.redirect(next) : c.html(signPage(kind, { visitor, places }, next));
    });
    app.post(`/sign-${kind}`, async (c) => {
      const { email = '', password = '', next } = await visitors.form(c);
      const ip = c.req.header('cf-connecting-ip');
      try {
        const human = await (kind === 'up' ? humans.signUp(email, password, ip) : humans.signIn(email, password, ip));
        await accounts.ofHuman(human.id);
        await visitors.signIn(c, human);
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        const again = signPage(kind, await frameOf(c), localPath(next), error.message, email);
        return c.html(again, error.status as 400);
      }
      return c.redirect(localPath(next), 303);
    });
  }
  const { passwordReset } = parts;
  app.get('/reset', async (c) => c.html(askResetPage(await frameOf(c), passwordReset.isOn)));
  app.post('/reset', async (c) => {
    const { email = '' } = await visitors.form(c);
    await passwordReset.send(email, c.req.header('cf-connecting-ip'));
    const text = 'If an account has this address, a link is on its way to it. It is good for half an hour, once.';
    return c.html(messagePage('Look into your mailbox', await frameOf(c), text));
  });
  app.get('/reset/new', async (c) => {
    const { token = '' } = c.req.query();
    await passwordReset.check(token, c.req.header('cf-connecting-ip'));
    return c.html(newPasswordPage(await frameOf(c), token));
  });
  app.post('/reset/new', async (c) => {
    const { token = '', password = '' } = await visitors.form(c);
    let isFirst: boolean;
    try {
      isFirst = await passwordReset.use(token, password, c.req.header('cf-connecting-ip'));
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 400) throw error;
      return c.html(newPasswordPage(await frameOf(c), token, error.message), 400);
    }
    const programs = isFirst
      ? 'Nobody had confirmed this address before, so programs, renewals and webhooks are disconnected, too. Look through your watches.'
      : 'Programs stay connected: see your account.';
    const text = `Your password is changed, and you are signed out everywhere. ${programs}`;
    return c.html(messagePage('Done', await frameOf(c), text, { href: '/sign-in', label: 'Sign in' }));
  });

  app.post('/sign-out', async (c) => {
    await visitors.form(c);
    await visitors.signOut(c);
    return c.redirect('/sign-in', 303);
  });

  app.get('/device', async (c) => {
    const visitor = await visitors.of(c);
    const typed = c.req.query('user_code');
    const here = typed === undefined ? '/device' : `/device?user_code=${encodeURIComponent(typed)}`;
    if (!visitor.human) return c.redirect(`/sign-in?next=${encodeURIComponent(here)}`);
    if (typed === undefined) return c.html(codePage({ visitor, places }));
    await limit(db, `user-code:${visitor.human.id}`, CODE_TRIES, HOUR_MS);
    const pending = await device.pending(typed);
    if (!pending)
      return c.html(
        codePage({ visitor, places }, 'This code is not known, or it is over. Check it, or ask for a new one.'),
        404,
      );
    return c.html(confirmPage({ visitor, places }, pending));
  });
  app.post('/device', async (c) => {
    const { human } = await signedIn(visitors, c);
    const { user_code = '', decision } = await visitors.form(c);
    const allow = decision === 'allow';
    // The form alone must not be a way to guess codes: one may end up as the owner of an agent's account.
    await limit(db, `user-code:${human.id}`, CODE_TRIES, HOUR_MS);
    await device.decide(user_code, human.id, allow);
    return c.html(decidedPage(await frameOf(c), allow));
  });

  async function dashboard(c: Context, issued?: string): Promise<Response> {
    const visitor = await visitors.of(c);
    if (!visitor.human) return c.redirect('/sign-in');
    await accounts.ofHuman(visitor.human.id);
    const all = await accounts.allOfHuman(visitor.human.id);
    const account = pick(all, c.req.query('account'));
    return c.html(
      dashboardPage(
        { visitor, places },
        {
          accounts: all,
          account,
          overview: await overview(db, ledger, account, parts.now()),
          statement: await statement(db, account.id, { limit: STATEMENT_LINES }),
          credentials: await accounts.credentials(account.id),
          topUps: await parts.topUps.view(account.id),
          mandateUrl: parts.mandateUrl,
          purchaseUrl: parts.purchaseUrl,
          minimum: await parts.topUp.minimum(),
          topped: c.req.query('topped') !== undefined,
          confirms: await parts.welcome.needsConfirmation(visitor.human.id),
          ...(issued === undefined ? {} : { issued }),
        },
      ),
    );
  }
  app.get('/dashboard', (c) => dashboard(c));
  app.post('/dashboard/email-code', async (c) => {
    const { human } = await signedIn(visitors, c);
    const { code = '' } = await visitors.form(c);
    // Without a code, one is asked for.
    if (code === '') await parts.confirmation.send(human);
    else await parts.confirmation.confirm(human.id, code);
    return c.redirect('/dashboard', 303);
  });
  // The page of the 402 loads itself again with the payment: only what the wallet signed moves money.
  app.get('/dashboard/topup', async (c) => {
    const { human } = await signedIn(visitors, c);
    const { account: id, amount = '' } = c.req.query();
    const account = pick(await accounts.allOfHuman(human.id), id);
    const resource = new URL(c.req.url);
    const done = `${PAYMENT_COOKIE}=; Path=${resource.pathname}; Max-Age=0`;
    try {
      const bought = await parts.topUp.buy(
        account,
        amount,
        `${parts.pagesUrl}${resource.pathname}${resource.search}`,
        c.req.raw,
      );
      // A copy, whose headers can be added to.
      if (bought.status === 402) return new Response(bought.body, bought);
      await bought.body?.cancel();
      c.header('set-cookie', done);
      return c.redirect(`/dashboard?account=${account.id}&topped`, 303);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const shown = messagePage('Nothing was bought', await frameOf(c), error.message);
      return c.html(shown, error.status as 400, { 'set-cookie': done });
    }
  });
  app.get('/dashboard/statement.csv', async (c) => {
    const { human } = await signedIn(visitors, c);
    const account = pick(await accounts.allOfHuman(human.id), c.req.query('account'));
    return statementCsv(db, account.id);
  });
  async function watches(c: Context, id: string | undefined, given: URLSearchParams, problem?: string) {
    const { human } = await signedIn(visitors, c);
    const all = await accounts.allOfHuman(human.id);
    const account = pick(all, id);
    const after = c.req.query('after');
    const rest = `/v1/watches${after === undefined ? '' : `?cursor=${encodeURIComponent(after)}`}`;
    const answer = await parts.watches.call(account, { method: 'GET', rest }, 0);
    const listed = answer.ok ? readWatches(await answer.json()) : { watches: [], cursor: undefined };
    const facts = {
      accounts: all,
      account,
      watches: listed.watches,
      more: listed.cursor,
      prices: await parts.watches.prices(),
      credit: await ledger.available(account.id),
      given,
      key: newId('frm'),
      now: parts.now(),
      ...(problem === undefined && answer.ok ? {} : { problem: problem ?? (await problemOf(answer)) }),
    };
    return c.html(watchesPage(await frameOf(c), facts), problem === undefined ? 200 : 400);
  }
  app.get('/dashboard/watches', (c) => {
    const url = new URL(c.req.url);
    const here = `/dashboard/watches${url.search}`;
    return visitors
      .of(c)
      .then(({ human }) =>
        human
          ? watches(c, c.req.query('account'), url.searchParams)
          : c.redirect(`/sign-in?next=${encodeURIComponent(here)}`),
      );
  });
  app.post('/dashboard/watches', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    const again = (problem: string) => watches(c, account.id, new URLSearchParams(fields), problem);
    try {
      const call = {
        method: 'POST',
        rest: '/v1/watches',
        headers: { 'content-type': 'application/json', 'idempotency-key': fields.key ?? '' },
        body: watchBody(fields),
      };
      const made = await parts.watches.call(account, call, parseUsd(fields.most) ?? 0);
      if (!made.ok) return await again(await problemOf(made));
      await made.body?.cancel();
    } catch (error) {
      if (error instanceof Problem) return again(error.message);
      throw error;
    }
    return c.redirect(`/dashboard/watches?account=${account.id}`, 303);
  });
  app.post('/dashboard/watches/change', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    const one = `/v1/watches/${encodeURIComponent(fields.watch ?? '')}`;
    const call =
      fields.to === 'pause' || fields.to === 'resume'
        ? { method: 'POST', rest: `${one}/${fields.to}` }
        : { method: 'DELETE', rest: one };
    const changed = await parts.watches.call(account, call, 0);
    if (!changed.ok) return watches(c, account.id, new URLSearchParams(), await problemOf(changed));
    await changed.body?.cancel();
    return c.redirect(`/dashboard/watches?account=${account.id}`, 303);
  });
  const asked = async (c: Context) => {
    const { human } = await signedIn(visitors, c);
    const all = await accounts.allOfHuman(human.id);
    const account = pick(all, c.req.query('account'));
    const present = monthAt(parts.now());
    const name = c.req.query('month');
    const month = name === undefined ? present : readMonth(name);
    if (!month || month.from > present.from)
      throw new Problem('invalid_field', 'That is no month with a statement; one looks like 2026-11.');
    return { all, account, present, month: await monthStatement(db, account.id, month) };
  };
  app.get('/dashboard/month', async (c) => {
    const { all, account, present, month } = await asked(c);
    const lines = await statement(db, account.id, { ...month.lines, limit: MONTH_LINES });
    const facts = { accounts: all, account, statement: month, lines, present };
    return c.html(monthPage(await frameOf(c), facts));
  });
  app.get('/dashboard/month.csv', async (c) => {
    const { account, month } = await asked(c);
    const { opening, closing, lines } = month;
    // Newest first, as the lines are.
    return statementCsv(db, account.id, lines, `${account.id}-${month.month.name}`, [
      { at: Math.min(month.month.to, parts.now()), kind: 'closing', amount: closing },
      { at: month.month.from, kind: 'opening', amount: opening },
    ]);
  });
  renewalRoutes(app, { accounts, renewals: parts.renewals, visitors, frameOf });
  webhookRoutes(app, { db, accounts, webhooks: parts.webhooks, visitors, frameOf, deliver: parts.deliver });
  app.post('/dashboard/auto-topup/end', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    await parts.topUps.end(account.id);
    return c.redirect(`/dashboard?account=${account.id}#auto-topup`, 303);
  });
  app.post('/dashboard/revoke', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    await accounts.revoke(account.id, fields.credential ?? '');
    return c.redirect(`/dashboard?account=${account.id}`, 303);
  });
  app.post('/dashboard/credentials', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    await limit(db, `credentials:${account.id}`, 50, 24 * HOUR_MS);
    const { credential } = await accounts.issueCredential(account.id, 'made on the dashboard', capOf(fields.cap));
    return dashboard(c, credential);
  });
  app.post('/dashboard/cap', async (c) => {
    const { human } = await signedIn(visitors, c);
    const fields = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), fields.account);
    await accounts.cap(account.id, fields.credential ?? '', capOf(fields.cap));
    return c.redirect(`/dashboard?account=${account.id}`, 303);
  });
  app.notFound(async (c) => c.html(messagePage('Nothing is here', await frameOf(c), 'This page does not exist.'), 404));
  return app;
}

/** What a service says of a refusal. */
async function problemOf(answer: Response): Promise<string> {
  const { detail } = ((await answer.json().catch(() => undefined)) ?? {}) as { detail?: unknown };
  return typeof detail === 'string'
    ? detail.slice(0, 500)
    : 'The service did not answer; nothing was charged. Try again.';
}

/** A path of these pages, never another site: `//evil.example` and `/\evil.example` are addresses too. */
function localPath(next: string | undefined): string {
  return next !== undefined && /^\/(?:device|dashboard(?:\/watches)?)(?:\?[\w=&%.+~*-]*)?$/.test(next)
    ? next
    : '/dashboard';
}
