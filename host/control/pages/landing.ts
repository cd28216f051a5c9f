/** GET /: what this host is, what can be earned and bought here, how to deploy in a minute. */
import { html, type Place, tabs } from '../../../builtin-tenants/kit/look/layout.ts';
import { BINDINGS } from '../../bindings/index.ts';
import type { Payments } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import { formatUsd, type Money, micro, parseUsd } from '../../shared/money.ts';
import type { Builtin } from '../builtins.ts';
import { COMMAND_PATH, htmlPage, type Page } from './page.ts';
import { type ClientNetwork, mppxExample, networksText, x402Example } from './stock-clients.ts';

export interface LandingDeps {
  payments: Payments;
  publicUrl: string;
  price: string;
  /** Share of the operator, 1/100 %. */
  feeBps: number;
  termDays: number;
  network: ClientNetwork;
  deployments: Deployments;
  builtins: readonly Builtin[];
  places: readonly Place[];
}

/** More is in llms.txt. */
const MOST_SELLERS = 40;
const MOST_OFFERS = 12;

interface ForSale {
  slug: string;
  method: string;
  path: string;
  tool?: string;
  price: string;
  mode?: string;
  description?: string;
}

export function landingPage(deps: LandingDeps): Page {
  return {
    path: '/',
    render: async () => {
      const { builtins, deployments, places } = deps;
      const on = await deployments.builtin();
      const services = builtins.filter(({ name }) => on.includes(name));
      const selling = await deployments.selling(MOST_SELLERS);
      const offers = selling.flatMap(({ slug, paidRoutes }) =>
        paidRoutes.map((route): ForSale => ({ slug, ...(route as Omit<ForSale, 'slug'>) })),
      );
      return htmlPage(places, {
        title: 'Turnpike',
        at: 'Turnpike',
        description: 'Deploy an HTTP handler with a wallet, and be paid for each call of it.',
        main: mainOf(deps, services, offers),
      });
    },
  };
}

function mainOf(deps: LandingDeps, services: readonly Builtin[], offers: readonly ForSale[]) {
  const { payments, publicUrl, price, feeBps, termDays, network } = deps;
  const { testMoney } = payments.status();
  return html`<h1>Deploy a handler. Be paid for each call.</h1>
<p class="lead">Your JavaScript or TypeScript runs at <code>${publicUrl}/&lt;slug&gt;/</code> for ${termDays} days for ${price} USD. Put a price on a route, and everybody with a wallet can buy it: people in a browser, programs, agents. No account and no invoice, on either side.</p>
<p class="row"><a class="button" href="#deploy">Deploy in a minute</a><a class="button quiet" href="/docs">Read the docs</a></p>
${testMoney ? html`<p class="note warn">This host runs on the <b>${networksText(network)}</b> network: test money, worth nothing.</p>` : html`<p class="soft">Payments are on ${networksText(network)}.</p>`}
<section class="card"><dl class="figures">
<div><dt>${termDays} days of hosting</dt><dd>${price} USD</dd></div>
<div><dt>Yours of each paid call</dt><dd>${share(feeBps)}</dd></div>
<div><dt>For calls that fail</dt><dd>0.00 USD</dd></div>
<div><dt>Accounts to open</dt><dd>none</dd></div>
</dl></section>
<h2>What you can earn</h2>
<p>One line gives a route its price. Who calls it without payment is told what it costs; who pays gets the answer, and the money goes to your wallet.</p>
<pre>turnpike deploy report.js --slug report --price "GET /daily=0.05" --yes</pre>
<table class="stack"><thead><tr><th>Price of a call</th><th class="number">100 calls a day</th><th class="number">1,000 calls a day</th><th class="number">10,000 calls a day</th></tr></thead><tbody>
${['0.001', '0.01', '0.05', '0.25'].map(
  (each) =>
    html`<tr><td data-label="Price of a call">${each} USD</td>${[100, 1_000, 10_000].map(
      (calls) =>
        html`<td class="number" data-label="${calls.toLocaleString('en')} calls a day">${monthly(each, calls, feeBps)} USD</td>`,
    )}</tr>`,
)}
</tbody></table>
<p class="soft small">In 30 days, after the ${feeBps === 0 ? 'host’s share, which is nothing here' : `host’s ${percent(feeBps)}`}; hosting is ${price} USD for ${termDays} days.</p>
${offersPart(offers, services)}
<h2 id="deploy">Deploy</h2>
${tabs('deploy', 'How to deploy', [
  {
    name: 'turnpike',
    body: html`<pre>npm install --global ${publicUrl}${COMMAND_PATH}
turnpike init my-api --template paid-api
cd my-api && turnpike deploy --yes --host-url ${publicUrl}</pre>`,
  },
  { name: 'mppx', body: html`<pre>${mppxExample(publicUrl, network)}</pre>` },
  ...(network.x402 ? [{ name: 'x402', body: html`<pre>${x402Example(publicUrl, network) ?? ''}</pre>` }] : []),
])}
<p>A project for Cloudflare Workers (<code>wrangler.jsonc</code>, <code>wrangler.toml</code>) deploys as it is; what this host does not have is named before anything is paid.</p>
<h2>What a handler gets</h2>
<ul class="cards">
<li class="card"><h3>A sandbox of its own</h3><p>Each deployment is a workerd process with no network and no file of the host, started on demand, ended when idle.</p></li>
<li class="card"><h3>Data</h3><p>${BINDINGS.flatMap(({ title }) => (title ? [title] : [])).join(', ')}, and static files. Backed up with the host.</p></li>
<li class="card"><h3>Your names</h3><p>A path, a subdomain, and your own domains with certificates.</p></li>
<li class="card"><h3>Time and versions</h3><p>Scheduled runs, previews at their own address, one command back to any earlier version.</p></li>
<li class="card"><h3>Sight</h3><p>Logs as they come, usage and revenue by day and route, every payment as CSV.</p></li>
<li class="card"><h3>Nobody to ask</h3><p>Your wallet is your identity: it deploys, updates, renews and deletes. Keys for CI move no money.</p></li>
</ul>
<h2>For programs</h2>
<table><tbody>
<tr><td><a href="/llms.txt">/llms.txt</a></td><td>everything in plain text, with commands to copy</td></tr>
<tr><td><code>/mcp</code></td><td>the same for agents: an MCP server whose tools deploy, update, renew, show logs and buy what is for sale here</td></tr>
<tr><td><a href="/openapi.json">/openapi.json</a></td><td>OpenAPI 3.1 with payment information</td></tr>
<tr><td><a href="/healthz">/healthz</a></td><td>is it well</td></tr>
</tbody></table>`;
}

