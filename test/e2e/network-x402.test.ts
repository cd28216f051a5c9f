/** Stock @x402/fetch pays on the local network: exact by EIP-3009, upto by Permit2, with the facilitator in process. */
import { type ServerType, serve } from '@hono/node-server';
import { x402Facilitator } from '@x402/core/facilitator';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme as ExactClient } from '@x402/evm/exact/client';
import { registerExactEvmScheme } from '@x402/evm/exact/facilitator';
import { UptoEvmScheme as UptoClient } from '@x402/evm/upto/client';
import { UptoEvmScheme as UptoFacilitator } from '@x402/evm/upto/facilitator';
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startTestNetwork, stopTestNetwork, type TestNetwork, walletOf, x402Balance } from './support/local-network.ts';

const recipient = privateKeyToAccount(generatePrivateKey()).address;
const PRICE = 50_000n;
const USED = 12_300n;

for (const chainId of [1337, 84532]) {
  describe(`chain ${chainId}`, () => {
    let network: TestNetwork;
    let server: ServerType;
    let url: string;

    beforeAll(async () => {
      network = await startTestNetwork({ payments: { localChainId: chainId } });
      const signer = toFacilitatorEvmSigner({
        ...network.x402.getClient(network.hostAccounts.facilitator),
        address: network.hostAccounts.facilitator.address,
      } as never);
      const facilitator = new x402Facilitator();
      registerExactEvmScheme(facilitator, { signer, networks: network.x402.network });
      facilitator.register(network.x402.network, new UptoFacilitator(signer));
      ({ server, url } = await serveOffers(network, facilitator));
    });

    afterAll(async () => {
      server?.close();
      await stopTestNetwork(network);
    });

    test('exact takes the price and nothing else, also for twenty payments at once', async () => {
      const payer = walletOf(network, 0);
      const pay = clientOf(network, payer);
      const before = await x402Balance(network, payer);
      const received = await x402Balance(network, recipient);
      expect((await pay(`${url}/exact`)).status).toBe(200);
      expect(await x402Balance(network, payer)).toBe(before - PRICE);
      const answers = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const response = await pay(`${url}/exact`);
          return response.status === 200 ? 'paid' : `${response.status} ${await response.text()}`;
        }),
      );
      expect(answers).toEqual(Array.from({ length: 20 }, () => 'paid'));
      expect(await x402Balance(network, payer)).toBe(before - 21n * PRICE);
      expect(await x402Balance(network, recipient)).toBe(received + 21n * PRICE);
    });

    test('upto takes what was used', async () => {
      const payer = walletOf(network, 1);
      const before = [await x402Balance(network, payer), await x402Balance(network, recipient)];
      expect((await clientOf(network, payer)(`${url}/upto`)).status).toBe(200);
      expect(await x402Balance(network, payer)).toBe(before[0]! - USED);
      expect(await x402Balance(network, recipient)).toBe(before[1]! + USED);
    });

    test('a client with default settings pays: it knows the network that it signs for', async () => {
      const pay = wrapFetchWithPaymentFromConfig(fetch, {
        schemes: [{ network: 'eip155:*', client: new ExactClient(walletOf(network, 2)) }],
      });
      expect((await pay(`${url}/exact`)).status).toBe(200);
    });
  });
}

function clientOf(network: TestNetwork, payer: ReturnType<typeof walletOf>) {
  return wrapFetchWithPaymentFromConfig(fetch, {
    schemes: [
      { network: 'eip155:*', client: new ExactClient(payer) },
      { network: 'eip155:*', client: new UptoClient(payer, { rpcUrl: network.x402.rpcUrl }) },
    ],
    spendControls: {
      allowedAssets: [{ network: network.x402.network, asset: network.x402.token, maxAmountPerPayment: String(PRICE) }],
    },
  });
}

/** The least server that sells: `/exact` at PRICE, `/upto` at most PRICE of which USED is taken. */
async function serveOffers(
  network: TestNetwork,
  facilitator: x402Facilitator,
): Promise<{ server: ServerType; url: string }> {
  const { token, name, version } = network.x402;
  const offers: Record<string, PaymentRequirements> = Object.fromEntries(
    ['exact', 'upto'].map((scheme) => [
      `/${scheme}`,
      {
        scheme,
        network: network.x402.network,
        asset: token,
        amount: String(PRICE),
        payTo: recipient,
        maxTimeoutSeconds: 60,
        extra: {
          name,
          version,
          ...(scheme === 'upto'
            ? { assetTransferMethod: 'permit2', facilitatorAddress: network.hostAccounts.facilitator.address }
            : {}),
        },
      },
    ]),
  );
  const answer = async (request: Request): Promise<Response> => {
    const path = new URL(request.url).pathname;
    const offer = offers[path]!;
    const header = request.headers.get('payment-signature');
    const required = { x402Version: 2, resource: { url: request.url }, accepts: [offer] };
    const refuse = (error: string | undefined) =>
      new Response(error ?? '', {
        status: 402,
        headers: { 'payment-required': Buffer.from(JSON.stringify({ ...required, error })).toString('base64') },
      });
    if (header === null) return refuse(undefined);
    const payload = JSON.parse(Buffer.from(header, 'base64').toString()) as PaymentPayload;
    const verified = await facilitator.verify(payload, offer);
    if (!verified.isValid) return refuse(verified.invalidReason);
    const settled = await facilitator.settle(payload, path === '/upto' ? { ...offer, amount: String(USED) } : offer);
    return settled.success ? Response.json({ ok: true }) : refuse(settled.errorReason);
  };
  return new Promise((resolve) => {
    // On a busy machine a connection is idle for so long that it would be closed just as it is used again.
    const serverOptions = { keepAliveTimeout: 0 };
    const server = serve({ port: 0, hostname: '127.0.0.1', fetch: answer, serverOptions }, ({ port }) =>
      resolve({ server, url: `http://127.0.0.1:${port}` }),
    );
  });
}
