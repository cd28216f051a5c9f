/** MPP credentials (`Authorization: Payment`): checked are their shape, and that we issued the challenge. */
import { timingSafeEqual } from 'node:crypto';
import { Credential, PaymentRequest } from 'mppx';
import { z } from 'zod';
import { Problem } from '../../../shared/problem.ts';
import { challengeId } from '../../../shared/reissue.ts';
import { sha256 } from '../common.ts';
import type { Presented } from '../method.ts';

/** `id` is the challenge's: unique per 402. */
export interface MppCredential extends Presented {
  via: 'mpp';
  /** A subscription is a mandate, and pays for nothing by itself: no offer is of that rail. */
  rail: 'tempo/charge' | 'tempo/session' | 'tempo/subscription';
  credential: Credential.Credential;
  /** `opaque` of the challenge, which we wrote. */
  meta: Record<string, string>;
}

export function isMpp(presented: Presented): presented is MppCredential {
  return presented.via === 'mpp';
}

/** @throws Problem `payment_invalid` for a credential of another method */
export function mppOf(presented: Presented): MppCredential {
  if (isMpp(presented)) return presented;
  throw new Problem('payment_invalid', 'Not an MPP credential.');
}

/** @throws Problem `payment_invalid` */
export function readMpp(text: string, key: string): MppCredential {
  let credential: Credential.Credential;
  let meta: Record<string, string>;
  try {
    credential = Credential.deserialize(text);
    meta = z
      .record(z.string(), z.string())
      .parse(credential.challenge.opaque === undefined ? {} : PaymentRequest.deserialize(credential.challenge.opaque));
  } catch (error) {
    throw new Problem('payment_invalid', 'The payment credential is not readable; pay the new challenge.', {
      cause: error,
    });
  }
  if (!isCanonical(text, credential))
    throw new Problem('payment_invalid', 'The payment credential is not in its canonical form.');
  const { challenge } = credential;
  const rail = `${challenge.method}/${challenge.intent}`;
  if (rail !== 'tempo/charge' && rail !== 'tempo/session' && rail !== 'tempo/subscription')
    throw new Problem('payment_invalid', 'This payment method is not offered here; pay one of the challenges.');
  if (!isOurs(challenge, key))
    throw new Problem('payment_invalid', 'The challenge was not issued by this host; pay the new challenge.');
  return { via: 'mpp', rail, id: challenge.id, hash: sha256(text.replace(/^payment\s+/i, '')), text, credential, meta };
}

/** Base64 has spare bits at its end: another spelling of the same request must not count as another credential. */
function isCanonical(text: string, credential: Credential.Credential): boolean {
  const wire = JSON.parse(Buffer.from(text.replace(/^payment\s+/i, ''), 'base64url').toString('utf8')) as {
    challenge?: { request?: unknown };
  };
  return wire.challenge?.request === PaymentRequest.serialize(credential.challenge.request);
}

/** mppx's Challenge.verify with the platform's HMAC. */
function isOurs(challenge: Credential.Credential['challenge'], key: string): boolean {
  if (challenge.header !== undefined) return false;
  const { realm, method, intent, request, expires = '', digest = '', opaque = '' } = challenge;
  const bound = [realm, method, intent, PaymentRequest.serialize(request)].join('|');
  const expected = Buffer.from(challengeId(key, bound, expires, digest, opaque));
  const given = Buffer.from(challenge.id);
  return expected.length === given.length && timingSafeEqual(expected, given);
}
