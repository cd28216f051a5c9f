/** The landing page: a live deal with its price chart, what it is measured against, and the evidence. */
import { html } from '../../../kit/look/layout.ts';
import { METERS, OPERATIONS, priceText } from '../http/operations.ts';
import { formatMinor } from '../prices/money.ts';
import type { Deal } from '../prices/publish.ts';
import { webUrl } from '../sources/source.ts';
import { priceChart } from './chart.ts';
import { type Html, page, type Site } from './layout.ts';
import type { DealHistory, Showcase } from './showcase.ts';
import type { Addresses } from './texts.ts';

const SHOWN_EVIDENCE = 4;

export function landingPage(site: Site, where: Addresses, showcase: Showcase | undefined, now: number) {
  const { prefix } = site;
  return page(
    'Verified price drops',
    site,
    'Deals',
    html`<h1>Price drops that really happened</h1>
<p class="lead">Every deal here is an offer whose price this service observed itself, day by day. It is measured against the
lowest price of the 30 days before the drop, never against a shop’s own list price, and it comes with the evidence.</p>
${showcase ? dealCard(showcase, now) : html`<p class="card soft">There is no deal right now: nothing is sold as one that is not.</p>`}
<h2>Prices</h2>
<table class="stack"><thead><tr><th>Call</th><th>What</th><th class="number">Price</th></tr></thead><tbody>
${OPERATIONS.map((one) => html`<tr><td data-label="Call"><code>${one.method} ${one.path}</code></td><td data-label="What">${one.summary}</td><td data-label="Price" class="number">${priceText(one)}</td></tr>`)}
<tr><td data-label="Call">each further day</td><td data-label="What">Of a running watch, 24 hours in advance</td><td data-label="Price" class="number">${METERS.watch_day.priceUsd} USD from credit</td></tr>
</tbody></table>
<h2>Try it</h2>
<p class="row"><a class="button" href="${prefix}/search">Make a query</a></p>
<pre><code>turnpike pay "${where.pay}/v1/deals?min_discount_bps=1000" --max-pay 1</code></pre>
<p>Or with any MPP or x402 client: an unpaid call says what it costs. See <a href="${prefix}/docs">the docs</a>.</p>`,
  );
}

export function dealCard({ deal, points, count = 1 }: DealHistory & Partial<Showcase>, now: number): Html {
  const { price, reference } = deal;
  const money = (minor: number) => `${formatMinor(minor, price.exponent)} ${price.currency}`;
  const link = webUrl(deal.url);
  return html`<section class="card deal">
<p class="row"><span class="badge good">Live deal</span>${deal.demo ? html`<span class="badge warn">Demo data: a generated shop and history</span>` : ''}${count > 1 ? html`<span class="soft">one of ${count}</span>` : ''}</p>
<h2>${link ? html`<a rel="nofollow noopener noreferrer" href="${link}">${deal.title}</a>` : deal.title}</h2>
<p class="soft">${deal.offer.merchant} · ${deal.offer.country}${deal.offer.category ? html` · ${deal.offer.category}` : ''}</p>
<p class="price"><strong>${money(price.minor)}</strong>${
    reference ? html`<s>${money(reference.minor)}</s> <span class="good">−${percent(deal.discount_bps)}</span>` : ''
  }</p>
${priceChart({
  points,
  reference: reference?.minor,
  droppedAt: reference ? Date.parse(reference.to) : undefined,
  now,
  currency: price.currency,
  exponent: price.exponent,
})}
<p class="legend"><span>observed price</span><span class="warn">reference price</span><span class="good">the drop</span></p>
<dl class="facts">
<dt>Baseline</dt><dd>${reference ? html`${money(reference.minor)}, the lowest from ${day(reference.from)} to ${day(reference.to)} (${reference.days_observed} days observed)` : 'not known yet'}</dd>
<dt>Score</dt><dd>${deal.score} of 1000 (${deal.tier})</dd>
<dt>Confidence</dt><dd>${deal.confidence} of 1000</dd>
<dt>The shop’s own claim</dt><dd>${deal.claimed_discount_bps > 0 ? `−${percent(deal.claimed_discount_bps)} from its list price; reported, not scored` : 'none'}</dd>
<dt>Verified</dt><dd><time datetime="${deal.last_verified_at}">${minute(deal.last_verified_at)}</time></dd>
</dl>
${evidenceTable(deal)}
</section>`;
}

function evidenceTable({ evidence }: Deal): Html {
  const shown =
    evidence.length <= SHOWN_EVIDENCE ? evidence : [...evidence.slice(0, 1), ...evidence.slice(1 - SHOWN_EVIDENCE)];
  return html`<h3>Evidence</h3>
<table class="stack"><thead><tr><th>Observed</th><th>Source</th><th>SHA-256 of what was read</th></tr></thead><tbody>
${shown.map((one) => html`<tr><td data-label="Observed">${minute(one.observed_at)}</td><td data-label="Source">${one.source}</td><td data-label="SHA-256"><code>${one.sha256.slice(0, 16)}…</code></td></tr>`)}
</tbody></table>`;
}

/** 1/100 % -> `12.3 %`. */
function percent(bps: number): string {
  return `${(bps / 100).toFixed(1)} %`;
}

function day(iso: string): string {
  return iso.slice(0, 10);
}

function minute(iso: string): string {
  return `${iso.slice(0, 16).replace('T', ' ')} UTC`;
}
