/** What a person sees of their accounts: credit, how long it lasts, every movement, and the credentials. */
import { html } from '../../../kit/look/layout.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Account, Credential } from '../accounts/accounts.ts';
import type { overview } from '../accounts/me.ts';
import type { Statement } from '../credit/statement.ts';
import { dayOf } from '../day.ts';
import type { TopUpView } from '../topup/mandates.ts';
import { autoTopUpSection } from './auto-topup.ts';
import { csrfField, type Frame, page } from './layout.ts';
import type { Visitor } from './visitor.ts';

export interface DashboardFacts {
  accounts: Account[];
  account: Account;
  overview: Awaited<ReturnType<typeof overview>>;
  statement: Statement;
  credentials: Credential[];
  topUps: TopUpView;
  /** Where programs ask for a mandate. */
  mandateUrl: string;
  /** Where programs buy credit. */
  purchaseUrl: string;
  /** Least that can be bought, micro-USD; undefined: nothing. */
  minimum: number | undefined;
  /** Credit has just been bought. */
  topped: boolean;
  /** The address has to be confirmed for the welcome bonus. */
  confirms: boolean;
  /** A credential that was just made: shown this once. */
  issued?: string;
}

/** Of an amount in USD, for a form. */
const AMOUNT = '[0-9]{1,6}([.][0-9]{1,6})?';

export function dashboardPage(frame: Frame, facts: DashboardFacts) {
  const { visitor } = frame;
  const { accounts, account, overview, issued } = facts;
  const body = html`${
    issued === undefined
      ? ''
      : html`<section class="card">
  <h2>New credential</h2>
  <p>Copy it now; it is not shown again.</p>
  <p><code id="issued">${issued}</code></p>
</section>`
  }
${accountChoice(accounts, account, '/dashboard')}
<p class="row"><a class="button quiet small" href="/dashboard/watches?account=${account.id}">Watches</a><a class="button quiet small" href="/dashboard/month?account=${account.id}">Monthly statement</a><a class="button quiet small" href="/dashboard/webhooks?account=${account.id}">Webhooks</a><a class="button quiet small" href="/dashboard/renewals?account=${account.id}">Renewals</a></p>
${facts.topped ? html`<p class="note good" role="status">Paid: the credit is yours. It is on the statement below.</p>` : ''}
${facts.confirms ? confirmSection(visitor) : ''}
<section class="card">
  <dl class="figures">
    <div><dt>Credit</dt><dd>${usd(overview.balanceUsd)}</dd></div>
    <div><dt>Held for running calls</dt><dd>${usd(overview.heldUsd)}</dd></div>
    <div><dt>Lasts, at last week’s pace</dt><dd>${overview.runwayDays === null ? '–' : `${overview.runwayDays} days`}</dd></div>
  </dl>
</section>
<section class="card">
  <h2>Credit by grant</h2>
  ${
    overview.grants.length === 0
      ? html`<p class="soft">None.</p>`
      : html`<table class="stack">
    <thead><tr><th>From</th><th>Received</th><th>Expires</th><th class="number">Left</th><th class="number">Of</th></tr></thead><tbody>
    ${overview.grants.map(
      (
        grant,
      ) => html`<tr><td data-label="From">${SOURCES[grant.source] ?? grant.source}</td><td data-label="Received" class="nowrap">${dayOf(grant.createdAt)}</td>
      <td data-label="Expires">${grant.expiresAt === null ? 'never' : dayOf(grant.expiresAt)}</td>
      <td data-label="Left" class="number">${usd(grant.balanceUsd)}</td><td data-label="Of" class="number soft">${usd(grant.amountUsd)}</td></tr>`,
    )}
  </tbody></table>`
  }
</section>
${topUpSection(facts)}
${facts.minimum === undefined ? '' : autoTopUpSection(visitor, account, facts.topUps, facts.mandateUrl)}
${credentialSection(visitor, facts)}
${statementSection(facts)}`;
  return page('Your account', frame, body, { at: 'Your account' });
}

/** @param path of the page that is shown of each account */
export function accountChoice(accounts: readonly Account[], account: Account, path: string) {
  return accounts.length > 1
    ? html`<p class="row">${accounts.map((one) =>
        one.id === account.id
          ? html`<strong>${nameOf(one)}</strong>`
          : html`<a href="${path}?account=${one.id}">${nameOf(one)}</a>`,
      )}</p>`
    : '';
}

function confirmSection(visitor: Visitor) {
  return html`<section class="card">
  <h2>Welcome bonus</h2>
  <p>Confirm your e-mail address to get it: have a code sent to ${visitor.human?.email}, and enter it here.</p>
  <form method="post" action="/dashboard/email-code" class="row">${csrfField(visitor)}
    <input name="code" class="short" inputmode="numeric" autocomplete="one-time-code" placeholder="12345678" aria-label="Code">
    <button>Confirm</button>
    <button name="code" value="" class="quiet small">Send a code</button>
  </form>
</section>`;
}

