/** The mandate of a wallet on the account's page: its limits, what was drawn, and the button that ends it. */
import { html } from '../../../kit/look/layout.ts';
import type { Account } from '../accounts/accounts.ts';
import { dayOf } from '../day.ts';
import type { TopUpView } from '../topup/mandates.ts';
import { csrfField } from './layout.ts';
import type { Visitor } from './visitor.ts';

const STATES: Record<string, string> = { begun: 'under way', paid: 'paid', failed: 'failed' };
export const WHY: Record<string, string> = {
  funds: 'the wallet holds too little',
  limit: 'the limit of the mandate is reached',
  revoked: 'the wallet has revoked the mandate',
  expired: 'the mandate has run out',
  ended: 'the mandate was ended',
  refused: 'the payment was refused',
};

/** @param address where programs ask for a mandate */
export function autoTopUpSection(visitor: Visitor, account: Account, { mandate, draws }: TopUpView, address: string) {
  return html`<section class="card" id="auto-topup">
  <h2>Automatic top-up</h2>
  ${
    mandate === null
      ? html`<p class="soft">Off. A wallet on Tempo can sign once that credit is bought when it falls below an amount, up to a limit and until a date. A program that has the wallet asks for it at <code>${address}</code>.</p>`
      : html`<dl class="figures">
    <div><dt>Buys</dt><dd>$${mandate.amountUsd}</dd></div>
    <div><dt>When credit is below</dt><dd>$${mandate.belowUsd}</dd></div>
    <div><dt>Drawn of at most, in ${mandate.everyDays} days</dt><dd>$${mandate.drawnUsd} <span class="soft">of $${mandate.limitUsd}</span></dd></div>
    <div><dt>Until</dt><dd>${dayOf(mandate.until)}</dd></div>
  </dl>
  <p class="soft">From the wallet <code>${mandate.wallet}</code>, by its key <code>${mandate.key}</code>, which the wallet can revoke, too.</p>
  <form method="post" action="/dashboard/auto-topup/end" class="row">${csrfField(visitor)}
    <input type="hidden" name="account" value="${account.id}">
    <button class="quiet small">End it now</button></form>`
  }
  ${
    draws.length === 0
      ? ''
      : html`<table class="stack"><thead><tr><th>When (UTC)</th><th>State</th><th>Draw</th><th class="number">USD</th></tr></thead><tbody>
  ${draws
    .slice(0, 10)
    .map(
      ({ id, at, state, why, amountUsd }) =>
        html`<tr><td data-label="When (UTC)" class="nowrap">${at.slice(0, 16).replace('T', ' ')}</td><td data-label="State"><span>${STATES[state] ?? state}${why === null ? '' : `: ${WHY[why] ?? why}`}</span></td><td data-label="Draw"><code>${id}</code></td><td data-label="USD" class="number">${amountUsd}</td></tr>`,
    )}
  </tbody></table>`
  }
</section>`;
}
