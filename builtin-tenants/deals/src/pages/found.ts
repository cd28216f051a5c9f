/** The answer of GET /v1/deals for a browser: each deal with its price history. It stands alone, on any origin. */
import { html } from '../../../kit/look/layout.ts';
import { lookText } from '../../../kit/look/tenant.ts';
import { METERS } from '../http/operations.ts';
import { dealCard } from './landing.ts';
import { page, type Site } from './layout.ts';
import type { DealHistory } from './showcase.ts';
import type { Addresses } from './texts.ts';

export interface FoundFacts {
  deals: readonly DealHistory[];
  /** Address of the same query with the deals after these. */
  next: string | undefined;
  /** Query of the search, as it was asked. */
  asked: string;
  paid: boolean;
  now: number;
}

export function foundPage(site: Site, where: Addresses, { deals, next, asked, paid, now }: FoundFacts) {
  const { length } = deals;
  const price = METERS.deal_query.priceUsd;
  const main = html`<h1>${length === 0 ? 'No deal matches' : length === 1 ? 'One deal' : `${length} deals`}</h1>
<p class="row"><span class="badge good">${paid ? `paid: ${price} USD` : 'nothing was charged'}</span><a href="${where.base}/search${asked}">Change the query</a></p>
${length === 0 ? html`<p class="lead">Nothing is sold as a deal that is not. A watch tells when something matches.</p>` : ''}
${deals.map((one) => dealCard(one, now))}
${next === undefined ? '' : html`<p class="row"><a class="button" href="${next}">More, for ${price} USD</a></p>`}
${length === 0 ? '' : html`<p class="soft">Programs get the same as JSON, from the same address.</p>`}`;
  return page('Deals', site, 'Search', main, lookText());
}
