/**
 * Whether a credential is for what is being asked: the right scope, the present price, this request's body, and in
 * time. Pure. What it says about the payer's money is the rail's to check.
 */
import { PaymentRequest } from 'mppx';
import { Problem } from '../../shared/problem.ts';
import type { PreparedOffers } from '../challenge.ts';
import type { Offer } from '../terms.ts';
import { acceptsRequirements, type MppCredential, type Presented, type X402Credential } from './credential.ts';

export interface Asked {
  realm: string;
  /** URL of the resource as the caller sees it. */
  resource: string;
  /** Digest of the request's body; undefined when there is none or it was not read. */
  digest: string | undefined;
  /** Real time, ms. */
  now: number;
}

/** @throws Problem `payment_invalid` */
export function matchOffer(presented: Presented, prepared: PreparedOffers, asked: Asked): Offer {
  return presented.via === 'mpp' ? matchMpp(presented, prepared, asked) : matchX402(presented, prepared, asked);
}

function matchMpp({ credential, meta, rail }: MppCredential, prepared: PreparedOffers, asked: Asked): Offer {
  const { challenge } = credential;
  if (challenge.realm !== asked.realm) throw refused('The credential is for another host.');
  if (meta.scope !== prepared.terms.scope) throw refused('The credential is for something else that is sold here.');
  const expires = Date.parse(challenge.expires ?? '');
  if (!(expires > asked.now)) throw refused('The challenge has expired.');
  if (challenge.digest !== undefined && challenge.digest !== asked.digest)
    throw refused('The credential was made for another request body.');
  const canonical = PaymentRequest.serialize(challenge.request);
  const match = prepared.mpp.find((each) => each.offer.rail === rail && each.canonical === canonical);
  if (!match) throw refused('The price or the recipient has changed.');
  return match.offer;
}

function matchX402({ payload, rail }: X402Credential, prepared: PreparedOffers, asked: Asked): Offer {
  const offer = prepared.x402.find((each) => each.rail === rail && acceptsRequirements(payload, each.requirements));
  if (!offer) throw refused('The accepted requirements are not what is offered now.');
  if (payload.resource !== undefined && !sameResource(payload.resource.url, asked.resource))
    throw refused('The payment names another resource.');
  return offer;
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

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail} Pay the new challenge.`);
}
