/**
 * The 402: one answer that carries every offer, for MPP clients in `WWW-Authenticate`, for x402 clients in
 * `PAYMENT-REQUIRED`, and for those of x402 v1 in the body. Building it touches no chain and no disk, so a flood of unpaid calls stays cheap.
 */
import { formatUsd } from '../shared/money.ts';
import { OWN_ANSWER, Problem, type ProblemCode } from '../shared/problem.ts';
import { REISSUE_HEADER, type Reissue } from '../shared/reissue.ts';
import type { Discovery } from './discovery.ts';
import { EXPOSED_HEADERS, METHODS } from './methods/index.ts';
import type { Announce } from './methods/method.ts';
import type { Offer, Terms } from './terms.ts';

export interface ChallengeContext {
  /** Protection space: the host name of the public origin. */
  realm: string;
  /** URL of the resource as the caller sees it. */
  resource: string;
  /** `sha-256=<base64>` of the body that the credential will be bound to. */
  digest?: string | undefined;
  requestId?: string | undefined;
  /** How it is called, for indexers. The same object for the same thing: what is made of it is remembered by it. */
  discovery?: Discovery | undefined;
  /** Whether a handler's own challenge also offers x402 v1, whose clients do not send the challenge back. */
  version1?: boolean | undefined;
  /** Whether an edge is to be told how it writes the same 402 again. */
  reissue?: boolean | undefined;
}

/** What one set of terms looks like on the wire, but for the parts that change with every call. */
export interface PreparedOffers {
  terms: Terms;
  offers: readonly Offer[];
  /** Of each method that offers something, in the order of the list. */
  announce: readonly Announce[];
  /** What a call without a payment is told. */
  unpaid: Problem;
}

export function prepareOffers(terms: Terms, offers: readonly Offer[]): PreparedOffers {
  const announce = METHODS.flatMap((method) => {
    const own = offers.filter(({ via }) => via === method.via);
    return own.length === 0 ? [] : [method.announce(own, terms)];
  });
  return { terms, offers, announce, unpaid: unpaid(terms) };
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
      [OWN_ANSWER]: '1',
      'access-control-expose-headers': EXPOSED_HEADERS,
      'access-control-allow-origin': '*',
    };
    if (context.requestId !== undefined) headers['x-request-id'] = context.requestId;
    const { realm, resource, digest, discovery, version1 } = context;
    const issue = {
      key: this.#key,
      realm,
      resource,
      digest,
      discovery,
      version1,
      description: this.describe(prepared.terms),
      problem,
    };
    const announced = prepared.announce.map((announce) => announce(issue));
    for (const { headers: own } of announced)
      for (const [name, value] of Object.entries(own))
        headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
    if (context.reissue) {
      const reissue: Reissue = Object.assign({}, ...announced.map(({ reissue }) => reissue()));
      headers[REISSUE_HEADER] = Buffer.from(JSON.stringify(reissue)).toString('base64url');
    }
    const document = (problem ?? prepared.unpaid).toDocument(context.requestId);
    const body = JSON.stringify({
      ...document,
      status: 402,
      price: { amount: formatUsd(prepared.terms.amount), currency: 'USD', mode: prepared.terms.mode },
      ...(this.#testMoney ? { testMoney: true } : {}),
      docs: this.#docs,
      ...Object.assign({}, ...announced.map(({ body }) => body)),
    });
    return { headers, body };
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
