/** What the operators did. */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import type { ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { table, time } from '../words.ts';

interface Audit {
  entries: {
    id: number;
    systemAt: string;
    act: string;
    subject: string | null;
    parameters: Record<string, unknown>;
    reason: string | null;
    address: string;
    role: string;
    outcome: number | null;
  }[];
  next: number | null;
}

export const auditPage: ConsolePage = {
  path: '/audit',
  place: 'Audit log',
  title: () => 'Audit log',
  async render({ ask, query }) {
    const slug = (query.get('slug') ?? '').slice(0, 100);
    const before = query.get('before') ?? '';
    const search = new URLSearchParams({
      limit: '50',
      ...(slug ? { slug } : {}),
      ...(/^\d+$/.test(before) ? { before } : {}),
    });
    const { entries, next } = await ask<Audit>(`/audit?${search}`);
    const older = new URLSearchParams({ slug, before: String(next) });
    return html`<h1>Audit log</h1>
<form method="get" action="${BASE}/audit" class="row end"><label>About<input name="slug" value="${slug}" class="short" placeholder="slug or subject" maxlength="100"></label><button class="quiet">Show</button></form>
<section class="card">${table(
      'Acts, newest first',
      [{ name: 'When' }, { name: 'Act' }, { name: 'About' }, { name: 'From' }, { name: 'Outcome' }, { name: 'With' }],
      entries.map((one) => [
        time(one.systemAt),
        html`<code>${one.act}</code>`,
        one.subject ?? '',
        html`<span class="address">${one.address}</span>${one.role === 'reader' ? html` <span class="badge">read-only</span>` : ''}`,
        one.outcome === null
          ? html`<span class="badge warn">cut off</span>`
          : html`<span class="badge ${one.outcome < 400 ? 'good' : 'bad'}">${one.outcome}</span>`,
        html`${one.reason ?? ''} ${Object.keys(one.parameters).length === 0 ? '' : html`<code>${JSON.stringify(one.parameters).slice(0, 300)}</code>`}`,
      ]),
      'Nothing was done yet.',
    )}</section>
${next === null ? '' : html`<p><a class="button quiet small" href="${BASE}/audit?${older.toString()}">Older ones</a></p>`}`;
  },
};
