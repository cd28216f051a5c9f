/** Domains of tenants, and certificates. */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import type { ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { state, table, time } from '../words.ts';

interface Domains {
  domains: {
    domain: string;
    slug: string | null;
    state: string;
    reason: string | null;
    verifiedAt: string | null;
    checkedAt: string | null;
    failingSince: string | null;
  }[];
}
interface Certificates {
  mode: string;
  certificates: { names: string[]; validTo: string | null; reason: string | null }[];
}

export const domainsPage: ConsolePage = {
  path: '/domains',
  place: 'Domains',
  title: () => 'Domains and certificates',
  async render({ ask, now }) {
    const [{ domains }, { mode, certificates }] = await Promise.all([
      ask<Domains>('/domains'),
      ask<Certificates>('/certificates'),
    ]);
    return html`<h1>Domains and certificates</h1><section class="card"><h2>Domains</h2>
${table(
  'Domains of tenants',
  [
    { name: 'Domain' },
    { name: 'Tenant' },
    { name: 'State' },
    { name: 'Verified' },
    { name: 'Looked at' },
    { name: 'Reason' },
  ],
  domains.map((one) => [
    one.domain,
    one.slug === null ? '–' : html`<a href="${BASE}/tenants/${encodeURIComponent(one.slug)}">${one.slug}</a>`,
    state(one.failingSince ? 'degraded' : one.state),
    time(one.verifiedAt),
    time(one.checkedAt),
    one.reason ?? '',
  ]),
  'No tenant has a domain of its own.',
)}
</section>
<section class="card"><h2>Certificates</h2>
${mode === 'off' ? html`<p class="soft">A proxy in front of this host ends TLS (<code>tls.mode</code> is off).</p>` : ''}
${
  mode === 'off'
    ? ''
    : table(
        'Certificates',
        [{ name: 'Names' }, { name: 'Good until' }, { name: 'State' }, { name: 'Reason' }],
        certificates.map((one) => [
          one.names.join(', '),
          time(one.validTo),
          state(one.validTo === null ? 'bad' : Date.parse(one.validTo) > now ? 'active' : 'expired'),
          one.reason ?? '',
        ]),
      )
}</section>`;
  },
};
