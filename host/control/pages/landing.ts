/** GET /: what this host is, how to deploy in a minute. */
import type { Payments } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import type { Builtin } from '../builtins.ts';
import { escapeHtml, htmlPage, type Page } from './page.ts';
import { type ClientNetwork, mppxExample } from './stock-clients.ts';

export interface LandingDeps {
  payments: Payments;
  publicUrl: string;
  price: string;
  termDays: number;
  network: ClientNetwork;
  deployments: Deployments;
  builtins: readonly Builtin[];
}

export function landingPage({
  payments,
  deployments,
  builtins,
  publicUrl,
  price,
  termDays,
  network,
}: LandingDeps): Page {
  return {
    path: '/',
    render: async () => {
      const builtin = await deployments.builtin();
      const about = (slug: string) => builtins.find(({ name }) => name === slug)?.asks.description ?? '';
      const { testMoney } = payments.status();
      const url = escapeHtml(publicUrl);
      return htmlPage(
        'Turnpike',
        `<h1>Turnpike</h1>
<p>Pay ${escapeHtml(price)} USD over HTTP 402, deploy a JavaScript or TypeScript handler, and it is live at <code>${url}/&lt;slug&gt;/</code> for ${termDays} days.
No account: your wallet is your identity. Put a price on your own routes and any MPP or x402 client can pay you.</p>
${testMoney ? `<p class="note">This host runs on the <b>${escapeHtml(network.name)}</b> network: test money, worth nothing.</p>` : `<p class="muted">Payments on ${escapeHtml(network.name)}.</p>`}
<h2>Deploy</h2>
<pre>${escapeHtml(mppxExample(publicUrl, network))}</pre>
<h2>Read on</h2>
<table>
<tr><td><a href="/docs">/docs</a></td><td>every endpoint</td></tr>
<tr><td><a href="/llms.txt">/llms.txt</a></td><td>the same for agents, with commands to copy</td></tr>
<tr><td><a href="/openapi.json">/openapi.json</a></td><td>the same for machines (OpenAPI 3.1 with payment information)</td></tr>
<tr><td><a href="/healthz">/healthz</a></td><td>is it well</td></tr>
</table>
${builtin.length === 0 ? '' : `<h2>Services on this host</h2><table>${builtin.map((slug) => `<tr><td><a href="/${escapeHtml(slug)}/">/${escapeHtml(slug)}</a></td><td>${escapeHtml(about(slug))}</td></tr>`).join('\n')}</table>`}`,
      );
    },
  };
}
