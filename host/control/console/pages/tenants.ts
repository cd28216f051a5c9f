/** All tenants: searched, sorted, a page at a time. */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import type { ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { choices, count, state, table, time, wallet } from '../words.ts';

interface Tenants {
  tenants: {
    slug: string;
    state: string;
    suspended: { reason: string } | null;
    owner: string;
    version: number;
    builtin: boolean;
    createdAt: string;
    expiresAt: string | null;
    note: string | null;
    instance: string;
  }[];
  total: number;
}

const PAGE = 50;
const STATES: [string, string][] = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['expired', 'Expired'],
  ['decommissioned', 'Decommissioned'],
];
const SORTS: [string, string][] = [
  ['slug', 'Name'],
  ['-createdAt', 'Newest'],
  ['expiresAt', 'Ends first'],
  ['owner', 'Owner'],
];

export const tenantsPage: ConsolePage = {
  path: '/tenants',
  place: 'Tenants',
  title: () => 'Tenants',
  async render({ ask, query }) {
    const known = (name: string, all: [string, string][]) =>
      all.find(([value]) => value === query.get(name))?.[0] ?? all[0]?.[0] ?? '';
    const chosen = {
      q: (query.get('q') ?? '').slice(0, 100),
      state: known('state', STATES),
      sort: known('sort', SORTS),
    };
    const offset = Math.max(0, Math.min(1e9, Math.floor(Number(query.get('offset')) || 0)));
    const present = new URLSearchParams(chosen);
    const search = new URLSearchParams({ ...chosen, offset: String(offset), limit: String(PAGE) });
    const { tenants, total } = await ask<Tenants>(`/tenants?${search}`);
    const base = `${BASE}/tenants`;
    const to = (place: number) => `${base}?${new URLSearchParams({ ...chosen, offset: String(place) })}`;
    return html`<h1>Tenants</h1>
<form method="get" action="${base}" class="row end" role="search">
<label>Search<input name="q" value="${chosen.q}" class="short" placeholder="slug, owner, note" maxlength="100"></label>
<input type="hidden" name="state" value="${chosen.state}"><input type="hidden" name="sort" value="${chosen.sort}">
<button class="quiet">Search</button></form>
<div class="row spread">${choices('State', base, present, 'state', STATES, chosen.state)}${choices('Order', base, present, 'sort', SORTS, chosen.sort)}</div>
<p class="soft" role="status">${count(total)} ${total === 1 ? 'tenant' : 'tenants'}${total > PAGE ? `, ${count(offset + 1)} to ${count(offset + tenants.length)} shown` : ''}.</p>
<section class="card">${table(
      'Tenants',
      [
        { name: 'Slug' },
        { name: 'State' },
        { name: 'Instance' },
        { name: 'Owner' },
        { name: 'Version', number: true },
        { name: 'Made' },
        { name: 'Ends' },
        { name: 'Note' },
      ],
      tenants.map((one) => [
        html`<span><a href="${base}/${encodeURIComponent(one.slug)}">${one.slug}</a>${one.builtin ? html` <span class="badge">built in</span>` : ''}</span>`,
        state(one.suspended && one.state !== 'decommissioned' ? 'suspended' : one.state),
        one.instance,
        wallet(one.owner),
        count(one.version),
        time(one.createdAt),
        one.expiresAt === null ? 'never' : time(one.expiresAt),
        (one.note ?? '').slice(0, 80),
      ]),
      'No tenant is like that.',
    )}</section>
<nav class="row" aria-label="Pages">${offset > 0 ? html`<a class="button quiet small" href="${to(Math.max(0, offset - PAGE))}">Previous</a>` : ''}
${offset + tenants.length < total ? html`<a class="button quiet small" href="${to(offset + PAGE)}">Next</a>` : ''}</nav>`;
  },
};
