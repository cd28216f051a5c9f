/** GET /docs: the endpoint table as a page, with contents, examples, and a search that is a small script. */
import { readFileSync } from 'node:fs';
import { contentName, fileHeaders, html, type Place, tabs } from '../../../builtin-tenants/kit/look/layout.ts';
import { MPPX_COMMAND, MPPX_PACKAGES } from '../../../builtin-tenants/kit/stock-clients.ts';
import { BINDINGS } from '../../bindings/index.ts';
import { formatUsd } from '../../shared/money.ts';
import { bodyFields, type Endpoint } from '../endpoint.ts';
import { callsOf, exampleOf, javascriptSetUp } from './examples.ts';
import { COMMAND_PATH, htmlPage, type Page, prose } from './page.ts';
import { type ClientNetwork, mppxExample, x402Example } from './stock-clients.ts';

export interface DocsDeps {
  endpoints: Endpoint[];
  publicUrl: string;
  network: ClientNetwork;
  places: readonly Place[];
}

const SCRIPT = readFileSync(new URL('../../pages/search.js', import.meta.url), 'utf8');
const SCRIPT_PATH = `/${contentName('search', SCRIPT, 'js')}`;

/** The script of the search. */
export const searchScript: Page = {
  path: SCRIPT_PATH,
  render: () => new Response(SCRIPT, { headers: fileHeaders('text/javascript') }),
};

const OTHERS = 'More';

export function docsPage(deps: DocsDeps): Page {
  return {
    path: '/docs',
    render: () =>
      htmlPage(deps.places, {
        title: 'Docs',
        at: 'Docs',
        description: 'Every endpoint of this host, with examples.',
        scripts: [SCRIPT_PATH],
        main: mainOf(deps),
      }),
  };
}

function mainOf({ endpoints, publicUrl, network }: DocsDeps) {
  const groups = Map.groupBy(endpoints, (endpoint) => exampleOf(endpoint)?.group ?? OTHERS);
  const x402 = x402Example(publicUrl, network);
  const rpcUrl = network.name === 'local' ? network.mpp?.rpcUrl : undefined;
  return html`<div class="beside">
<aside class="toc" aria-label="Contents">
<label class="field" id="search" hidden>Search <input type="search" autocomplete="off" spellcheck="false"></label>
<p class="soft small" role="status" id="found"></p>
<nav aria-label="Contents">
<ul><li><a href="#start">Start</a></li><li><a href="#paying">Paying</a></li><li><a href="#proving">Proving who owns it</a></li><li><a href="#errors">Errors</a></li><li><a href="#handler">Your handler</a></li></ul>
${[...groups].map(
  ([group, list]) => html`<h2 class="small">${group}</h2>
<ul>${list.map((endpoint) => html`<li><a href="#${idOf(endpoint)}">${endpoint.summary}</a></li>`)}</ul>`,
)}
</nav>
</aside>
<div>
<section id="start" data-find><h1>Docs</h1>
<p class="lead">JSON in, JSON out. A wallet is the account: it pays, and what it paid for is its own.</p>
<p>For agents the same is in <a href="/llms.txt">llms.txt</a> and, as tools, at <code>/mcp</code> (MCP); for machines it is in <a href="/openapi.json">openapi.json</a>. The command line does all of it:</p>
<pre>npm install --global ${publicUrl}${COMMAND_PATH}
turnpike init my-api --template paid-api
cd my-api && turnpike deploy --yes --host-url ${publicUrl}</pre>
</section>
<section id="paying" data-find><h2>Paying</h2>
<p>A paid endpoint answers 402 first, with its price in two protocols: MPP in <code>WWW-Authenticate</code> and x402 in <code>PAYMENT-REQUIRED</code> (v1 of it in the body). Any client of either pays and sends the request again. The same payment sent again gets the same answer and is not charged again; what is refused costs nothing.</p>
${tabs('paying', 'Client', [
  { name: 'mppx', body: html`<pre>${mppxExample(publicUrl, network)}</pre>` },
  { name: 'JavaScript', body: html`<pre>${javascriptSetUp(MPPX_PACKAGES, rpcUrl)}</pre>` },
  ...(x402 === undefined ? [] : [{ name: 'x402', body: html`<pre>${x402}</pre>` }]),
])}
<p>The examples below that say <code>pay.fetch</code> begin with what is under “JavaScript”. In a browser, a 402 is a page with a button for a wallet.</p>
</section>
<section id="proving" data-find><h2>Proving who owns it</h2>
<p>Endpoints of the owner ask for a zero-amount proof by the wallet that paid: any MPP client signs it as it pays, and x402 clients sign in by <code>sign-in-with-x</code>. For a series of calls get a token once, good for one slug and 15 minutes, or make a <a href="#post-keys">deploy key</a> for CI.</p>
<pre>export TOKEN=$(${MPPX_COMMAND} ${publicUrl}/_admin/session/hello -X POST | jq -r .token)</pre>
</section>
<section id="errors" data-find><h2>Errors</h2>
<p>Problem documents (RFC 9457) with a stable <code>code</code>, a <code>detail</code> that says what to do next, and <code>requestId</code>. Retries that sign anew send an <code>Idempotency-Key</code>, or the same x402 <code>payment-identifier</code>.</p>
</section>
<section id="handler" data-find><h2>Your handler</h2>
<p>It answers at <code>${publicUrl}/&lt;slug&gt;/…</code> with the path after the slug, at <code>&lt;slug&gt;.&lt;base domain&gt;</code>, and at your own domains.
<code>env</code> holds your secrets, and ${bindingNames()} where you asked for them.</p>
</section>
${[...groups].map(
  ([group, list]) => html`<h2>${group}</h2>
${list.map((endpoint) => section(endpoint, publicUrl))}`,
)}
</div>
</div>`;
}

