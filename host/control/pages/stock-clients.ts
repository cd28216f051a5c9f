/** How stock clients pay this host, as its pages print it. */
import { MPPX_COMMAND, X402_PACKAGES } from '../../../builtin-tenants/kit/stock-clients.ts';

/** A network that x402's clients know, with its token. */
const BASE_SEPOLIA = 'eip155:84532';

/** The payment network, as far as clients have to be told of it. */
export interface ClientNetwork {
  name: string;
  /** Further ones, in the same 402. */
  also?: Record<'mpp' | 'x402', readonly { chain: { name: string } }[]>;
  mpp?: { rpcUrl: string };
  x402?: {
    network: string;
    token: string;
    /** For wallets that do not know it. `rpcUrl`: one that anybody may use. */
    walletChain?: {
      name: string;
      nativeCurrency: { name: string; symbol: string; decimals: number };
      rpcUrl: string;
    };
  };
}

/** The networks that payments are on. */
export function networksText({ name, also }: ClientNetwork): string {
  const others = [...(also?.mpp ?? []), ...(also?.x402 ?? [])].map(({ chain }) => chain.name);
  return [name, ...new Set(others)].join(', ');
}

/** Shell lines that deploy with the mppx command. */
export function mppxExample(publicUrl: string, { name, mpp }: ClientNetwork): string {
  const wallet =
    name === 'local' && mpp
      ? `# Key of a test wallet: a privateKey of local-network.json in the host's data folder.
export MPPX_RPC_URL=${mpp.rpcUrl} MPPX_PRIVATE_KEY=0x…`
      : 'export MPPX_PRIVATE_KEY=0x…';
  return `${wallet}
${MPPX_COMMAND} ${publicUrl}/_admin/deploy -X POST \\
  -J '{"slug":"hello","code":"export default { fetch: () => new Response(\\"hi\\") }"}'
curl ${publicUrl}/hello/`;
}

/** A module that deploys with @x402/fetch; undefined where x402 is off. */
export function x402Example(publicUrl: string, { name, x402 }: ClientNetwork): string | undefined {
  if (!x402) return undefined;
  const allowed =
    name === 'local' && x402.network !== BASE_SEPOLIA
      ? `
  // x402 does not know the token of this network by itself. At most 1 USD in one payment:
  spendControls: {
    allowedAssets: [{ network: '${x402.network}', asset: '${x402.token}', maxAmountPerPayment: '1000000' }],
  },`
      : '';
  return `// npm install ${X402_PACKAGES}
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const account = privateKeyToAccount(process.env.PRIVATE_KEY);
const pay = wrapFetchWithPaymentFromConfig(fetch, {
  schemes: [
    { network: 'eip155:*', client: new ExactEvmScheme(account) },
    { network: 'eip155:*', client: new UptoEvmScheme(account) }, // metered routes
  ],${allowed}
});
const response = await pay('${publicUrl}/_admin/deploy', {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ slug: 'hello-x402', code: 'export default { fetch: () => new Response("hi") }' }),
});
console.log(response.status, await response.text());`;
}
