/**
 * A program: the servers that payers' own packages bring, on Hono: mppx for charges and sessions, @x402/hono with a
 * facilitator in the same process. Each with its store in memory. It prints its port.
 * Environment: STOCK = JSON of `StockSettings`.
 */
import { serve } from '@hono/node-server';
import { x402Facilitator } from '@x402/core/facilitator';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme as ExactFacilitator } from '@x402/evm/exact/facilitator';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { UptoEvmScheme as UptoFacilitator } from '@x402/evm/upto/facilitator';
import { UptoEvmScheme } from '@x402/evm/upto/server';
import { paymentMiddleware, x402ResourceServer } from '@x402/hono';
import { Hono } from 'hono';
import { Mppx, tempo } from 'mppx/hono';
import {
  type Account,
  type Chain,
  type Client,
  createClient,
  type Hex,
  http,
  publicActions,
  type Transport,
  walletActions,
} from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { localEvmChain, localTempoChain } from '../../../host/payments/network/chains.ts';
import type { LocalNetworkFile } from '../../e2e/support/host.ts';

export interface StockSettings {
  network: LocalNetworkFile;
  /** Of the wallet that is paid, and that pays the gas. */
  key: Hex;
}

const { network, key } = JSON.parse(process.env.STOCK ?? '{}') as StockSettings;
const { chainId, rpcUrl, token } = network;
const account = privateKeyToAccount(key);
const stockClient = (chain: Chain) =>
  createClient({ account, chain, transport: http(rpcUrl), pollingInterval: 20 }) as Client<Transport, Chain, Account>;
const tempoClient = stockClient(localTempoChain(chainId, rpcUrl));

const mppx = Mppx.create({
  realm: 'bench',
  secretKey: 'a secret of the bench, which is long enough for mppx',
  methods: [
    tempo.charge({
      currency: token,
      recipient: account.address,
      getClient: () => tempoClient,
    } as never),
    tempo.session({
      currency: token,
      account,
      recipient: account.address,
      getClient: () => tempoClient,
    } as never),
  ],
} as never) as unknown as Record<'charge' | 'session', (options: object) => never>;

const facilitator = new x402Facilitator();
const signer = toFacilitatorEvmSigner({
  ...stockClient(localEvmChain(chainId, rpcUrl)).extend(publicActions).extend(walletActions),
  address: account.address,
} as never);
const evm = network.x402.network;
facilitator.register(evm, new ExactFacilitator(signer));
facilitator.register(evm, new UptoFacilitator(signer));
const resources = new x402ResourceServer({
  verify: (payload, requirements) => facilitator.verify(payload, requirements),
  settle: (payload, requirements) => facilitator.settle(payload, requirements),
  getSupported: async () => facilitator.getSupported() as never,
});
resources.register(evm, new ExactEvmScheme()).register(evm, new UptoEvmScheme());

const offer = (scheme: 'exact' | 'upto') => ({
  accepts: {
    scheme,
    network: evm,
    payTo: account.address,
    price: {
      asset: network.x402.token,
      amount: '1000',
      extra: { name: network.x402.name, version: network.x402.version },
    },
  },
});

const app = new Hono();
app.use(paymentMiddleware({ 'GET /exact': offer('exact'), 'GET /upto': offer('upto') }, resources));
app.get('/charge', mppx.charge({ amount: '0.001' }), (c) => c.text('hello'));
// As much as the host asks for: each side's payers top up as often.
app.all('/session', mppx.session({ amount: '0.001', unitType: 'request', suggestedDeposit: '0.02' }), (c) =>
  c.text('hello'),
);
app.get('/exact', (c) => c.text('hello'));
app.get('/upto', (c) => c.text('hello'));
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => console.log(port));
