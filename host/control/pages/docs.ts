/** GET /docs: the endpoint table as a page. */
import { BINDINGS } from '../../bindings/index.ts';
import { formatUsd } from '../../shared/money.ts';
import { bodyFields, type Endpoint } from '../endpoint.ts';
import { escapeHtml, htmlPage, type Page } from './page.ts';
import { type ClientNetwork, mppxExample, x402Example } from './stock-clients.ts';

export function docsPage(endpoints: Endpoint[], publicUrl: string, network: ClientNetwork): Page {
  const x402 = x402Example(publicUrl, network);
  return {
    path: '/docs',
    render: () =>
      htmlPage(
        'Turnpike: endpoints',
        `<h1>Endpoints</h1>
<p>JSON in, JSON out. Errors are problem documents with a stable <code>code</code>. Paid endpoints answer 402 first; pay with any MPP or x402 client and send the request again with the credential.</p>
<h2>Paying</h2>
<pre>${escapeHtml(mppxExample(publicUrl, network))}</pre>
${x402 === undefined ? '' : `<pre>${escapeHtml(x402)}</pre>`}
${endpoints.map((endpoint) => section(endpoint)).join('\n')}
<h2>Your handler</h2>
<p>It answers at <code>${escapeHtml(publicUrl)}/&lt;slug&gt;/…</code> with the path after the slug, at <code>&lt;slug&gt;.&lt;base domain&gt;</code>, and at your own domains.
<code>env</code> holds your secrets, and ${bindingNames()} where you asked for them.</p>
<p><a href="/">Back</a></p>`,
      ),
  };
}

function section(endpoint: Endpoint): string {
  const cost =
    endpoint.access === 'paid' && endpoint.price !== undefined
      ? `${formatUsd(endpoint.price)} USD`
      : endpoint.access === 'owner'
        ? 'owner'
        : 'free';
  const rows = Object.entries(endpoint.responses)
    .map(([status, text]) => `<tr><td>${escapeHtml(status)}</td><td>${prose(text)}</td></tr>`)
    .join('');
  return `<h2><code>${endpoint.method} ${escapeHtml(endpoint.path)}</code> <span class="tag">${cost}</span></h2>
<p>${prose(endpoint.description)}</p>
${fieldTable(endpoint)}<table>${rows}</table>`;
}

function fieldTable(endpoint: Endpoint): string {
  const rows = bodyFields(endpoint).map(
    ({ name, description }) => `<tr><td><code>${escapeHtml(name)}</code></td><td>${prose(description)}</td></tr>`,
  );
  return rows.length === 0 ? '' : `<h3>Fields of the body</h3>\n<table>${rows.join('')}</table>\n<h3>Answers</h3>\n`;
}

/** `STORE (KV), … and PAYMENTS` */
function bindingNames(): string {
  const names = BINDINGS.flatMap(({ env, title }) => (env ? [`<code>${env}</code>${title ? ` (${title})` : ''}`] : []));
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}

/** Text of the endpoint table, in which backticks mark code. */
function prose(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, '<code>$1</code>');
}
