/** The statement of a month: what was there, what came and went, what was left. */
import { html } from '../../../kit/look/layout.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Account } from '../accounts/accounts.ts';
import { type Month, type MonthStatement, type MonthSum, monthAt } from '../credit/month.ts';
import type { Statement } from '../credit/statement.ts';
import { dayOf } from '../day.ts';
import { accountChoice, linesTable, SOURCES } from './dashboard.ts';
import { type Frame, page } from './layout.ts';

export interface MonthFacts {
  accounts: Account[];
  account: Account;
  statement: MonthStatement;
  lines: Statement;
  /** Of now: no month after it is offered. */
  present: Month;
}

export function monthPage(frame: Frame, { accounts, account, statement, lines, present }: MonthFacts) {
  const { month, opening, closing, sums } = statement;
  const place = (name: string) => `/dashboard/month?account=${account.id}&month=${name}`;
  const before = monthAt(month.from, -1);
  const after = monthAt(month.from, 1);
  const body = html`<p class="soft"><a href="/dashboard?account=${account.id}">Your account</a></p>
${accountChoice(accounts, account, '/dashboard/month')}
<p class="row"><a class="button quiet small" href="${place(before.name)}">${before.name}</a>${
    month.from < present.from ? html`<a class="button quiet small" href="${place(after.name)}">${after.name}</a>` : ''
  }<a href="/dashboard/month.csv?account=${account.id}&month=${month.name}">Download as CSV</a></p>
<section class="card">
  <dl class="figures">
    <div><dt>Credit on ${dayOf(month.from)}</dt><dd>$${formatUsd(opening)}</dd></div>
    <div><dt>${month.from === present.from ? 'Credit now' : `Credit on ${dayOf(month.to)}`}</dt><dd>$${formatUsd(closing)}</dd></div>
  </dl>
</section>
<section class="card">
  <h2>Summary</h2>
  <table class="stack"><thead><tr><th>What</th><th>Service</th><th class="number">Times</th><th class="number">USD</th></tr></thead><tbody>
  ${sums.map(
    (sum) =>
      html`<tr><td data-label="What">${nameOf(sum)}</td><td data-label="Service">${sum.service ?? ''}</td><td data-label="Times" class="number">${sum.times}</td><td data-label="USD" class="number">${formatUsd(sum.amount)}</td></tr>`,
  )}
  <tr><td data-label="What"><strong>Change</strong></td><td></td><td></td><td data-label="USD" class="number"><strong>${formatUsd(closing - opening)}</strong></td></tr>
  </tbody></table>
</section>
<section class="card">
  <h2>Movements</h2>
  ${linesTable(lines)}
  ${lines.cursor === undefined ? '' : html`<p class="soft">These are the latest ${lines.lines.length}; all are in the CSV.</p>`}
</section>`;
  return page(`Statement of ${month.name}`, frame, body, { at: 'Your account' });
}

const NAMES: Record<string, string> = {
  hold: 'Calls',
  release: 'Given back for calls that failed',
  charge: 'Charged by services',
  expire: 'Expired',
};

function nameOf({ kind, source }: MonthSum): string {
  if (kind === 'grant') return source === 'purchase' ? 'Top-ups' : (SOURCES[source ?? ''] ?? 'Credit');
  return NAMES[kind] ?? kind;
}
