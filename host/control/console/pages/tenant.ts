/** One tenant: what it is and does, its log as it comes, and what the operator may decide about it. */
import { html, type Part } from '../../../../builtin-tenants/kit/look/layout.ts';
import { fileSize } from '../../../shared/file-size.ts';
import { chart } from '../chart.ts';
import { act, type ConsolePage, type View } from '../page.ts';
import { BASE } from '../sessions.ts';
import { choices, count, facts, json, state, table, time, usd, wallet } from '../words.ts';
import { RANGE_NAMES } from './overview.ts';

interface Metadata {
  slug: string;
  url: string;
  state: string;
  suspended?: { since: string; reason: string };
  owner: string;
  version: number;
  bindings: Record<string, unknown>;
  crons: string[];
  domains: { domain: string; state: string }[];
  paidRoutes: { method: string; path: string; tool?: string; price: string }[];
  payTo: string;
  compatibilityDate: string;
  createdAt: string;
  updatedAt: string;
  expiresAt: string | null;
  runtime: { state: string; lastExit?: { reason: string; detail: string; at: string } };
  note: string | null;
}
interface Usage {
  days: { day: string; requests: number; errors: number; bytesIn: number; bytesOut: number; cpuMs: number }[];
  storage: Record<string, number>;
  debtUsd: string;
  revenue: { day: string; route: string; payments: number; grossUsd: string; feeUsd: string }[];
}
interface Versions {
  current: number;
  versions: {
    version: number;
    codeDigest: string;
    bytes: number;
    note: string;
    by: string | null;
    createdAt: string;
  }[];
}
interface Limits {
  limits: Record<string, { value: number; source: string }>;
}

export const tenantPage: ConsolePage = {
  path: '/tenants/:slug',
  place: 'Tenants',
  hidden: true,
  title: ({ params }) => params.slug ?? '',
  async render(view) {
    const { ask, query, params } = view;
    const path = `/tenants/${encodeURIComponent(params.slug ?? '')}`;
    const here = BASE + path;
    const range = RANGE_NAMES.some(([name]) => name === query.get('range')) ? (query.get('range') ?? 'day') : 'day';
    const found = await ask<Metadata>(path);
    const isLiving = found.state !== 'decommissioned';
    const [usage, versions, limits, history] = await Promise.all([
      ask<Usage>(`${path}/usage`),
      ask<Versions>(`${path}/versions`),
      isLiving ? ask<Limits>(`${path}/limits`) : { limits: {} },
      ask<{ points: { at: string; requests: number; errors: number }[] }>(
        `/history?range=${range}&slug=${encodeURIComponent(found.slug)}`,
      ),
    ]);
    const { suspended, runtime } = found;
    const isBuiltin = found.expiresAt === null;
    return html`<p><a href="${BASE}/tenants">All tenants</a></p>
<h1>${found.slug} ${state(suspended && isLiving ? 'suspended' : found.state)}</h1>
${suspended ? html`<p class="note bad">Suspended since ${time(suspended.since)}: ${suspended.reason}</p>` : ''}
<div class="cards wide"><section class="card"><h2>What it is</h2>${facts([
      ['Address', html`<a href="${found.url}" rel="noreferrer">${found.url}</a>`],
      ['Owner', wallet(found.owner)],
      ['Paid to', wallet(found.payTo)],
      ['Made', time(found.createdAt)],
      ['Changed', time(found.updatedAt)],
      ['Ends', isBuiltin ? 'never: it comes with the host' : time(found.expiresAt)],
      ['Instance', state(runtime.state)],
      [
        'Last end',
        runtime.lastExit
          ? html`${time(runtime.lastExit.at)}, ${runtime.lastExit.reason}: ${runtime.lastExit.detail}`
          : '–',
      ],
      [
        'Domains',
        found.domains.length === 0
          ? '–'
          : found.domains.map(({ domain, state: now }) => html`<div>${domain} ${state(now)}</div>`),
      ],
      ['Crons', found.crons.join(', ') || '–'],
      [
        'Prices',
        found.paidRoutes.length === 0
          ? '–'
          : found.paidRoutes.map(
              (route) =>
                html`<div><code>${route.method} ${route.path}${route.tool === undefined ? '' : ` ${route.tool}`}</code> ${usd(route.price)}</div>`,
            ),
      ],
      ['Compatibility', found.compatibilityDate],
      ['Debt', usd(usage.debtUsd)],
    ])}</section>
<div>${
      isLiving && view.session.role === 'operator'
        ? html`<section class="card"><h2>Decide</h2>${decisions(view, found, path, here, isBuiltin)}</section>`
        : ''
    }
<section class="card"><h2>Note for operators</h2>
${found.note ? html`<pre>${found.note}</pre>` : html`<p class="soft">None.</p>`}
${act({
  ...{ session: view.session, method: 'PUT', path: `${path}/note`, back: here, button: 'Keep the note', look: 'quiet' },
  fields: html`<label class="field">Note<span class="hint">The owner does not see it. Empty: none.</span><textarea name="text.note" rows="3" maxlength="2000">${found.note ?? ''}</textarea></label>`,
})}</section></div></div>
<div class="row spread"><h2>Traffic</h2>${choices('Time', here, query, 'range', RANGE_NAMES, range)}</div>
<p class="soft">Of the minutes in which it was one of the busiest eight of this host.</p>
<div class="cards wide">${chart({
      ...{ id: 'traffic', title: 'Requests', at: history.points.map(({ at }) => at), format: count, isWhole: true },
      series: [
        { name: 'all', values: history.points.map(({ requests }) => requests) },
        { name: '5xx', look: 'bad', values: history.points.map(({ errors }) => errors) },
      ],
    })}
<section class="card"><h2>Usage by day</h2>${table(
      'Usage by day',
      [
        { name: 'Day' },
        { name: 'Requests', number: true },
        { name: 'Failed', number: true },
        { name: 'In', number: true },
        { name: 'Out', number: true },
        { name: 'CPU', number: true },
      ],
      usage.days
        .toReversed()
        .map((one) => [
          one.day,
          count(one.requests),
          count(one.errors),
          fileSize(one.bytesIn),
          fileSize(one.bytesOut),
          `${(one.cpuMs / 1_000).toFixed(1)} s`,
        ]),
      'It was not used in 30 days.',
    )}<h3>Stored now</h3>${json(Object.fromEntries(Object.entries(usage.storage).map(([name, value]) => [name, name.endsWith('Bytes') ? fileSize(value) : count(value)])))}</section></div>
<h2 id="log">Log</h2><p class="soft small" id="log-state" role="status">Opens when scripts run.</p>
<div class="log" data-follow="${BASE}/api${path}/logs?limit=200" data-state="log-state" tabindex="0" role="log" aria-label="Log of ${found.slug}" aria-live="off"></div>
<div class="cards wide"><section class="card"><h2>Revenue</h2>${table(
      'Revenue',
      [
        { name: 'Day' },
        { name: 'Route' },
        { name: 'Payments', number: true },
        { name: 'Charged', number: true },
        { name: 'Fee', number: true },
      ],
      usage.revenue
        .toReversed()
        .slice(0, 50)
        .map((one) => [
          one.day,
          html`<code>${one.route}</code>`,
          count(one.payments),
          usd(one.grossUsd),
          usd(one.feeUsd),
        ]),
      'It sold nothing in 30 days.',
    )}</section>
<section class="card"><h2>Versions</h2>${table(
      'Versions',
      [{ name: 'Version' }, { name: 'Made' }, { name: 'Size', number: true }, { name: 'Note' }],
      versions.versions.map((one) => [
        html`${one.version} ${one.version === versions.current ? html`<span class="badge good">live</span>` : ''}`,
        time(one.createdAt),
        fileSize(one.bytes),
        html`${one.note} <span class="soft small">${one.codeDigest.slice(0, 15)}…</span>`,
      ]),
    )}</section></div>
${isLiving ? limitsPart(view, limits, path, here) : ''}`;
  },
};

