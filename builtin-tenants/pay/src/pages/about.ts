/** What the platform is, what it sells and at which prices, and how to begin: for who is not signed in yet, too. */
import { html } from '../../../kit/look/layout.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Sold } from '../catalog.ts';
import { type Frame, page } from './layout.ts';

export interface AboutFacts {
  /** What is sold, by service. */
  sold: readonly Sold[];
  /** Address of the API. */
  payUrl: string;
  /** micro-USD that a person's first account starts with; undefined: none. */
  bonus: { amount: number; days: number | undefined } | undefined;
  testMoney: boolean;
}

export function aboutPage(frame: Frame, { sold, payUrl, bonus, testMoney }: AboutFacts) {
  const { human } = frame.visitor;
  const main = html`<h1>One balance for paid APIs</h1>
<p class="lead">Services here are paid per call. Pay each call from a wallet, without an account; or keep credit in an account, and let programs and agents use it, each with a credential of its own that you can revoke.</p>
<p class="row">${
    human
      ? html`<a class="button" href="/dashboard">Go to your account</a>`
      : html`<a class="button" href="/sign-up">Open an account</a><a class="button quiet" href="/sign-in">Sign in</a>`
  }</p>
${testMoney ? html`<p class="note warn">Test money: credit here is worth nothing.</p>` : ''}
${bonus ? html`<p class="note good">A new account starts with $${formatUsd(bonus.amount)}${bonus.days === undefined ? '' : `, good for ${bonus.days} days once the e-mail address is confirmed`}.</p>` : ''}
<h2>What is sold</h2>
${
  sold.length === 0
    ? html`<p class="soft">Nothing yet.</p>`
    : html`<table class="stack"><thead><tr><th>Service</th><th>What</th><th class="number">Price</th></tr></thead><tbody>
${sold.map(
  ({ name, description, price, creditOnly }) =>
    html`<tr><td data-label="Service">${name}</td><td data-label="What"><span>${description}</span></td><td data-label="Price" class="number">$${formatUsd(price)}${creditOnly ? ' from credit' : ''}</td></tr>`,
)}
</tbody></table>`
}
<h2>How it works</h2>
<ul class="cards">
<li class="card"><h3>Per call</h3><p>An unpaid call is answered 402 with its price, in MPP and x402. Any client of either pays from a wallet and calls again. What fails costs nothing.</p></li>
<li class="card"><h3>From credit</h3><p>Credit is bought in advance from a wallet. Each movement is on the statement, and can be taken along as CSV.</p></li>
<li class="card"><h3>Programs and agents</h3><p>A program asks for a code; you confirm it here. An agent opens an account by itself; you can take it over later.</p></li>
</ul>
<h2>Begin from a terminal</h2>
<pre>turnpike account register
turnpike account topup 5.00 --max-pay 5.00
turnpike account balance</pre>
<p class="soft">A program showed you a code? <a href="/device">Enter it here</a>. For programs, everything is in <a href="${payUrl}/llms.txt">llms.txt</a>.</p>`;
  return page('Pay', frame, main, { at: 'Overview', heading: false });
}
