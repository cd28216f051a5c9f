/**
 * The 402: one answer that carries every offer, for MPP clients in `WWW-Authenticate` and for x402 clients in
 * `PAYMENT-REQUIRED`. Building it touches no chain and no disk, so a flood of unpaid calls stays cheap.
 */
import { createHmac, randomUUID } from 'node:crypto';
import { PaymentRequest } from 'mppx';
import { formatUsd } from '../shared/money.ts';
import { Problem, type ProblemCode } from '../shared/problem.ts';
import type { MppOffer, Offer, Terms, X402Offer } from './terms.ts';

/** Longest time between a 402 and its payment, ms. */
export const CHALLENGE_LIFE_MS = 5 * 60_000;

export const EXPOSED_HEADERS = 'WWW-Authenticate, PAYMENT-REQUIRED, PAYMENT-RESPONSE, Payment-Receipt';

export interface ChallengeContext {
  /** Protection space: the host name of the public origin. */
  realm: string;
  /** URL of the resource as the caller sees it. */
  resource: string;
  /** `sha-256=<base64>` of the body that the credential will be bound to. */
  digest?: string | undefined;
  requestId?: string | undefined;
}

/** What one set of terms looks like on the wire, but for the parts that change with every call. */
export interface PreparedOffers {
  terms: Terms;
  offers: readonly Offer[];
  mpp: readonly { offer: MppOffer; request: string; canonical: string }[];
  x402: readonly X402Offer[];
  /** What x402 clients are told, by resource: the same for every caller. */
  x402Headers: Map<string, string>;
  /** What a call without a payment is told. */
  unpaid: Problem;
}

/** Resources whose x402 header is remembered, per set of terms. */
const MAX_RESOURCES = 100;

export function prepareOffers(terms: Terms, offers: readonly Offer[]): PreparedOffers {
  return {
    terms,
    offers,
    mpp: offers
      .filter((offer) => offer.via === 'mpp')
      .map((offer) => {
        const request = PaymentRequest.serialize(offer.request);
        return { offer, request, canonical: request };
      }),
    x402: offers.filter((offer) => offer.via === 'x402'),
    x402Headers: new Map(),
    unpaid: unpaid(terms),
  };
}

/** Binding data of a challenge: `opaque` of MPP, authenticated by the challenge id. */
export function challengeMeta(terms: Terms, nonce: string): Record<string, string> {
  return {
    ...terms.meta,
    n: nonce,
    scope: terms.scope,
    ...(terms.sku === undefined ? {} : { sku: terms.sku }),
    ...(terms.pricingVersion === undefined ? {} : { pricingVersion: String(terms.pricingVersion) }),
  };
}

/**
 * The value of one `Payment` challenge. The id is mppx's: HMAC-SHA256 over
 * `realm|method|intent|request|expires|digest|opaque` (mppx 0.11 Challenge.js, computeId), done here with the
 * platform's crypto because mppx spends 0.3 ms on it in JavaScript.
 */
