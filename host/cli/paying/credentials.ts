/**
 * Signs one chosen offer with the stock clients of its protocol, and gives the headers that carry the payment.
 * Amount, token and chain were checked before; the offer that is signed here is the only one the clients see.
 */
import type { PaymentRequired } from '@x402/core/types';
import type { Challenge } from 'mppx';
import type { Chain } from 'viem';
import type { privateKeyToAccount } from 'viem/accounts';
import {
  localEvmChain,
  localTempoChain,
  TEMPO_NETWORKS,
  withRpc,
  X402_NETWORKS,
} from '../../payments/network/chains.ts';
import { Failure } from '../terminal/failure.ts';
import type { LocalNetworkInfo } from '../wallet/local-host.ts';
import type { Offer } from './offers.ts';

export interface Signer {
  account: ReturnType<typeof privateKeyToAccount>;
  /** The test network of a local host. */
  local: LocalNetworkInfo | undefined;
  /** `--rpc-url`: reaches the chain of the payment; undefined: its public URL. */
  rpcUrl: string | undefined;
}

/** @throws Failure `payment` when the wallet cannot pay it */
export async function createCredential(offer: Offer, signer: Signer): Promise<Record<string, string>> {
  try {
    return offer.protocol === 'mpp' ? await signMpp(offer.challenge, signer) : await signX402(offer, signer);
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure('payment', `The payment could not be made: ${firstLine(error)}`);
  }
}

async function signMpp(challenge: Challenge.Challenge, signer: Signer): Promise<Record<string, string>> {
  const [{ Mppx, tempo }, { Challenge: wire }, { tempoClient }] = await Promise.all([
    import('mppx/client'),
    import('mppx'),
    import('../../payments/network/clients.ts'),
  ]);
  const how = {
    account: signer.account,
    getClient: ({ chainId }: { chainId?: number | undefined }) =>
      tempoClient(tempoChain(chainId ?? 0, signer), signer.account) as never,
  };
  // Only commands about mandates choose one: see mandate.ts.
  const client = Mppx.create({ polyfill: false, methods: [tempo.charge(how), tempo.subscription(how)] });
  const only = new Response(null, { status: 402, headers: { 'www-authenticate': wire.serialize(challenge) } });
  return { authorization: await client.createCredential(only) };
}

async function signX402(offer: Extract<Offer, { protocol: 'x402' }>, signer: Signer): Promise<Record<string, string>> {
  const [{ x402Client, x402HTTPClient }, { ExactEvmScheme }, { UptoEvmScheme }] = await Promise.all([
    import('@x402/core/client'),
    import('@x402/evm/exact/client'),
    import('@x402/evm/upto/client'),
  ]);
  const rpcUrl = evmRpcUrl(offer.chainId, signer);
  const client = x402Client.fromConfig({
    schemes: [
      { network: 'eip155:*', client: new ExactEvmScheme(signer.account, { rpcUrl }) },
      { network: 'eip155:*', client: new UptoEvmScheme(signer.account, { rpcUrl }) },
    ],
    // Limits were enforced on this very offer already, for every token alike.
    spendControls: false,
  });
  const http = new x402HTTPClient(client);
  const required = { ...offer.required, accepts: [offer.requirements] } as unknown as PaymentRequired;
  return http.encodePaymentSignatureHeader(await http.createPaymentPayload(required));
}

function tempoChain(chainId: number, { local, rpcUrl }: Signer): Chain {
  if (local?.chainId === chainId) return localTempoChain(chainId, rpcUrl ?? local.rpcUrl);
  const known = Object.values(TEMPO_NETWORKS).find(({ chain }) => chain.id === chainId);
  if (known) return withRpc(known.chain, rpcUrl ?? '');
  if (rpcUrl !== undefined) return localTempoChain(chainId, rpcUrl);
  throw new Failure('payment', `Chain ${chainId} is not known here: give its RPC URL with --rpc-url.`);
}

function evmRpcUrl(chainId: number, { local, rpcUrl }: Signer): string {
  if (rpcUrl !== undefined) return rpcUrl;
  if (local?.x402.network === `eip155:${chainId}`)
    return localEvmChain(chainId, local.rpcUrl).rpcUrls.default.http[0] ?? '';
  const known = Object.values(X402_NETWORKS).find(({ chain }) => chain.id === chainId);
  const url = known?.chain.rpcUrls.default.http[0];
  if (url === undefined) {
    throw new Failure('payment', `Chain ${chainId} is not known here: give its RPC URL with --rpc-url.`);
  }
  return url;
}

/** Clients' errors go on for pages; the first line says it. */
function firstLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return (text.split('\n')[0] ?? '').slice(0, 300);
}