function topUpSection({ account, minimum, purchaseUrl }: DashboardFacts) {
  if (minimum === undefined) return '';
  const least = formatUsd(minimum);
  return html`<section class="card">
  <h2>Top up</h2>
  <p>A wallet in this browser pays: you see the price, and sign for it.</p>
  <form method="get" action="/dashboard/topup" class="row">
    <input type="hidden" name="account" value="${account.id}">
    <label>USD <input name="amount" class="short" inputmode="decimal" pattern="[0-9]{1,6}([.][0-9]{1,2})?" value="${least}" required></label>
    <button>Pay with a wallet</button>
    <span class="soft">At least ${least} USD.</span>
  </form>
  <p class="soft">From a terminal: <code>turnpike account topup ${least}</code>. A program with a wallet buys it at <code>${purchaseUrl}</code>.</p>
</section>`;
}

function credentialSection(visitor: Visitor, { account, credentials }: DashboardFacts) {
  return html`<section class="card">
  <h2>Credentials</h2>
  ${
    credentials.length === 0
      ? html`<p class="soft">No program can use this account now.</p>`
      : html`<table class="stack">
    <thead><tr><th>Program</th><th>Begins with</th><th>Made</th><th>Last used</th><th>USD a day</th><th><span class="sr">Revoke</span></th></tr></thead><tbody>
    ${credentials.map(
      (
        one,
      ) => html`<tr><td data-label="Program">${one.label}</td><td data-label="Begins with"><code>${one.hint}…</code></td><td data-label="Made" class="nowrap">${dayOf(one.createdAt)}</td>
      <td data-label="Last used">${one.lastUsedAt === null ? 'never' : dayOf(one.lastUsedAt)}</td>
      <td data-label="USD a day">${capForm(visitor, account, one)}</td>
      <td class="number"><form method="post" action="/dashboard/revoke">${csrfField(visitor)}
        <input type="hidden" name="account" value="${account.id}">
        <input type="hidden" name="credential" value="${one.id}">
        <button class="quiet small">Revoke</button></form></td></tr>`,
    )}
  </tbody></table>`
  }
  <form method="post" action="/dashboard/credentials" class="row">${csrfField(visitor)}
    <input type="hidden" name="account" value="${account.id}">
    <label>At most USD a day <input name="cap" class="short" inputmode="decimal" pattern="${AMOUNT}" placeholder="any"></label>
    <button class="quiet small">Make a credential</button>
  </form>
  <p class="soft">A credential with a limit pays for calls, and manages nothing. Days begin at 00:00 UTC.</p>
</section>`;
}

function capForm(visitor: Visitor, account: Account, { id, label, dailyCap, spentToday }: Credential) {
  return html`<form method="post" action="/dashboard/cap" class="row">${csrfField(visitor)}
  <input type="hidden" name="account" value="${account.id}"><input type="hidden" name="credential" value="${id}">
  <input name="cap" class="short" inputmode="decimal" pattern="${AMOUNT}" placeholder="any" aria-label="At most USD a day for ${label}" value="${dailyCap === null ? '' : formatUsd(dailyCap)}">
  <button class="quiet small">Set</button>${dailyCap === null ? '' : html`<span class="soft">${usd(formatUsd(spentToday))} today</span>`}</form>`;
}

function statementSection({ account, statement }: DashboardFacts) {
  return html`<section class="card">
  <h2>Statement</h2>
  ${linesTable(statement)}
  <p class="row"><a href="/dashboard/month?account=${account.id}">By month</a><a href="/dashboard/statement.csv?account=${account.id}">Download as CSV</a></p>
</section>`;
}

export function linesTable({ lines }: Statement) {
  return lines.length === 0
    ? html`<p class="soft">Nothing yet.</p>`
    : html`<table class="stack">
    <thead><tr><th>When (UTC)</th><th>What</th><th>Request</th><th class="number">USD</th></tr></thead><tbody>
    ${lines.map(
      (
        line,
      ) => html`<tr><td data-label="When (UTC)" class="nowrap">${line.at.slice(0, 16).replace('T', ' ')}</td><td data-label="What">${line.memo ?? describe(line)}</td>
      <td data-label="Request">${line.requestId ? html`<code>${line.requestId}</code>` : ''}</td><td data-label="USD" class="number">${line.amountUsd}</td></tr>`,
    )}
  </tbody></table>`;
}

export const SOURCES: Record<string, string> = { welcome: 'Welcome bonus', purchase: 'Purchase', operator: 'Operator' };
export const KINDS: Record<string, string> = {
  hold: 'Held for a call',
  capture: 'Paid',
  release: 'Given back',
  charge: 'Paid',
  expire: 'Expired',
  grant: 'Credit',
};

function describe({ kind, usage }: Statement['lines'][number]): string {
  const what = (usage ?? []).map(({ meterSlug, quantity }) =>
    quantity === 1 ? meterSlug : `${quantity} × ${meterSlug}`,
  );
  return `${KINDS[kind] ?? kind}${what.length > 0 ? `: ${what.join(', ')}` : ''}`;
}

export function nameOf({ kind, id }: Account): string {
  return kind === 'human' ? 'Your account' : `Agent ${id.slice(0, 10)}`;
}

export function usd(amount: string): string {
  return `$${amount}`;
}
