/** GET /docs: the endpoint table as a page. */
import { html, type Place } from '../../../builtin-tenants/kit/look/layout.ts';
import { BINDINGS } from '../../bindings/index.ts';
import { formatUsd } from '../../shared/money.ts';
import { bodyFields, type Endpoint } from '../endpoint.ts';
import { htmlPage, type Page, prose } from './page.ts';
import { type ClientNetwork, mppxExample, x402Example } from './stock-clients.ts';

export interface DocsDeps {
  endpoints: Endpoint[];
  publicUrl: string;
  network: ClientNetwork;
  places: readonly Place[];
}

export function docsPage({ endpoints, publicUrl, network, places }: DocsDeps): Page {
  const x402 = x402Example(publicUrl, network);
  return {
    path: '/docs',
    render: () =>
      htmlPage(places, {
        title: 'Docs',
        at: 'Docs',
        width: 'read',
        main: html`<h1>Endpoints</h1>
<p>JSON in, JSON out. Errors are problem documents with a stable <code>code</code>. Paid endpoints answer 402 first; pay with any MPP or x402 client and send the request again with the credential.</p>
<h2>Paying</h2>
<pre>${mppxExample(publicUrl, network)}</pre>
${x402 === undefined ? '' : html`<pre>${x402}</pre>`}
${endpoints.map((endpoint) => section(endpoint))}
<h2>Your handler</h2>
<p>It answers at <code>${publicUrl}/&lt;slug&gt;/…</code> with the path after the slug, at <code>&lt;slug&gt;.&lt;base domain&gt;</code>, and at your own domains.
<code>env</code> holds your secrets, and ${bindingNames()} where you asked for them.</p>`,
      }),
  };
}

function section(endpoint: Endpoint) {
  const cost =
    endpoint.access === 'paid' && endpoint.price !== undefined
      ? `${formatUsd(endpoint.price)} USD`
      : endpoint.access === 'owner'
        ? 'owner'
        : 'free';
  return html`<h2><code>${endpoint.method} ${endpoint.path}</code> <span class="badge">${cost}</span></h2>
<p>${prose(endpoint.description)}</p>
${fieldTable(endpoint)}<table><tbody>${Object.entries(endpoint.responses).map(
    ([status, text]) => html`<tr><td>${status}</td><td>${prose(text)}</td></tr>`,
  )}</tbody></table>`;
}

function fieldTable(endpoint: Endpoint) {
  const rows = bodyFields(endpoint).map(
    ({ name, description }) => html`<tr><td><code>${name}</code></td><td>${prose(description)}</td></tr>`,
  );
  return rows.length === 0
    ? ''
    : html`<h3>Fields of the body</h3>\n<table><tbody>${rows}</tbody></table>\n<h3>Answers</h3>\n`;
}

/** `STORE (KV), … and PAYMENTS` */
function bindingNames() {
  const names = BINDINGS.flatMap(({ env, title }) =>
    env ? [html`<code>${env}</code>${title ? ` (${title})` : ''}`] : [],
  );
  return names.map((name, index) =>
    index === 0 ? name : index === names.length - 1 ? html` and ${name}` : html`, ${name}`,
  );
}
