/** The watches of an account, the days that are paid of each, and a form that makes one. */
import { html } from '../../../kit/look/layout.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Account } from '../accounts/accounts.ts';
import { accountChoice } from './dashboard.ts';
import { csrfField, type Frame, page } from './layout.ts';

/** As the service answers; nothing of it is believed to be what it should. */
export interface ShownWatch {
  id: string;
  state: string;
  query: Record<string, unknown>;
  webhook: string | undefined;
  everySeconds: number;
  /** ms; NaN: not known. */
  paidThrough: number;
}

export interface WatchesFacts {
  accounts: Account[];
  account: Account;
  watches: readonly ShownWatch[];
  /** More than are shown. */
  more: string | undefined;
  /** Prices in micro-USD; undefined: no watch is for sale. */
  prices: { first: number; day: number } | undefined;
  /** Credit that can be spent, micro-USD. */
  credit: number;
  /** Fields of the form. */
  given: URLSearchParams;
  problem?: string;
  /** Once for each form: the same form sent twice makes one watch. */
  key: string;
  now: number;
}

const DAY_MS = 86_400_000;
const EVERY: [seconds: number, text: string][] = [
  [900, 'every 15 minutes'],
  [3_600, 'every hour'],
  [21_600, 'every 6 hours'],
  [86_400, 'once a day'],
];
/** Fields of a query that the form has; name, label, hint. */
const FIELDS: [name: string, label: string, hint: string][] = [
  ['q', 'Words', 'All of them occur in the title.'],
  ['category', 'Category', 'As the source names it.'],
  ['merchant', 'Merchant', 'Its whole name.'],
  ['country', 'Country', 'Two letters, such as DE.'],
  ['currency', 'Currency', 'Three letters, such as EUR.'],
  ['max_price_minor', 'Highest price, in cents', 'Needs a currency.'],
];
/** In hundredths of a per cent, as the service takes it. */
const DISCOUNT = 'min_discount_bps';
const DISCOUNTS = [500, 1_000, 1_500, 2_000, 3_000, 5_000];
const NUMBERS = ['max_price_minor', DISCOUNT, 'min_score', 'min_confidence'];
/** What a link may bring beside them. */
const HIDDEN = ['gtin', 'min_score', 'min_confidence', 'at_low', 'availability'];

/** What the service gets of a form. */
export function watchBody(fields: Record<string, string | undefined>): string {
  const query: Record<string, unknown> = {};
  for (const name of [...FIELDS.map(([name]) => name), DISCOUNT, ...HIDDEN]) {
    const value = (fields[name] ?? '').trim();
    if (value === '') continue;
    if (NUMBERS.includes(name)) query[name] = /^\d{1,13}$/.test(value) ? Number(value) : value;
    else if (name === 'at_low') query[name] = value === 'true';
    else query[name] = name === 'country' || name === 'currency' ? value.toUpperCase() : value;
  }
  const webhook = (fields.webhook ?? '').trim();
  return JSON.stringify({
    query,
    trigger: { on: ['enter', 'new_low'] },
    every_s: Number(fields.every_s ?? 3_600),
    ...(webhook === '' ? {} : { delivery: { webhook } }),
  });
}

