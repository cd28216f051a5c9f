/** Offers of x402 as they go over the wire, and whether a credential is for one of them. */
import { randomUUID } from 'node:crypto';
import { newNonce } from '../../../shared/reissue.ts';
import type { Discovery } from '../../discovery.ts';
import { lower, type Offer, type Terms } from '../../terms.ts';
import { notForThis } from '../common.ts';
import type { Announce, Announced, Asked, Presented } from '../method.ts';
import { type Fault, faultOf } from './batch/answers.ts';
import { type X402Payload, x402Of } from './credential.ts';
import { withChallenge } from './nonce.ts';
import { PAYMENT_IDENTIFIER } from './payment-identifier.ts';
import type { X402Requirements } from './requirements.ts';
import { bodyOfVersion1 } from './version-1.ts';

/** Said with a metered price: clients that know only `exact` pay all of it first. */
const METERED = ' (at most; what a call does not use is not taken, or sent back where it was paid by exact)';

/** Stands in the place of a nonce; no text of a tenant's can have it. */
const NONCE = randomUUID();

/** Resources whose header is remembered, per set of terms. */
const MAX_RESOURCES = 100;

export interface X402Offer extends Offer {
  via: 'x402';
  requirements: X402Requirements;
  /** The seller, where the host has costs before it is paid. */
  tenant?: string | undefined;
}

/** @throws Error for an offer of another method */
export function x402Offer(offer: Offer): X402Offer {
  if (offer.via !== 'x402') throw new Error('not an offer of x402');
  return offer as X402Offer;
}

export function matchX402(presented: Presented, { offers }: { offers: readonly Offer[] }, asked: Asked): Offer {
  const { payload, rail } = x402Of(presented);
  const match = offers.find(
    (offer) =>
      offer.via === 'x402' && offer.rail === rail && acceptsRequirements(payload, x402Offer(offer).requirements),
  );
  if (!match) throw notForThis('The accepted requirements are not what is offered now.');
  if (payload.resource !== undefined && !sameResource(payload.resource.url, asked.resource))
    throw notForThis('The payment names another resource.');
  return match;
}

/** Whether the payer accepted exactly what is offered now. */
function acceptsRequirements(payload: X402Payload, offered: X402Requirements): boolean {
  const { accepted } = payload;
  return (
    accepted.scheme === offered.scheme &&
    accepted.network === offered.network &&
    // Version 1 does not name it, and signs for it.
    (accepted.asset === undefined || lower(accepted.asset) === lower(offered.asset)) &&
    accepted.amount === offered.amount &&
    lower(accepted.payTo) === lower(offered.payTo)
  );
}

/** Fragments do not travel; everything else must be equal. */
function sameResource(a: string, b: string): boolean {
  return a === b || (URL.canParse(a) && URL.canParse(b) && withoutHash(a) === withoutHash(b));
}

function withoutHash(text: string): string {
  const url = new URL(text);
  url.hash = '';
  return url.href;
}

/**
 * x402 v2 `PAYMENT-REQUIRED`: base64 of JSON, the same for every caller of a resource but for a nonce; and for clients of
 * v1 the same in the body. Clients send the nonce back with what they accepted. It is not on the chain, and so tells the
 * payer from those who read the payment there.
 */
export function announceX402(offers: readonly Offer[], terms: Terms): Announce {
  const accepts = offers.map((offer) => x402Offer(offer).requirements);
  const withNonce = (each: X402Requirements) => ({ ...each, extra: withChallenge(each.extra, NONCE) });
  // Clients take the first that they can pay: of a route that is metered, nothing has to be sent back by `upto`.
  if (terms.kind === 'route' && terms.mode === 'metered')
    accepts.sort((a, b) => Number(b.scheme === 'upto') - Number(a.scheme === 'upto'));
  const known = new Map<
    string,
    { discovery: Discovery | undefined; version1: boolean | undefined; write: () => Announced }
  >();
  return (issued) => {
    const issue = terms.mode === 'metered' ? { ...issued, description: `${issued.description}${METERED}` } : issued;
    const { resource, description, discovery, problem, version1 } = issue;
    const fault = faultOf(problem);
    const before = problem ? undefined : known.get(resource);
    if (before && before.discovery === discovery && before.version1 === version1) return before.write();
    const around = aroundNonces(
      JSON.stringify({
        x402Version: 2,
        error: fault?.reason ?? problem?.message ?? 'PAYMENT-SIGNATURE header is required',
        resource: { url: resource, description },
        accepts: (fault ? accepts.map((each) => withFault(each, fault)) : accepts).map(withNonce),
        extensions: { ...discovery, ...PAYMENT_IDENTIFIER },
      }),
    );
    const body = bodyOfVersion1(accepts, issue);
    const write = () => {
      const nonce = newNonce();
      return { headers: { 'payment-required': around.join(nonce) }, body, reissue: () => ({ x402: { nonce } }) };
    };
    if (!problem && (before || known.size < MAX_RESOURCES)) known.set(resource, { discovery, version1, write });
    return write();
  };
}

/**
 * What stands before, between and after the nonces, in base64, which cuts a text into pieces of three bytes: the nonces
 * begin and end where it cuts.
 */
function aroundNonces(text: string): string[] {
  return text.split(NONCE).map((piece, index, { length }) => {
    const over = Buffer.byteLength(piece) % 3;
    const spaces = index === length - 1 || over === 0 ? '' : ' '.repeat(3 - over);
    return Buffer.from(piece.replace(/"challenge":"[^"]*$/, (name) => spaces + name)).toString('base64');
  });
}

function withFault(offered: X402Requirements, { network, extra }: Fault): X402Requirements {
  if (offered.scheme !== 'batch-settlement' || offered.network !== network) return offered;
  return { ...offered, extra: { ...offered.extra, ...extra } };
}
