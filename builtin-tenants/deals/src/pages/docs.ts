/** The documentation for people, from the same table of operations as everything else. */
import { html } from '../../../kit/look/layout.ts';
import { type JsonSchema, OPERATIONS, type Operation, priceText } from '../http/operations.ts';
import { type Html, page, type Site } from './layout.ts';
import type { Addresses } from './texts.ts';

export function docsPage(site: Site, where: Addresses) {
  const { prefix } = site;
  return page(
    'Docs',
    site,
    'Docs',
    html`<h1>Docs</h1>
<p class="lead">All operations are called through the pay platform at <code>${where.pay}</code>. Calls of this address
itself are refused: only the platform may forward them.</p>
<h2>How a call is paid</h2>
<ol>
<li>Call the operation. An acceptable call is answered 402 with its price, per MPP (<code>WWW-Authenticate: Payment</code>) and x402 (<code>PAYMENT-REQUIRED</code>).</li>
<li>Your client pays and repeats the call. Any stock client of MPP or x402 does.</li>
<li>The answer comes with a receipt. What fails costs nothing.</li>
</ol>
<p>Watches are paid from prepaid credit of an account: see <a href="${prefix}/auth.md">accounts and credit</a>.</p>
<h2>Operations</h2>
${OPERATIONS.map((operation) => operationSection(operation, where))}
<h2>What a deal is</h2>
<p>An offer is a merchant’s product (GTIN, SKU or address) in one variant, condition, region and currency. Its reference price
is the lowest that was observed in the 30 days before the price dropped; under 14 observed days there is none, and no deal.
A failed or blocked reading never changes a price. Money is in integer minor units: <code>{"minor": 1250, "currency": "EUR",
"exponent": 2}</code> is 12.50 EUR.</p>
<h2>What a watch tells</h2>
<p><code>enter</code> a deal matches, <code>drop</code> and <code>rise</code> its price moved by at least
<code>min_change_bps</code>, <code>new_low</code> it is below everything that the watch saw, <code>restock</code> it can be had
again, <code>expire</code> it matches no more. <code>confirm</code> evaluations in a row must agree before a deal enters or
expires, and after it left, <code>rearm</code> evaluations must pass before it enters again. Webhooks are signed as Standard Webhooks say,
repeated until they are answered 2xx for about three days, and ended by 410.</p>
<h2 id="contact">Contact</h2>
<p>Whoever runs this host answers for its sources. Reports about security go to them.</p>`,
  );
}

function operationSection(operation: Operation, where: Addresses): Html {
  const { method, path, summary, description, parameters, example, body } = operation;
  return html`<section class="card" id="${operation.id}">
<h3><code>${method} ${path}</code> <span class="badge">${priceText(operation)}</span></h3>
<p><strong>${summary}.</strong> ${description}</p>
${
  parameters.length === 0
    ? ''
    : html`<table class="stack"><thead><tr><th>Parameter</th><th>Takes</th><th>Meaning</th></tr></thead><tbody>
${parameters.map((one) => html`<tr><td data-label="Parameter"><code>${one.name}</code></td><td data-label="Takes">${kindOf(one.schema)}</td><td data-label="Meaning"><span>${one.description}</span></td></tr>`)}
</tbody></table>`
}
<pre><code>${method} ${where.pay}${example.path}${
    body
      ? html`

${JSON.stringify(example.body, null, 2)}`
      : ''
  }</code></pre>
</section>`;
}

function kindOf(schema: JsonSchema): string {
  if (Array.isArray(schema.enum)) return schema.enum.join(', ');
  if (schema.format === 'date-time') return 'time (ISO 8601)';
  if (schema.type === 'integer' && typeof schema.minimum === 'number')
    return typeof schema.maximum === 'number' ? `${schema.minimum} to ${schema.maximum}` : `from ${schema.minimum}`;
  return schema.type === 'boolean' ? 'true, false' : schema.type === 'integer' ? 'integer' : 'text';
}
