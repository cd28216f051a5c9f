/**
 * Proof of ownership: a zero-amount `tempo/charge` challenge that the wallet signs (EIP-712 `Proof`). Needs no chain
 * for ordinary wallets; access keys of Tempo accounts are looked up on theirs. Each proof is accepted once.
 */

import { Store, tempo } from 'mppx/server';
import { Methods, Proof } from 'mppx/tempo';
import { createClient, custom, recoverTypedDataAddress } from 'viem';
import { tempo as tempoChain } from 'viem/chains';
import type { PaymentKeys } from '../../../registry/payments/keys.ts';
import { micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { type ChallengeContext, type Challenger, type PreparedOffers, prepareOffers } from '../../challenge.ts';
import type { MppNetwork } from '../../network/types.ts';
import type { Asking, SignInWithX } from '../../sign-in-with-x.ts';
import { lower, payerDid, type Terms } from '../../terms.ts';
import type { Payer, ProofRequest, ProofResult } from '../../types.ts';
import { readCredential } from '../index.ts';
import { isMpp, type MppCredential } from './credential.ts';
import { type MppOffer, matchMpp } from './offer.ts';

/** TIP-20 pathUSD: a proof moves no token, but a challenge names one. */
const PATH_USD = '0x20c0000000000000000000000000000000000000';

export interface ProofVerifierOptions {
  network: MppNetwork | undefined;
  challengeKey: string;
  challenger: Challenger;
  keys: PaymentKeys;
  signIn: SignInWithX;
}

export class ProofVerifier {
  readonly #options: ProofVerifierOptions;
  readonly #chainId: number;
  readonly #method: ReturnType<typeof tempo.charge>;

  constructor(options: ProofVerifierOptions) {
    this.#options = options;
    this.#chainId = options.network?.chain.id ?? tempoChain.id;
    // Without a network every chain call fails at once, and only plain wallets can prove themselves.
    const offline = createClient({
      chain: tempoChain,
      transport: custom({ request: async () => Promise.reject(new Error('no network')) }),
    });
    const client = options.network?.getClient() ?? offline;
    this.#method = tempo.charge({
      getClient: () => client as never,
      currency: PATH_USD,
      store: Store.memory(),
    }) as never;
  }

  /**
   * @param asking the request, where its caller may sign in by x402 instead
   * @throws Problem `not_owner`
   */
  async prove(headers: Headers, context: ChallengeContext, proof: ProofRequest, asking?: Asking): Promise<ProofResult> {
    const prepared = this.#offers(proof);
    const { challenger, challengeKey, signIn } = this.#options;
    const ask = (problem?: Problem) => {
      const response = challenger.response(prepared, context, problem);
      for (const [name, value] of Object.entries(asking ? signIn.announce(asking, problem) : {}))
        response.headers.set(name, value);
      return { response };
    };
    try {
      const signed = asking && (await signIn.verify(headers, asking));
      if (signed) {
        expectOwner(proof, signed.payer.address);
        await signed.claim();
        return { payer: signed.payer };
      }
      const presented = readCredential(headers, challengeKey);
      if (!presented) return ask();
      if (!isMpp(presented))
        throw refused('Ownership is proved with a zero-amount MPP credential or by SIGN-IN-WITH-X, not by a payment.');
      return { payer: await this.#verify(presented, prepared, context, proof) };
    } catch (error) {
      if (error instanceof Problem && error.code === 'payment_invalid') return ask(error);
      throw error;
    }
  }

  async #verify(
    presented: MppCredential,
    prepared: PreparedOffers,
    context: ChallengeContext,
    proof: ProofRequest,
  ): Promise<Payer> {
    matchMpp(presented, prepared, { ...context, digest: context.digest, now: Date.now() });
    const { credential } = presented;
    const payload = Methods.charge.schema.credential.payload.safeParse(credential.payload);
    if (!payload.success || payload.data.type !== 'proof')
      throw refused('Sign the zero-amount challenge (payload type "proof").');
    const source = /^did:pkh:eip155:(\d{1,12}):(0x[0-9a-fA-F]{40})$/.exec(credential.source ?? '');
    if (!source?.[2] || Number(source[1]) !== this.#chainId)
      throw refused('The proof names no wallet on this network.');
    const address = lower(source[2]);
    if (!(await this.#signedBy(credential, payload.data, address))) throw refused('The signature is not the wallet’s.');
    expectOwner(proof, address);
    const expires = Date.parse(credential.challenge.expires ?? '');
    if (!(await this.#options.keys.claim(`proof:${credential.challenge.id}`, expires)))
      throw refused('This proof was used before; sign the new challenge.');
    return { address, did: payerDid(this.#chainId, address) };
  }

  async #signedBy(
    credential: MppCredential['credential'],
    payload: { type: 'proof'; signature: string },
    address: `0x${string}`,
  ): Promise<boolean> {
    const { challenge } = credential;
    const data = Proof.typedData({
      account: address,
      chainId: this.#chainId,
      challengeId: challenge.id,
      realm: challenge.realm,
    });
    try {
      const signer = await recoverTypedDataAddress({ ...data, signature: payload.signature as `0x${string}` });
      if (lower(signer) === address) return true;
    } catch {
      // Not a plain ECDSA signature; mppx knows the other kinds.
    }
    try {
      await this.#method.validate?.({ credential: { ...credential, payload }, request: challenge.request } as never);
      return true;
    } catch {
      return false;
    }
  }

  #offers(proof: ProofRequest): PreparedOffers {
    const terms: Terms = {
      kind: 'operation',
      name: 'proof',
      scope: `proof:${proof.scope}`,
      slug: undefined,
      tenant: undefined,
      amount: micro(0),
      mode: 'fixed',
      slow: false,
      payTo: undefined,
      feeBps: 0,
      description: proof.description ?? 'Prove that you own this',
      sku: undefined,
      pricingVersion: undefined,
    };
    const currency = this.#options.network?.currency ?? PATH_USD;
    const recipient = lower(this.#options.network?.recipient ?? '0x0000000000000000000000000000000000000000');
    const offer: MppOffer = {
      via: 'mpp',
      rail: 'tempo/charge',
      method: 'tempo',
      intent: 'charge',
      custody: 'direct',
      asset: '',
      recipient,
      payTo: recipient,
      request: { amount: '0', currency, recipient, methodDetails: { chainId: this.#chainId } },
    };
    return prepareOffers(terms, [offer]);
  }
}

/** @throws Problem `not_owner` */
function expectOwner({ expectedOwner }: ProofRequest, address: string): void {
  if (expectedOwner !== undefined && address !== expectedOwner)
    throw new Problem('not_owner', `${expectedOwner} owns this, and ${address} signed. Nothing was changed.`);
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', detail);
}