function offersPart(offers: readonly ForSale[], services: readonly Builtin[]) {
  const names = new Set(services.map(({ name }) => name));
  const others = offers.filter(({ slug }) => !names.has(slug));
  return html`${
    services.length === 0
      ? ''
      : html`<h2>Services on this host</h2>
<ul class="cards">${services.map(({ name, asks }) => html`<li><a class="card" href="/${name}/"><h3>${asks.title}</h3><p>${sentence(asks.description)}</p></a></li>`)}</ul>`
  }${
    others.length === 0
      ? ''
      : html`<h2>For sale here</h2>
<table class="stack"><thead><tr><th>Call</th><th>What</th><th class="number">Price</th></tr></thead><tbody>
${others
  .slice(0, MOST_OFFERS)
  .map(
    ({ slug, method, path, tool, price, mode, description }) =>
      html`<tr><td data-label="Call">${callOf(slug, method, path)}${tool === undefined ? '' : html`, tool <code>${tool}</code>`}</td><td data-label="What">${(description ?? '').slice(0, 200)}</td><td data-label="Price" class="number">${mode === 'metered' ? 'at most ' : ''}${price} USD</td></tr>`,
  )}
</tbody></table>
${others.length > MOST_OFFERS ? html`<p class="soft small">All of them are in <a href="/llms.txt">llms.txt</a>.</p>` : ''}`
  }`;
}

/** A link where a browser can buy it. */
function callOf(slug: string, method: string, path: string) {
  const text = html`<code>${method} /${slug}${path}</code>`;
  return (method === 'GET' || method === '*') && !path.includes('*')
    ? html`<a href="/${slug}${path}">${text}</a>`
    : text;
}

function share(feeBps: number): string {
  return percent(10_000 - feeBps);
}

function percent(bps: number): string {
  return `${Number((bps / 100).toFixed(2))} %`;
}

/** What 30 days bring, whole USD from ten on. */
function monthly(price: string, calls: number, feeBps: number): string {
  const gross = (parseUsd(price) as bigint) * BigInt(calls) * 30n;
  const net = micro((gross * BigInt(10_000 - feeBps)) / 10_000n) as Money;
  const text = formatUsd(net);
  // What is whole needs no decimals, beside others that have none.
  return Number(text) >= 10 || /\.0+$/.test(text) ? Math.floor(Number(text)).toLocaleString('en') : text;
}

function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}
