/** Where a person lets deployments renew from their credit, and ends it. */
import type { Context, Hono } from 'hono';
import { html } from '../../../kit/look/layout.ts';
import type { Account, Accounts } from '../accounts/accounts.ts';
import type { Renewals, RenewalView } from '../credit/renewals.ts';
import { dayOf } from '../day.ts';
import { Problem } from '../problem.ts';
import { accountChoice } from './dashboard.ts';
import { csrfField, type Frame, page } from './layout.ts';
import { pick, signedIn } from './signed-in.ts';
import type { Visitors } from './visitor.ts';

export interface RenewalPages {
  accounts: Accounts;
  renewals: Renewals;
  visitors: Visitors;
  frameOf(c: Context): Promise<Frame>;
}

interface Facts {
  accounts: Account[];
  account: Account;
  renewals: RenewalView[];
  /** What was just made: shown this once. */
  added?: { slug: string; token: string };
  problem?: string;
}

const PATH = '/dashboard/renewals';
const WHY: Record<string, string> = {
  funds: 'the credit did not cover a term',
  limit: 'a term costs more than you allow',
};

export function renewalRoutes(app: Hono, { accounts, renewals, visitors, frameOf }: RenewalPages): void {
  async function shown(c: Context, id: string | undefined, more: Pick<Facts, 'added' | 'problem'> = {}) {
    const { human } = await signedIn(visitors, c);
    const all = await accounts.allOfHuman(human.id);
    const account = pick(all, id);
    const facts = { accounts: all, account, renewals: await renewals.list(account.id), ...more };
    return c.html(renewalsPage(await frameOf(c), facts), more.problem === undefined ? 200 : 400);
  }
  app.get(PATH, (c) => shown(c, c.req.query('account')));
  app.post(PATH, async (c) => {
    const { human } = await signedIn(visitors, c);
    const { account: id, slug = '', most = '' } = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), id);
    try {
      return await shown(c, account.id, { added: await renewals.add(account.id, { slug, mostUsd: most }) });
    } catch (error) {
      if (error instanceof Problem) return shown(c, account.id, { problem: error.message });
      throw error;
    }
  });
  app.post(`${PATH}/end`, async (c) => {
    const { human } = await signedIn(visitors, c);
    const { account: id, slug = '' } = await visitors.form(c);
    const account = pick(await accounts.allOfHuman(human.id), id);
    await renewals.end(account.id, slug);
    return c.redirect(`${PATH}?account=${account.id}`, 303);
  });
}

function renewalsPage(frame: Frame, { accounts, account, renewals, added, problem }: Facts) {
  const fields = html`${csrfField(frame.visitor)}<input type="hidden" name="account" value="${account.id}">`;
  const body = html`<p class="soft"><a href="/dashboard?account=${account.id}">Your account</a></p>
${accountChoice(accounts, account, PATH)}
${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
${
  added === undefined
    ? ''
    : html`<section class="card"><h2>Token for ${added.slug}</h2>
  <p>Copy it now; it is not shown again. The owner of the deployment enters it in the host’s console, at Renew.</p>
  <p><code id="token">${added.token}</code></p></section>`
}
<section class="card">
  <h2>Deployments that renew from this credit</h2>
  ${
    renewals.length === 0
      ? html`<p class="soft">None.</p>`
      : html`<table class="stack"><thead><tr><th>Deployment</th><th>Since</th><th>Last failure</th><th class="number">At most USD</th><th><span class="sr">Change</span></th></tr></thead><tbody>
  ${renewals.map(
    ({ slug, mostUsd, createdAt, lastFailure }) =>
      html`<tr><td data-label="Deployment">${slug}</td><td data-label="Since" class="nowrap">${dayOf(createdAt)}</td>
    <td data-label="Last failure">${lastFailure === null ? 'none' : (WHY[lastFailure] ?? lastFailure)}</td><td data-label="At most USD" class="number">${mostUsd}</td>
    <td class="number"><form method="post" action="${PATH}/end" class="row">${fields}<input type="hidden" name="slug" value="${slug}"><button class="quiet small">End it now<span class="sr"> for ${slug}</span></button></form></td></tr>`,
  )}
  </tbody></table>`
  }
  <form method="post" action="${PATH}" class="row">${fields}
    <label>Deployment <input name="slug" class="short" required maxlength="40" autocomplete="off"></label>
    <label>At most USD for a term <input name="most" class="short" required inputmode="decimal" pattern="[0-9]{1,6}([.][0-9]{1,6})?"></label>
    <button class="quiet small">Let it renew</button>
  </form>
  <p class="soft">A few days before it expires, the host takes the price of one more term, once for each. When the credit does not cover it, your webhooks are told.</p>
</section>`;
  return page('Renewals', frame, body, { at: 'Your account' });
}