/** The service's list, as far as it is one. */
export function readWatches(answer: unknown): { watches: ShownWatch[]; cursor: string | undefined } {
  const { watches, cursor } = objectOf(answer);
  return {
    watches: (Array.isArray(watches) ? watches : []).slice(0, 100).map((one: unknown) => {
      const { id, state, query, delivery, every_s, paid_through } = objectOf(one);
      const { webhook } = objectOf(delivery);
      return {
        id: String(id).slice(0, 80),
        state: String(state).slice(0, 40),
        query: objectOf(query),
        webhook: typeof webhook === 'string' ? webhook.slice(0, 2_000) : undefined,
        everySeconds: Number(every_s),
        paidThrough: Date.parse(String(paid_through)),
      };
    }),
    cursor: typeof cursor === 'string' ? cursor.slice(0, 80) : undefined,
  };
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

export function watchesPage(frame: Frame, facts: WatchesFacts) {
  const { accounts, account, watches, more, prices, credit, problem, now } = facts;
  const running = watches.filter(({ state }) => state === 'running').length;
  const body = html`<p class="soft"><a href="/dashboard?account=${account.id}">Your account</a></p>
${accountChoice(accounts, account, '/dashboard/watches')}
${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
<section class="card">
  <dl class="figures">
    <div><dt>Credit</dt><dd>$${formatUsd(credit)}</dd></div>
    <div><dt>Running</dt><dd>${running}${more === undefined ? '' : '+'}</dd></div>
    ${prices ? html`<div><dt>A day of all that run</dt><dd>$${formatUsd(running * prices.day)}</dd></div>` : ''}
    ${prices && running > 0 ? html`<div><dt>The credit covers</dt><dd>${Math.floor(credit / (running * prices.day))} days</dd></div>` : ''}
  </dl>
</section>
<section class="card">
  <h2>Your watches</h2>
  ${
    watches.length === 0
      ? html`<p class="soft">None yet.</p>`
      : html`<table class="stack"><thead><tr><th>Looks for</th><th>State</th><th>Paid until (UTC)</th><th class="number">Days left</th><th>Tells</th><th><span class="sr">Change</span></th></tr></thead><tbody>
  ${watches.map((watch) => watchRow(frame, account, watch, now))}
  </tbody></table>`
  }
  ${more === undefined ? '' : html`<p><a href="/dashboard/watches?account=${account.id}&after=${more}">More</a></p>`}
</section>
${prices ? formSection(frame, facts, prices) : ''}`;
  return page('Watches', frame, body, { at: 'Your account' });
}

function watchRow({ visitor }: Frame, account: Account, watch: ShownWatch, now: number) {
  const { id, state, query, webhook, paidThrough } = watch;
  const left = Math.max(0, paidThrough - now) / DAY_MS;
  const isPaused = state === 'paused';
  const isKnown = Number.isFinite(paidThrough) && Math.abs(paidThrough) < 8e15;
  const words = Object.entries(query).map(([name, value]) => wordOf(name, String(value)).slice(0, 200));
  return html`<tr><td data-label="Looks for"><span>${words.length === 0 ? 'any deal' : words.join(', ')}<br><code>${id}</code></span></td>
<td data-label="State"><span class="badge ${state === 'running' ? 'good' : 'warn'}">${state}</span></td>
<td data-label="Paid until" class="nowrap">${isKnown ? new Date(paidThrough).toISOString().slice(0, 16).replace('T', ' ') : ''}</td>
<td data-label="Days left" class="number">${isKnown ? left.toFixed(1) : ''}</td>
<td data-label="Tells"><span>${webhook ?? html`<span class="nowrap">a feed</span>`}</span></td>
<td class="number"><form method="post" action="/dashboard/watches/change" class="row">${csrfField(visitor)}<input type="hidden" name="account" value="${account.id}"><input type="hidden" name="watch" value="${id}">${button(isPaused ? 'resume' : 'pause', isPaused ? 'Go on' : 'Pause', id)}${button('end', 'End', id)}</form></td></tr>`;
}

/** One condition of a query, in words. */
function wordOf(name: string, value: string): string {
  if (name === DISCOUNT && /^\d{1,5}$/.test(value)) return `discount at least ${percent(Number(value))}`;
  const label = FIELDS.find(([field]) => field === name)?.[1] ?? name;
  return `${label.toLowerCase()}: ${value}`;
}

function percent(hundredths: number): string {
  return `${hundredths / 100} %`;
}

function button(value: string, text: string, id: string) {
  return html`<button name="to" value="${value}" class="quiet small">${text}<span class="sr"> ${id}</span></button>`;
}

/** The usual ones, and the one that a link brought. */
function discounts(given: string): number[] {
  const own = /^[1-9]\d{0,3}$/.test(given) ? [Number(given)] : [];
  return [...new Set([...DISCOUNTS, ...own])].sort((a, b) => a - b);
}

function formSection({ visitor }: Frame, facts: WatchesFacts, prices: { first: number; day: number }) {
  const { account, credit, given, key } = facts;
  const value = (name: string) => (given.get(name) ?? '').slice(0, 2_000);
  const first = formatUsd(prices.first);
  return html`<section class="card" id="new">
  <h2>Watch for deals</h2>
  <p>$${first} from your credit for the first 24 hours, then $${formatUsd(prices.day)} for each further 24 hours, until you end it or the credit is used up. Ending it gives nothing back for the day that is paid.</p>
  <form method="post" action="/dashboard/watches">${csrfField(visitor)}
    <input type="hidden" name="account" value="${account.id}"><input type="hidden" name="key" value="${key}"><input type="hidden" name="most" value="${first}">
    ${HIDDEN.filter((name) => given.has(name)).map((name) => html`<input type="hidden" name="${name}" value="${value(name)}">`)}
    <div class="fields">${FIELDS.map(
      ([name, label, hint]) =>
        html`<label class="field">${label}<input name="${name}" value="${value(name)}" maxlength="100" autocomplete="off"><span class="hint">${hint}</span></label>`,
    )}<label class="field">Discount, at least<select name="${DISCOUNT}"><option value="">any</option>${discounts(
      value(DISCOUNT),
    ).map(
      (each) =>
        html`<option value="${each}"${String(each) === value(DISCOUNT) ? html` selected` : ''}>${percent(each)}</option>`,
    )}</select></label></div>
    <div class="fields">
    <label class="field">Webhook<input type="url" name="webhook" value="${value('webhook')}" maxlength="2000" placeholder="https://" autocomplete="off"><span class="hint">Without one, events are in the feed.</span></label>
    <label class="field">Looks<select name="every_s">${EVERY.map(
      ([seconds, text]) =>
        html`<option value="${seconds}"${String(seconds) === (value('every_s') || '3600') ? html` selected` : ''}>${text}</option>`,
    )}</select><span class="hint">How often.</span></label></div>
    <div class="row"><button>Watch for $${first}</button><span class="soft">Credit: $${formatUsd(credit)}${credit < prices.first ? ', which does not cover it' : `, after it $${formatUsd(credit - prices.first)}`}</span></div>
  </form>
</section>`;
}
