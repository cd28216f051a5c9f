/** Wallets and address ranges that the host does not serve. */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import { act, type ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { table, time } from '../words.ts';

interface Blocks {
  blocks: { subject: string; kind: string; reason: string | null; createdAt: string }[];
}

export const blocksPage: ConsolePage = {
  path: '/blocks',
  place: 'Blocks',
  title: () => 'Blocks',
  async render({ ask, session }) {
    const { blocks } = await ask<Blocks>('/blocks');
    const back = `${BASE}/blocks`;
    return html`<h1>Blocks</h1>
<p>A blocked wallet can neither deploy, renew, update nor pay. Every request from a blocked address is refused with 403.</p>
<section class="card">${table(
      'What is blocked',
      [{ name: 'Subject' }, { name: 'Kind' }, { name: 'Reason' }, { name: 'Since' }, { name: 'Decide' }],
      blocks.map((one) => [
        html`<code>${one.subject}</code>`,
        one.kind,
        one.reason ?? '',
        time(one.createdAt),
        act({
          session,
          method: 'DELETE',
          path: `/blocks/${encodeURIComponent(one.subject)}`,
          back,
          button: `Serve again`,
          look: 'quiet small',
        }),
      ]),
      'Nobody is blocked.',
    )}</section>
${
  session.role === 'reader'
    ? ''
    : html`<section class="card"><h2>Block</h2>${act({
        ...{ session, method: 'POST', path: '/blocks', back, button: 'Block', look: 'danger' },
        fields: html`<label class="field">Wallet, address or range<span class="hint">0x…, or 203.0.113.0/24</span><input name="text.subject" required maxlength="100" spellcheck="false"></label>
<label class="field">Reason<span class="hint">For operators alone.</span><input name="optional.reason" maxlength="500"></label>`,
      })}</section>`
}`;
  },
};
