/** What was earned, what is open, and what the wallets hold. */
import { html, type Part } from '../../../../builtin-tenants/kit/look/layout.ts';
import type { HostWallet } from '../../../payments/types.ts';
import { act, type ConsolePage, type View } from '../page.ts';
import { BASE } from '../sessions.ts';
import { count, figures, table, time, usd, wallet } from '../words.ts';

interface OpenItem {
  id: string;
  kind: string;
  payment: string;
  to: string;
  amount: string;
  since: number;
  error?: string;
}
interface Money {
  stopped: { since: number; violations: { what: string; about: string[] }[] } | null;
  summary: { asset: string; gross: string; fees: string; operations: string; owed: string }[];
  open: OpenItem[];
  gas: { leastX402Price: string; tenants: { tenant: string; today: string; budget: string; isUsedUp: boolean }[] };
}
interface Wallets {
  wallets: HostWallet[];
}
interface Revenue {
  revenue: {
    day: string;
    slug: string;
    route: string;
    payments: number;
    gross: string;
    fee: string;
    refunded: string;
  }[];
}

const DAYS = 30;
const MOST_ROWS = 100;
const KINDS: Record<string, string> = {
  stuck: 'could not be sent',
  'refund-owed': 'refund to a caller',
  'payout-owed': 'payout to an owner',
  'fee-owed': 'own fee',
  'pending-settlement': 'waits for the chain',
  'tenant-debt': 'debt of a tenant',
};

export const moneyPage: ConsolePage = {
  path: '/money',
  place: 'Money',
  title: () => 'Money',
  async render(view) {
    const { ask, session } = view;
    const from = new Date(view.now - (DAYS - 1) * 86_400_000).toISOString().slice(0, 10);
    const [money, { wallets }, { revenue }] = await Promise.all([
      ask<Money>('/payments'),
      ask<Wallets>('/payments/wallets'),
      ask<Revenue>(`/payments/revenue?from=${from}`),
    ]);
    const back = `${BASE}/money`;
    return html`<h1>Money</h1>
${
  money.stopped
    ? html`<div class="note bad"><p><strong>Payouts and refunds are stopped</strong> since ${time(new Date(money.stopped.since).toISOString())}.</p>
<ul>${money.stopped.violations.map(({ what, about }) => html`<li>${what} ${about.join(', ')}</li>`)}</ul>
<p>Compare the books with the chains first. When the cause is known, let payouts go on: what was found is accepted then.</p></div>
${act({ session, method: 'POST', path: '/payments/resume', back, button: 'Let payouts go on', asksAgain: true, look: 'danger' })}`
    : ''
}
${
  money.summary.length === 0
    ? html`<p class="soft">Nothing was paid yet.</p>`
    : money.summary.map(
        (one) =>
          html`<h2>In all <span class="soft small">${one.asset}</span></h2>${figures([
            ['Sold by tenants', usd(one.gross)],
            ['Own share of it', usd(one.fees)],
            ['Deploys and renewals', usd(one.operations)],
            ['Owed to others', usd(one.owed)],
          ])}`,
      )
}
<section class="card"><h2>Open</h2>
${table(
  'Open payments',
  [
    { name: 'What' },
    { name: 'USD', number: true },
    { name: 'To' },
    { name: 'Since' },
    { name: 'Error' },
    { name: 'Decide' },
  ],
  money.open
    .slice(0, MOST_ROWS)
    .map((one) => [
      html`${KINDS[one.kind] ?? one.kind}<div class="soft small">${one.id}</div>`,
      usd(one.amount),
      wallet(one.to),
      time(new Date(one.since).toISOString()),
      one.error ?? '',
      decide(view, one, back),
    ]),
  'Nothing is open: all was settled and sent.',
)}
${money.open.length > MOST_ROWS ? html`<p class="soft">… and ${count(money.open.length - MOST_ROWS)} more: <code>turnpike payments</code>.</p>` : ''}
</section>
<section class="card"><h2>Books and chains</h2>
<p>Asks the chains for every balance and channel, and says where they differ from the books.</p>
${act({ session, method: 'POST', path: '/payments/reconcile', back, button: 'Compare now', isShown: true, look: 'quiet' })}
</section>
<section class="card"><h2>Wallets of the host</h2>
${table(
  'Wallets of the host',
  [{ name: 'For' }, { name: 'Address' }, { name: 'Network' }, { name: 'USD', number: true }, { name: 'Gas' }],
  wallets.map((one) => [
    one.name,
    html`<code class="address">${one.address}</code>`,
    one.chain,
    one.usd === null ? html`<span class="badge bad">${one.problem ?? ''}</span>` : usd(one.usd),
    one.coin === undefined
      ? ''
      : html`${gasOf(one.settlementsLeft)} <span class="soft small">(${one.coin})</span> ${one.isLow ? html`<span class="badge bad">low: fill it up</span>` : ''}`,
  ]),
  'Payments are off: this host has no wallets.',
)}
</section>
<section class="card"><h2>Gas paid for tenants today</h2>
<p class="soft">Nothing below ${usd(money.gas.leastX402Price)} is offered by x402.</p>
${table(
  'Gas by tenant',
  [{ name: 'Tenant' }, { name: 'Today', number: true }, { name: 'Budget', number: true }, { name: 'State' }],
  money.gas.tenants.map((one) => [
    one.tenant,
    usd(one.today),
    usd(one.budget),
    one.isUsedUp ? html`<span class="badge warn">used up</span>` : '',
  ]),
  'None today.',
)}
</section>
<section class="card"><h2>Revenue of ${DAYS} days</h2>
${table(
  'Revenue',
  [
    { name: 'Day' },
    { name: 'Tenant' },
    { name: 'Route' },
    { name: 'Payments', number: true },
    { name: 'Charged', number: true },
    { name: 'Own share', number: true },
    { name: 'Refunded', number: true },
  ],
  revenue
    .toReversed()
    .slice(0, MOST_ROWS)
    .map((one) => [
      one.day,
      one.slug,
      html`<code>${one.route}</code>`,
      count(one.payments),
      usd(one.gross),
      usd(one.fee),
      usd(one.refunded),
    ]),
  'Nothing was sold.',
)}
<p><a href="${BASE}/api/payments/csv" download="payments.csv">All payments as CSV</a></p></section>`;
  },
};

function gasOf(left: number | null | undefined): string {
  if (left === null || left === undefined) return 'gas is free there';
  return `enough for ${left > 1_000_000 ? 'over a million' : count(left)} settlements`;
}

function decide({ session }: View, one: OpenItem, back: string): Part {
  if (session.role === 'reader') return '';
  const ways = one.kind === 'pending-settlement' ? ['retry'] : ['retry', 'paid', 'waive'];
  const names: Record<string, string> = {
    retry: 'try it again',
    paid: 'it was paid elsewhere',
    waive: 'close it without money',
  };
  return html`<details><summary>Decide</summary>${act({
    ...{
      session,
      method: 'POST',
      path: `/payments/open/${encodeURIComponent(one.id)}`,
      back,
      button: 'Do it',
      asksAgain: true,
      look: 'small',
    },
    fields: html`<label class="field">What<select name="text.action">${ways.map((way) => html`<option value="${way}">${names[way]}</option>`)}</select></label>
${ways.length > 1 ? html`<label class="field">Transaction<span class="hint">Hash of the one that paid it elsewhere.</span><input name="optional.reference" pattern="0x[0-9a-fA-F]{64}" spellcheck="false"></label>` : ''}`,
  })}</details>`;
}