export function serializeChallenge(
  key: string,
  parts: {
    realm: string;
    method: string;
    intent: string;
    request: string;
    expires: string;
    digest?: string | undefined;
    opaque: string;
    description?: string | undefined;
  },
): string {
  const input = [
    parts.realm,
    parts.method,
    parts.intent,
    parts.request,
    parts.expires,
    parts.digest ?? '',
    parts.opaque,
  ];
  const id = createHmac('sha256', key).update(input.join('|')).digest('base64url');
  const fields: [string, string | undefined][] = [
    ['id', id],
    ['realm', parts.realm],
    ['method', parts.method],
    ['intent', parts.intent],
    ['request', parts.request],
    ['description', parts.description],
    ['digest', parts.digest],
    ['expires', parts.expires],
    ['opaque', parts.opaque],
  ];
  const text = fields
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}="${quote(value ?? '')}"`);
  return `Payment ${text.join(', ')}`;
}

/** Escapes as mppx does, so that the value stays a legal header whatever a description holds. */
function quote(value: string): string {
  return value
    .replace(/[\r\n]+/g, ' ')
    .replace(/[\\"]/g, '\\$&')
    .replace(/[\u0100-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Builds 402 answers. One per host: it holds the key that makes challenges its own. */
export class Challenger {
  readonly #key: string;
  readonly #testMoney: boolean;
  readonly #docs: string;

  /** @param docs URL of the page that tells how to pay */
  constructor(key: string, testMoney: boolean, docs: string) {
    this.#key = key;
    this.#testMoney = testMoney;
    this.#docs = docs;
  }

  /** The description that payers see. */
  describe(terms: Terms): string {
    return this.#testMoney ? `[TEST MONEY] ${terms.description}` : terms.description;
  }

  /**
   * @param problem why a payment is asked for (again); default: none was offered
   */
  response(prepared: PreparedOffers, context: ChallengeContext, problem?: Problem): Response {
    const { headers, body } = this.answer(prepared, context, problem);
    return new Response(body, { status: 402, headers });
  }

  /** The same 402 in parts, for a server that writes it without a `Response` in between. */
  answer(
    prepared: PreparedOffers,
    context: ChallengeContext,
    problem?: Problem,
  ): { headers: Record<string, string>; body: string } {
    const headers: Record<string, string> = {
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
      'access-control-expose-headers': EXPOSED_HEADERS,
      'access-control-allow-origin': '*',
    };
    if (context.requestId !== undefined) headers['x-request-id'] = context.requestId;
    const challenges = this.challenges(prepared, context);
    if (challenges.length > 0) headers['www-authenticate'] = challenges.join(', ');
    if (prepared.x402.length > 0) headers['payment-required'] = this.#x402(prepared, context, problem);
    const document = (problem ?? prepared.unpaid).toDocument(context.requestId);
    const body = JSON.stringify({
      ...document,
      status: 402,
      price: { amount: formatUsd(prepared.terms.amount), currency: 'USD', mode: prepared.terms.mode },
      ...(this.#testMoney ? { testMoney: true } : {}),
      docs: this.#docs,
    });
    return { headers, body };
  }

  challenges(prepared: PreparedOffers, context: ChallengeContext): string[] {
    const expires = new Date(Date.now() + CHALLENGE_LIFE_MS).toISOString();
    const meta = challengeMeta(prepared.terms, randomUUID());
    const opaque = PaymentRequest.serialize(meta);
    const description = this.describe(prepared.terms);
    return prepared.mpp.map(({ offer, request }) =>
      serializeChallenge(this.#key, {
        realm: context.realm,
        method: offer.method,
        intent: offer.intent,
        request,
        expires,
        digest: context.digest,
        opaque,
        description,
      }),
    );
  }

  /** x402 v2 `PAYMENT-REQUIRED`: base64 of JSON. */
  #x402(prepared: PreparedOffers, context: ChallengeContext, problem: Problem | undefined): string {
    const known = problem ? undefined : prepared.x402Headers.get(context.resource);
    if (known !== undefined) return known;
    const header = Buffer.from(
      JSON.stringify({
        x402Version: 2,
        error: problem?.message ?? 'PAYMENT-SIGNATURE header is required',
        resource: { url: context.resource, description: this.describe(prepared.terms) },
        accepts: prepared.x402.map((offer) => offer.requirements),
      }),
    ).toString('base64');
    if (!problem && prepared.x402Headers.size < MAX_RESOURCES) prepared.x402Headers.set(context.resource, header);
    return header;
  }
}

/** A paid operation of the host reads its request only when it is paid for. */
const UNCHECKED = ' Neither the request nor its body was checked: that is done with the payment, before money moves.';

function unpaid(terms: Terms): Problem {
  const code: ProblemCode = terms.amount === 0n ? 'proof_required' : 'payment_required';
  return new Problem(
    code,
    terms.amount === 0n
      ? 'Sign the zero-amount challenge with the owner’s wallet and send the request again.'
      : `This costs ${terms.mode === 'metered' ? 'at most ' : ''}${formatUsd(terms.amount)} USD: ${terms.description}. Pay with an MPP or x402 client and send the request again.${terms.kind === 'operation' ? UNCHECKED : ''}`,
  );
}
