/** Stock clients with a test wallet of a running host: mppx (library) and @x402/fetch, and what the wallets hold. */
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { wrapFetchWithPayment, wrapFetchWithPaymentFromConfig, x402Client } from '@x402/fetch';
import { Mppx, tempo } from 'mppx/client';
import { createClient, createPublicClient, http } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { tempo as tempoChain } from 'viem/chains';
import { Actions } from 'viem/tempo';
import type { LocalNetworkFile } from './host.ts';

export type Fetch = (input: string, init?: RequestInit) => Promise<Response>;

export function account(network: LocalNetworkFile, index: number) {
  const wallet = network.wallets[index];
  if (!wallet) throw new Error(`there is no test wallet ${index}`);
  return privateKeyToAccount(wallet.privateKey);
}

export function chainClient(network: LocalNetworkFile) {
  const chain = { ...tempoChain, id: network.chainId, rpcUrls: { default: { http: [network.rpcUrl] } } };
  return createClient({ chain: chain as never, transport: http(network.rpcUrl), pollingInterval: 20 });
}

/** A stock mppx client: answers proofs and pays charges. @param sender what it sends its requests with */
export function mppFetch(network: LocalNetworkFile, index: number, sender?: typeof fetch): Fetch {
  return chargeFetch(account(network, index), () => chainClient(network), sender);
}

/** The same for any account, as a key of a wallet. @param getClient of the chain */
export function chargeFetch(payer: object, getClient: () => unknown, sender: typeof fetch = fetch): Fetch {
  const methods = [tempo.charge({ account: payer as never, getClient: getClient as never })];
  return Mppx.create({ polyfill: false, fetch: sender, methods }).fetch as Fetch;
}

/** A stock mppx client that signs mandates, and pays nothing. */
export function mandateFetch(network: LocalNetworkFile, index: number): Fetch {
  const getClient = () => chainClient(network) as never;
  const methods = [tempo.subscription({ account: account(network, index), getClient })];
  return Mppx.create({ polyfill: false, methods }).fetch as Fetch;
}

/**
 * A stock @x402/fetch client that may pay up to five dollars in the local token.
 * @param sender what it sends its requests with
 */
export function x402Fetch(network: LocalNetworkFile, index: number, sender: typeof fetch = fetch): Fetch {
  const payer = account(network, index);
  return wrapFetchWithPaymentFromConfig(sender, {
    schemes: [
      { network: 'eip155:*', client: new ExactEvmScheme(payer) },
      { network: 'eip155:*', client: new UptoEvmScheme(payer, { rpcUrl: network.rpcUrl }) },
    ],
    spendControls: {
      allowedAssets: [{ network: network.x402.network, asset: network.x402.token, maxAmountPerPayment: '5000000' }],
    },
  } as never) as Fetch;
}

/** A stock @x402/fetch client that pays from a deposit; a new one finds its channel on the chain. */
export function batchFetch(network: LocalNetworkFile, index: number, sender: typeof fetch = fetch): Fetch {
  return batchClient(network, index, sender).fetch;
}

/** The same with its scheme, which asks for what is left of the deposit. */
export function batchClient(network: LocalNetworkFile, index: number, sender: typeof fetch = fetch) {
  const { readContract } = createPublicClient({ transport: http(network.rpcUrl) });
  const scheme = new BatchSettlementEvmScheme(Object.assign(account(network, index), { readContract }) as never);
  const paying = wrapFetchWithPayment(sender, new x402Client().register('eip155:*', scheme)) as Fetch;
  return { scheme, fetch: paying };
}

/** A stock @x402/fetch client that signs in where an answer asks for it, and pays nothing. @param sender what it sends its requests with */
export function signInFetch(network: LocalNetworkFile, index: number, sender: typeof fetch = fetch): Fetch {
  const client = new x402Client();
  client.registerExtension(createSIWxClientExtension({ signers: [account(network, index)] }));
  return wrapFetchWithPayment(sender, client) as Fetch;
}

/** Micro-USD in both tokens. */
export async function balances(
  network: LocalNetworkFile,
  address: `0x${string}`,
): Promise<{ mpp: bigint; x402: bigint }> {
  const mpp = await Actions.token.getBalance(chainClient(network) as never, { token: network.token, account: address });
  const x402 = await createPublicClient({ transport: http(network.rpcUrl) }).readContract({
    address: network.x402.token,
    abi: [
      {
        type: 'function',
        name: 'balanceOf',
        stateMutability: 'view',
        inputs: [{ type: 'address', name: 'owner' }],
        outputs: [{ type: 'uint256', name: '' }],
      },
    ] as const,
    functionName: 'balanceOf',
    args: [address],
  });
  return { mpp: mpp.amount, x402 };
}

export function jsonPost(body: unknown, headers: Record<string, string> = {}): RequestInit {
  return { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) };
}

export function jsonPut(body: unknown): RequestInit {
  return { ...jsonPost(body), method: 'PUT' };
}

/**
 * Deploys and answers the metadata; throws what the host said if it did not. What the wallet has under that name goes
 * first: a test that is tried again finds it from its earlier try.
 */
export async function deploy(pay: Fetch, url: string, body: Record<string, unknown>): Promise<Record<string, unknown>> {
  const ask = () => pay(`${url}/_admin/deploy`, jsonPost(body));
  let response = await ask();
  if (response.status === 409) {
    const removed = await pay(`${url}/_admin/${body.slug}`, { method: 'DELETE' });
    if (removed.ok) response = await ask();
  }
  const text = await response.text();
  if (response.status !== 201) throw new Error(`deploy answered ${response.status}: ${text}`);
  return JSON.parse(text);
}

/** A stock mppx client that pays by session: one deposit, then vouchers. @param sender what it sends its requests with */
export async function mppSessionFetch(network: LocalNetworkFile, index: number, sender?: typeof fetch): Promise<Fetch> {
  const manager = tempo.session.manager({
    account: account(network, index),
    getClient: () => chainClient(network) as never,
    maxDeposit: '5',
    ...(sender ? { fetch: sender } : {}),
  } as never);
  return (input, init) => manager.fetch(input, init) as Promise<Response>;
}

export type Headers = Record<string, string>;

/**
 * What a stock client would send to pay for a URL: it is asked to call the URL, and its paid request is kept back.
 * @param client makes the stock client's fetch from the one that it is to call
 */
export async function paymentFor(url: string, client: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch) {
  const paid = Promise.withResolvers<Headers>();
  const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    for (const name of ['authorization', 'payment-signature']) {
      const value = request.headers.get(name);
      if (!value) continue;
      paid.resolve({ [name]: value });
      return await new Promise<Response>(() => {});
    }
    return await fetch(request);
  };
  client(sender as typeof fetch)(url).catch(paid.reject);
  return await paid.promise;
}
