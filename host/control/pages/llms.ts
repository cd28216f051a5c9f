/** GET /llms.txt: what this host is and how to call and pay every endpoint, for agents and people in a hurry. */

import { MPPX_COMMAND } from '../../../builtin-tenants/kit/stock-clients.ts';
import type { Payments } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import { formatUsd } from '../../shared/money.ts';
import { bodyFields, type Endpoint } from '../endpoint.ts';
import { COMMAND_PATH, type Page, textPage } from './page.ts';
import { type ClientNetwork, mppxExample, networksText, x402Example } from './stock-clients.ts';

export interface LlmsDeps {
  endpoints: Endpoint[];
  payments: Payments;
  deployments: Deployments;
  publicUrl: string;
  termDays: number;
  network: ClientNetwork;
  /** That handlers may run. */
  models: readonly string[];
}

/** More than this is left to the tenants' own openapi.json. */
const MAX_LISTED_TENANTS = 100;
const MAX_LISTED_ROUTES = 200;

export function llmsPage(deps: LlmsDeps): Page {
  return { path: '/llms.txt', render: async () => textPage(await llmsText(deps), 'text/plain') };
}

async function llmsText({
  endpoints,
  payments,
  deployments,
  publicUrl,
  termDays,
  network,
  models,
}: LlmsDeps): Promise<string> {
  const { testMoney } = payments.status();
  const x402 = x402Example(publicUrl, network);
  const deploy = endpoints.find((endpoint) => endpoint.path === '/_admin/deploy');
  const price = deploy?.price === undefined ? '' : formatUsd(deploy.price);
  const paid = (await deployments.selling(MAX_LISTED_TENANTS)).flatMap((row) =>
    row.paidRoutes.map((route) => {
      const { description, tool } = route as { description?: string; tool?: string };
      return `- ${route.method} ${publicUrl}/${row.slug}${route.path}${tool === undefined ? '' : `, tool ${tool}`}: ${route.price} USD${description ? ` – ${description.replace(/\s+/g, ' ')}` : ''}`;
    }),
  );
  return `# Turnpike at ${publicUrl}

> Pay-per-use host for HTTP handlers. Pay ${price} USD over HTTP 402, deploy a JavaScript or TypeScript handler, and it is
> live at ${publicUrl}/<slug>/ for ${termDays} days. No account: your wallet is your identity.

Payments: network ${networksText(network)}${testMoney ? ' (TEST MONEY, worth nothing)' : ''}. Both protocols in every 402: MPP (WWW-Authenticate: Payment) and x402: v2 (PAYMENT-REQUIRED), and v1 (x402Version and accepts in the body, X-PAYMENT).
Any stock client pays: the mppx client or command, @x402/fetch, x402-fetch, x402-axios, or \`turnpike pay <url> --max-pay 0.25\`.
Machine-readable: ${publicUrl}/openapi.json

## Deploy a project with the turnpike command

\`\`\`sh
npm install --global ${publicUrl}${COMMAND_PATH}
turnpike init my-api --template paid-api
cd my-api && turnpike deploy --yes --host-url ${publicUrl}
\`\`\`

A project for Cloudflare Workers (wrangler.jsonc, wrangler.json, wrangler.toml) deploys as it is; what this host does not have is named before anything is paid.
${models.length === 0 ? '' : `\nModels of \`env.AI.run()\` (Workers AI; {"bindings": {"ai": {"AI": {}}}}): ${models.join(', ')}.\n`}
In CI, without the wallet: \`turnpike keys create --slugs my-api --actions update --until 90d\` prints a key once; with it in TURNPIKE_DEPLOY_KEY, \`turnpike deploy --yes\` updates my-api, and pays nothing.

To try a version first: \`turnpike deploy --preview\` prints an address of its own for it, with the data of what is live; \`turnpike promote my-api <version>\` makes it live.

## Deploy with the mppx command

\`\`\`sh
${mppxExample(publicUrl, network)}
\`\`\`
${x402 === undefined ? '' : `\n## Deploy with @x402/fetch\n\n\`\`\`js\n${x402}\n\`\`\`\n`}
## For agents

${publicUrl}/mcp is an MCP server (streamable HTTP, no session): tools ${endpoints.flatMap(({ tool }) => tool ?? []).join(', ')}, and buy, which calls and pays for a path of a deployment. They take what the endpoints below take, in messages of up to 1 MiB. A tool that costs money, or takes a proof of the owner's wallet, answers first with what it wants; a client with a wallet (mppx/mcp/client, or x402's MCP transport) sends it in \`_meta\`. An owner token or a deploy key in the Authorization header of the requests counts, too.

## Endpoints

${endpoints.map((endpoint) => entry(endpoint, publicUrl)).join('\n\n')}

## Errors

RFC 9457 problem documents (application/problem+json) with a stable \`code\`, a \`detail\` that says what to do, and \`requestId\`.
An unpaid call of a paid endpoint gets its 402 first, whatever its body; what is refused before settling costs nothing.
The same credential sent again gets the stored answer and is not charged again; one of x402 v1 or batch-settlement, which the chain shows to everybody, only from the same network or with the same Idempotency-Key. Retries that sign anew: send an Idempotency-Key, or x402's payment-identifier.
\`suspended\` and \`blocked\` (403) are the operator's word about a deployment, a wallet or a network: do not retry or pay; its owner sees why in the metadata.

## Paid routes of tenants

${paid.length === 0 ? 'None yet.' : paid.slice(0, MAX_LISTED_ROUTES).join('\n')}
`;
}

function entry(endpoint: Endpoint, publicUrl: string): string {
  const url = `${publicUrl}${endpoint.path.replace(/:(\w+)/g, '<$1>')}`;
  const cost =
    endpoint.access === 'paid' && endpoint.price !== undefined
      ? `costs ${formatUsd(endpoint.price)} USD`
      : endpoint.access === 'owner'
        ? `free, zero-amount proof by the owner wallet (MPP, or x402's sign-in-with-x)${endpoint.keyActions ? `, or a deploy key that may ${endpoint.keyActions.join(' or ')}` : ''}`
        : 'free';
  const flags = endpoint.method === 'GET' ? '' : ` -X ${endpoint.method}`;
  const command =
    endpoint.access === 'public'
      ? `curl${flags} ${url}${endpoint.body ? ` -d '{…}'` : ''}`
      : `${MPPX_COMMAND} ${url}${flags}${endpoint.body ? ` -J '{…}'` : ''}`;
  const fields = bodyFields(endpoint).map(({ name, description }) => `\n- ${name}: ${description}`);
  const body = fields.length === 0 ? '' : `\nFields of the body:${fields.join('')}`;
  return `### ${endpoint.method} ${endpoint.path} (${cost})\n${endpoint.description}\n\`${command}\`${body}`;
}
