/** GET /: what this host is, how to deploy in a minute. */
import { html, type Place } from '../../../builtin-tenants/kit/look/layout.ts';
import type { Payments } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import type { Builtin } from '../builtins.ts';
import { htmlPage, type Page } from './page.ts';
import { type ClientNetwork, mppxExample } from './stock-clients.ts';

export interface LandingDeps {
  payments: Payments;
  publicUrl: string;
  price: string;
  termDays: number;
  network: ClientNetwork;
  deployments: Deployments;
  builtins: readonly Builtin[];
  places: readonly Place[];
}

export function landingPage({
  payments,
  deployments,
  builtins,
  publicUrl,
  price,
  termDays,
  network,
  places,
}: LandingDeps): Page {
  return {
    path: '/',
    render: async () => {
      const on = await deployments.builtin();
      const services = builtins.filter(({ name }) => on.includes(name));
      const { testMoney } = payments.status();
      const main = html`<h1>Turnpike</h1>
<p class="lead">Pay ${price} USD over HTTP 402, deploy a JavaScript or TypeScript handler, and it is live at <code>${publicUrl}/&lt;slug&gt;/</code> for ${termDays} days.
No account: your wallet is your identity. Put a price on your own routes and any MPP or x402 client can pay you.</p>
${testMoney ? html`<p class="note warn">This host runs on the <b>${network.name}</b> network: test money, worth nothing.</p>` : html`<p class="soft">Payments on ${network.name}.</p>`}
<h2>Deploy</h2>
<pre>${mppxExample(publicUrl, network)}</pre>
<h2>Read on</h2>
<table><tbody>
<tr><td><a href="/docs">/docs</a></td><td>every endpoint</td></tr>
<tr><td><a href="/llms.txt">/llms.txt</a></td><td>the same for agents, with commands to copy</td></tr>
<tr><td><a href="/openapi.json">/openapi.json</a></td><td>the same for machines (OpenAPI 3.1 with payment information)</td></tr>
<tr><td><a href="/healthz">/healthz</a></td><td>is it well</td></tr>
</tbody></table>
${
  services.length === 0
    ? ''
    : html`<h2>Services on this host</h2>
<ul class="cards">${services.map(({ name, asks }) => html`<li><a class="card" href="/${name}/"><h3>${asks.title}</h3><p>${asks.description}</p></a></li>`)}</ul>`
}`;
      return htmlPage(places, { title: 'Turnpike', at: 'Turnpike', main });
    },
  };
}