function decisions({ session }: View, found: Metadata, path: string, back: string, isBuiltin: boolean): Part {
  if (isBuiltin)
    return html`<p class="soft">It comes with the host: leave it out of <code>builtinTenants.enabled</code> and start the host again.</p>`;
  const of = { session, back };
  return html`${
    found.suspended
      ? act({ ...of, method: 'POST', path: `${path}/resume`, button: 'Let it serve again' })
      : html`<details><summary>Suspend</summary><p>Callers get 403 with the reason at once, and its instance is stopped. Its days, domains and data stay.</p>
${act({
  ...{ ...of, method: 'POST', path: `${path}/suspend`, button: 'Suspend it', look: 'danger' },
  fields: html`<label class="field">Reason<span class="hint">Callers and the owner are told.</span><input name="text.reason" required maxlength="500"></label>`,
})}</details>`
  }
<details><summary>Give days</summary><p>As a renewal that nobody pays for.</p>
${act({
  ...{ ...of, method: 'POST', path: `${path}/extend`, button: 'Give them' },
  fields: html`<label class="field">Days<input name="number.days" type="number" min="1" max="3650" value="30" required class="short"></label>`,
})}</details>
<details><summary>Decommission</summary><p>Its address answers 410 at once, and its data goes after the days of grace. Nobody brings it back.</p>
${act({ ...of, method: 'DELETE', path, button: 'Decommission it', look: 'danger', expected: found.slug })}</details>`;
}

function limitsPart({ session }: View, { limits }: Limits, path: string, back: string): Part {
  return html`<h2>Limits</h2><section class="card">${table(
    'Limits in force',
    [{ name: 'Limit' }, { name: 'Value', number: true }, { name: 'Set by' }],
    Object.entries(limits).map(([name, { value, source }]) => [
      html`<code>${name}</code>`,
      count(value),
      source === 'operator' ? html`<span class="badge accent">operator</span>` : 'setting',
    ]),
  )}
${
  session.role === 'reader'
    ? ''
    : html`<details><summary>Change limits</summary>
${act({
  ...{ session, method: 'PUT', path: `${path}/limits`, back, button: 'Set these' },
  fields: html`<p>What is left empty stays. A running instance is replaced without a failed request.</p><div class="fields">${Object.entries(
    limits,
  ).map(
    ([name, { value }]) =>
      html`<label class="field">${name}<input name="number.${name}" type="number" min="0" placeholder="${value}"></label>`,
  )}</div>`,
})}
${act({ session, method: 'DELETE', path: `${path}/limits`, back, button: 'Take all of its own back', look: 'quiet' })}</details>`
}</section>`;
}