function section(endpoint: Endpoint, publicUrl: string) {
  const { method, path, access, price, keyActions, summary, description, responses } = endpoint;
  const cost =
    access === 'paid' && price !== undefined
      ? html`<span class="badge accent">${formatUsd(price)} USD</span>`
      : access === 'owner'
        ? html`<span class="badge">owner${keyActions ? ` or key: ${keyActions.join(', ')}` : ''}</span>`
        : html`<span class="badge good">free</span>`;
  const example = exampleOf(endpoint);
  const fields = bodyFields(endpoint);
  const id = idOf(endpoint);
  return html`<section class="card" id="${id}" data-find>
<h3>${summary}</h3>
<p class="row"><code>${method} ${path}</code>${cost}</p>
<p>${prose(description)}</p>
${
  example
    ? tabs(
        `example-${id}`,
        `Example of ${summary}`,
        callsOf(endpoint, example, publicUrl).map(({ name, text }) => ({ name, body: html`<pre>${text}</pre>` })),
      )
    : ''
}
${
  fields.length === 0
    ? ''
    : html`<details><summary>Fields of the body</summary><table class="stack"><thead><tr><th>Field</th><th>What it holds</th></tr></thead><tbody>
${fields.map(({ name, description: text }) => html`<tr><td data-label="Field"><code>${name}</code></td><td data-label="What"><span>${prose(text)}</span></td></tr>`)}
</tbody></table></details>`
}
<details><summary>Answers</summary><dl class="facts">${Object.entries(responses).map(
    ([status, text]) => html`<dt>${status}</dt><dd>${prose(text)}</dd>`,
  )}</dl></details>
</section>`;
}

/** `post-keys`, `get-slug-data-binding-value` */
function idOf({ method, path }: Endpoint): string {
  return `${method} ${path}`
    .toLowerCase()
    .replace('_admin', '')
    .replace(/[^a-z0-9]+/g, '-');
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
