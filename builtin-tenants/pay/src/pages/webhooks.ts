/** Where a person says who is told when credit runs low, tries it, and sees what was told. */
import type { Context, Hono } from 'hono';
import { html } from '../../../kit/look/layout.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Account, Accounts } from '../accounts/accounts.ts';
import type { Database } from '../environment.ts';
import { addWebhook, lowBalanceOf, testWebhook } from '../notices/api.ts';
import type { EventView, Notices, Webhooks, WebhookView } from '../notices/webhooks.ts';
import { Problem } from '../problem.ts';
import { accountChoice } from './dashboard.ts';
import { csrfField, type Frame, page } from './layout.ts';
import { pick, signedIn } from './signed-in.ts';
import type { Visitors } from './visitor.ts';

export interface WebhookPages {
  db: Database;
  accounts: Accounts;
  webhooks: Webhooks;
  visitors: Visitors;
  frameOf(c: Context): Promise<Frame>;
  /** Sends what is due, after the answer. */
  deliver(): void;
}

interface Facts {
  accounts: Account[];
  account: Account;
  webhooks: WebhookView[];
  events: EventView[];
  notices: Notices;
  /** A secret that was just made: shown this once. */
  secret?: string | undefined;
  problem?: string | undefined;
}

const AMOUNT = '[0-9]{1,6}([.][0-9]{1,6})?';
const TYPES: Record<EventView['type'], string> = {
  balance_low: 'Credit is low',
  account_suspended: 'Suspended',
  account_resumed: 'Resumed',
  topup_failed: 'Top-up failed',
  renewal_failed: 'Renewal failed',
  test: 'Test',
};
const STATES: Record<EventView['delivery'], string> = {
  waiting: 'waiting',
  delivered: 'delivered',
  given_up: 'given up',
};

export function webhookRoutes(app: Hono, parts: WebhookPages): void {
  const { db, accounts, webhooks, visitors } = parts;
  async function shown(c: Context, id: string | undefined, more: Pick<Facts, 'secret' | 'problem'> = {}) {
    const { human } = await signedIn(visitors, c);
    const all = await accounts.allOfHuman(human.id);
    const account = pick(all, id);
    const facts = {
      accounts: all,
      account,
      webhooks: await webhooks.list(account.id),
      events: await webhooks.events(account.id),
      notices: await webhooks.notices(account.id),
      ...more,
    };
    return c.html(webhooksPage(await parts.frameOf(c), facts), more.problem === undefined ? 200 : 400);
  }
  /** A form of the page, for one of the person's own accounts. */
  function act(path: string, work: (account: Account, fields: Record<string, string>) => Promise<string | undefined>) {
    app.post(path, async (c) => {
      const { human } = await signedIn(visitors, c);
      const fields = await visitors.form(c);
      const account = pick(await accounts.allOfHuman(human.id), fields.account);
      try {
        const secret = await work(account, fields);
        if (secret !== undefined) return await shown(c, account.id, { secret });
      } catch (error) {
        if (error instanceof Problem) return shown(c, account.id, { problem: error.message });
        throw error;
      }
      return c.redirect(`/dashboard/webhooks?account=${account.id}`, 303);
    });
  }
  app.get('/dashboard/webhooks', (c) => shown(c, c.req.query('account')));
  act('/dashboard/webhooks', async ({ id }, { url }) => (await addWebhook(db, webhooks, id, url)).secret);
  act('/dashboard/webhooks/low', async ({ id }, { below }) => {
    await webhooks.setLowBalance(id, lowBalanceOf(below ?? ''));
    return undefined;
  });
  act('/dashboard/webhooks/change', async ({ id }, { webhook = '', to }) => {
    if (to === 'remove') await webhooks.remove(id, webhook);
    else {
      await testWebhook(db, webhooks, id, webhook);
      parts.deliver();
    }
    return undefined;
  });
}

function webhooksPage(frame: Frame, facts: Facts) {
  const { accounts, account, webhooks, events, notices, secret, problem } = facts;
  const { visitor } = frame;
  const fields = html`${csrfField(visitor)}<input type="hidden" name="account" value="${account.id}">`;
  const state = notices.isSuspended ? 'suspended' : notices.isLow ? 'low' : 'good';
  const body = html`<p class="soft"><a href="/dashboard?account=${account.id}">Your account</a></p>
${accountChoice(accounts, account, '/dashboard/webhooks')}
${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
${
  secret === undefined
    ? ''
    : html`<section class="card"><h2>Secret of the webhook</h2>
  <p>Copy it now; it is not shown again. With it your receiver checks the signature (Standard Webhooks).</p>
  <p><code id="secret">${secret}</code></p></section>`
}
<section class="card">
  <h2>Low credit</h2>
  <form method="post" action="/dashboard/webhooks/low" class="row">${fields}
    <label>Tell when credit falls below USD <input name="below" class="short" inputmode="decimal" pattern="${AMOUNT}" placeholder="never" value="${notices.lowBelow === null ? '' : formatUsd(notices.lowBelow)}"></label>
    <button>Set</button>
    <span class="badge ${state === 'good' ? 'good' : 'warn'}">${state === 'good' ? 'credit is enough' : state === 'low' ? 'credit is low' : 'suspended'}</span>
  </form>
  <p class="soft">It is told once, and again only after the credit was enough. That a service has suspended its work for want of credit, and that it can resume, is told in any case.</p>
</section>
<section class="card">
  <h2>Webhooks</h2>
  ${
    webhooks.length === 0
      ? html`<p class="soft">None yet: nobody is told.</p>`
      : html`<table class="stack"><thead><tr><th>Address</th><th>Last event</th><th><span class="sr">Change</span></th></tr></thead><tbody>
  ${webhooks.map(
    ({ id, url, lastEvent }) =>
      html`<tr><td data-label="Address"><span>${url}<br><code>${id}</code></span></td>
    <td data-label="Last event">${lastEvent === null ? 'none' : html`<span>${TYPES[lastEvent.type]}, ${STATES[lastEvent.delivery]}</span>`}</td>
    <td class="number"><form method="post" action="/dashboard/webhooks/change" class="row">${fields}<input type="hidden" name="webhook" value="${id}"><button name="to" value="test" class="quiet small">Send a test<span class="sr"> to ${url}</span></button><button name="to" value="remove" class="quiet small">Remove<span class="sr"> ${url}</span></button></form></td></tr>`,
  )}
  </tbody></table>`
  }
  <form method="post" action="/dashboard/webhooks" class="row">${fields}
    <label>Address <input type="url" name="url" required maxlength="2000" placeholder="https://" autocomplete="off"></label>
    <button class="quiet small">Add a webhook</button>
  </form>
</section>
<section class="card">
  <h2>What was told</h2>
  ${
    events.length === 0
      ? html`<p class="soft">Nothing yet.</p>`
      : html`<table class="stack"><thead><tr><th>When (UTC)</th><th>What</th><th>State</th><th class="number">Attempts</th><th>Event</th></tr></thead><tbody>
  ${events.map(
    ({ id, type, at, delivery, attempts }) =>
      html`<tr><td data-label="When (UTC)" class="nowrap">${at.slice(0, 16).replace('T', ' ')}</td><td data-label="What">${TYPES[type]}</td>
    <td data-label="State">${STATES[delivery]}</td><td data-label="Attempts" class="number">${attempts}</td><td data-label="Event"><code>${id}</code></td></tr>`,
  )}
  </tbody></table>`
  }
</section>`;
  return page('Webhooks', frame, body, { at: 'Your account' });
}
