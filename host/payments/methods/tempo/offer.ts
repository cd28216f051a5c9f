/** Offers of MPP as they go over the wire, and whether a credential is for one of them. */
import { randomUUID } from 'node:crypto';
import { PaymentRequest } from 'mppx';
import { CHALLENGE_LIFE_MS, challengeId, opaqueOf } from '../../../shared/reissue.ts';
import type { Offer, Terms } from '../../terms.ts';
import { notForThis } from '../common.ts';
import type { Announce, Asked, Presented } from '../method.ts';
import { mppOf } from './credential.ts';

/** An offer of MPP: the canonical challenge request. */
export interface MppOffer extends Offer {
  via: 'mpp';
  method: 'tempo';
  intent: 'charge' | 'session';
  request: Record<string, unknown>;
}

/** @throws Error for an offer of another method */
export function mppOffer(offer: Offer): MppOffer {
  if (offer.via !== 'mpp') throw new Error('not an offer of MPP');
  return offer as MppOffer;
}

const requests = new WeakMap<Offer, string>();

/** The request of an offer in its canonical form. */
function canonical(offer: MppOffer): string {
  const known = requests.get(offer);
  if (known !== undefined) return known;
  const text = PaymentRequest.serialize(offer.request);
  requests.set(offer, text);
  return text;
}

export function matchMpp(
  presented: Presented,
  { terms, offers }: { terms: Terms; offers: readonly Offer[] },
  asked: Asked,
): Offer {
  const { credential, meta, rail, request } = mppOf(presented);
  const { challenge } = credential;
  if (challenge.realm !== asked.realm) throw notForThis('The credential is for another host.');
  if (meta.scope !== terms.scope) throw notForThis('The credential is for something else that is sold here.');
  const expires = Date.parse(challenge.expires ?? '');
  if (!(expires > asked.now)) throw notForThis('The challenge has expired.');
  if (challenge.digest !== undefined && challenge.digest !== asked.digest)
    throw notForThis('The credential was made for another request body.');
  const match = offers.find(
    (offer) => offer.via === 'mpp' && offer.rail === rail && canonical(mppOffer(offer)) === request,
  );
  if (!match) throw notForThis('The price or the recipient has changed.');
  return match;
}

/** One challenge per offer in `WWW-Authenticate`. What is the same in all of them is written once: 402s go out in floods. */
export function announceMpp(offers: readonly Offer[], terms: Terms): Announce {
  const own = offers.map(mppOffer).map((offer) => ({ ...offer, request: canonical(offer) }));
  const around = aroundNonce(terms);
  let writers: { realm: string; description: string | undefined; write: ChallengeWriter[] } | undefined;
  return ({ key, realm, digest, description }) => {
    if (writers?.realm !== realm || writers.description !== description)
      writers = { realm, description, write: own.map((offer) => challengeWriter({ ...offer, realm, description })) };
    const expires = new Date(Date.now() + CHALLENGE_LIFE_MS).toISOString();
    const opaque = opaqueOf(around, randomUUID());
    const challenges = writers.write.map((write) => write(key, { expires, digest, opaque }));
    return {
      headers: { 'www-authenticate': challenges.map(({ text }) => text).join(', ') },
      reissue: () => ({
        mpp: { expires, opaque, around, challenges: challenges.map(({ id, bound }) => ({ id, bound })) },
      }),
    };
  };
}

/** The binding data as `PaymentRequest.serialize` writes it, but for the nonce. */
function aroundNonce(terms: Terms): [before: string, after: string] {
  const placeholder = randomUUID();
  const serialized = PaymentRequest.serialize(challengeMeta(terms, placeholder));
  const [before = '', after = ''] = Buffer.from(serialized, 'base64url').toString().split(placeholder);
  return [before, after];
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

type ChallengeWriter = (
  key: string,
  parts: { expires: string; digest?: string | undefined; opaque: string },
) => { id: string; bound: string; text: string };

/**
 * Writes the values of `Payment` challenges for one offer.
 * @param offer `request` in its canonical form
 */
export function challengeWriter(offer: {
  realm: string;
  method: string;
  intent: string;
  request: string;
  description?: string | undefined;
}): ChallengeWriter {
  const { realm, method, intent, request, description } = offer;
  const fixed = [field('realm', realm), field('method', method), field('intent', intent), field('request', request)];
  const bound = [realm, method, intent, request].join('|');
  if (description !== undefined) fixed.push(field('description', description));
  return (key, { expires, digest, opaque }) => {
    const id = challengeId(key, bound, expires, digest ?? '', opaque);
    const fields = [field('id', id), ...fixed];
    if (digest !== undefined) fields.push(field('digest', digest));
    fields.push(field('expires', expires), field('opaque', opaque));
    return { id, bound, text: `Payment ${fields.join(', ')}` };
  };
}

/** Escapes as mppx does, so that the value stays a legal header whatever a description holds. */
function field(name: string, value: string): string {
  const quoted = value
    .replace(/[\r\n]+/g, ' ')
    .replace(/[\\"]/g, '\\$&')
    .replace(/[\u0100-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return `${name}="${quoted}"`;
}
