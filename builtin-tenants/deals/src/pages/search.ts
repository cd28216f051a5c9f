/** Makes a query of GET /v1/deals by a form: its address, what it costs, and how it is run or watched. No script. */
import { html, raw, tabs } from '../../../kit/look/layout.ts';
import { METERS } from '../http/operations.ts';
import { type DealSearch, parseSearch } from '../prices/query.ts';
import { Problem } from '../problem.ts';
import { type Html, page, type Site } from './layout.ts';
import type { Addresses } from './texts.ts';

/** Fields that were not filled in are no parameters. */
export function filledIn(given: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...given].filter(([, value]) => value.trim() !== '').slice(0, MOST_FIELDS));
}

/** @returns undefined where nothing was asked; the fault where it is not acceptable */
export function readSearch(given: URLSearchParams): DealSearch | { fault: string } | undefined {
  if (given.size === 0) return undefined;
  try {
    return parseSearch(given);
  } catch (error) {
    if (error instanceof Problem) return { fault: error.message };
    throw error;
  }
}

const MOST_FIELDS = 30;
const DISCOUNTS = [500, 1_000, 1_500, 2_000, 3_000, 5_000];

/** @param matches whether something matches now; undefined where nothing acceptable was asked */
export function searchPage(
  site: Site,
  where: Addresses,
  given: URLSearchParams,
  asked: ReturnType<typeof readSearch>,
  matches: boolean | undefined,
) {
  const fault = asked && 'fault' in asked ? asked.fault : undefined;
  const value = (name: string) => (given.get(name) ?? '').slice(0, 200);
  const text = (name: string, label: string, hint: string, more = '') =>
    html`<label class="field">${label}<input name="${name}" value="${value(name)}" autocomplete="off"${raw(more)}><span class="hint">${hint}</span></label>`;
  const choice = (name: string, label: string, options: [value: string, text: string][], none = 'any') =>
    html`<label class="field">${label}<select name="${name}"><option value="">${none}</option>${options.map(
      ([option, shown]) =>
        html`<option value="${option}"${option === value(name) ? raw(' selected') : ''}>${shown}</option>`,
    )}</select></label>`;
  const main = html`<h1>Search deals</h1>
<p class="lead">Say what you look for, see what the query costs, then run it: with a wallet in this browser, or from a program.</p>
${fault === undefined ? '' : html`<p class="note bad" role="alert">${fault}</p>`}
<form class="card" method="get" action="${site.prefix}/search">
${text('q', 'Words', 'All of them occur in the title.', ' maxlength="100"')}
<div class="fields">
${text('category', 'Category', 'As the source names it.', ' maxlength="100"')}
${text('merchant', 'Merchant', 'Its whole name.', ' maxlength="80"')}
${text('gtin', 'GTIN', '8 to 14 digits.', ' inputmode="numeric" maxlength="14"')}
</div><div class="fields">
${text('country', 'Country', 'Two letters, such as DE.', ' maxlength="2"')}
${text('currency', 'Currency', 'Three letters, such as EUR.', ' maxlength="3"')}
${text('max_price_minor', 'Highest price, in cents', 'Smallest units of the currency.', ' inputmode="numeric" maxlength="13"')}
</div><div class="fields">
${choice(
  'min_discount_bps',
  'Discount, at least',
  DISCOUNTS.map((bps) => [String(bps), `${bps / 100} %`]),
)}
${choice('at_low', 'Never seen lower', [
  ['true', 'only these'],
  ['false', 'only others'],
])}
${choice('availability', 'Availability', [
  ['in_stock', 'in stock'],
  ['out_of_stock', 'out of stock'],
  ['preorder', 'preorder'],
])}
${choice(
  'sort',
  'Order',
  [
    ['discount', 'largest discount first'],
    ['price', 'lowest price first'],
    ['newest', 'newest first'],
  ],
  'best score first',
)}
</div>
<p class="row"><button>Make the query</button><a href="${site.prefix}/search">Clear</a></p>
</form>
${fault === undefined && matches !== undefined ? madePart(where, given, matches) : ''}`;
  return page('Search deals', site, 'Search', main);
}

function madePart(where: Addresses, given: URLSearchParams, matches: boolean): Html {
  const url = `${where.pay}/v1/deals?${given}`;
  const price = METERS.deal_query.priceUsd;
  const query = Object.fromEntries([...given].filter(([name]) => !NOT_WATCHED.has(name)).map(typed));
  const watch = JSON.stringify({ query, trigger: { on: ['enter', 'new_low'] } });
  return html`<section class="card" id="query"><h2>Your query</h2>
<p class="price"><strong>${matches ? `${price} USD` : 'free'}</strong></p>
<p>${matches ? 'Something matches now. You are asked to pay before anything is shown; what fails costs nothing.' : 'Nothing matches now: the answer is empty and costs nothing. A watch tells when something does.'}</p>
<p class="row"><a class="button" href="${url}">Run it${matches ? ` for ${price} USD` : ''}</a></p>
<p>Its address:</p>
<pre><code>${url}</code></pre>
${tabs('run', 'From a terminal', [
  { name: 'turnpike', body: html`<pre>turnpike pay ${quoted(url)} --max-pay ${price}</pre>` },
  {
    name: 'curl',
    body: html`<pre># Answers 402 with the price; any MPP or x402 client pays it.\ncurl -i ${quoted(url)}</pre>`,
  },
])}
</section>
<section class="card"><h2>Watch it</h2>
<p>A watch runs the query for you, every hour, and tells a webhook or a feed: ${METERS.watch_created.priceUsd} USD for the first 24 hours, ${METERS.watch_day.priceUsd} USD for each further 24 hours, from credit.</p>
<p class="row"><a class="button quiet" href="${where.platform}/dashboard/watches?${new URLSearchParams(stringsOf(query))}">Watch it from your account</a></p>
<pre>turnpike pay ${quoted(`${where.pay}/v1/watches`)} --credit --max-pay ${METERS.watch_created.priceUsd} --body ${quoted(watch)}</pre>
</section>`;
}

/** Of an answer, not of what is looked for. */
const NOT_WATCHED = new Set(['since', 'sort', 'limit', 'cursor']);

/** As JSON has it. */
function typed([name, value]: [string, string]): [string, string | number | boolean] {
  if (/^(?:min|max)_/.test(name)) return [name, Number(value)];
  if (name === 'at_low') return [name, value === 'true' || value === '1'];
  return [name, name === 'country' || name === 'currency' ? value.toUpperCase() : value];
}

function stringsOf(query: object): [string, string][] {
  return Object.entries(query).map(([name, value]) => [name, String(value)]);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
