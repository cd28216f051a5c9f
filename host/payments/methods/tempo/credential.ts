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
  /** The challenge's request, in its canonical form. */
  request: string;
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
  return readReturned(text, key) ?? readAny(text, key);
}

const PLAIN = /^payment\s+([\w-]+)=*$/i;
/** Members of a challenge of ours. */
const KNOWN = new Set(['id', 'realm', 'method', 'intent', 'request', 'expires', 'opaque', 'digest', 'description']);

/**
 * A credential with a challenge of this host that its client returned as it was. The id says that all of it but the
 * description is ours, so nothing is checked or made canonical again: a fifth of the time that mppx's schemas take.
 * @returns undefined for all others: whether they are good, and what is wrong with them, is for `readAny` to say
 */
export function readReturned(text: string, key: string): MppCredential | undefined {
  const [, encoded] = PLAIN.exec(text) ?? [];
  if (encoded === undefined) return undefined;
  try {
    const parsed = JSON.parse(Buffer.from(encoded, 'base64url').toString());
    const wire = parsed.challenge as Record<string, string | undefined>;
    for (const name of Object.keys(wire)) if (!KNOWN.has(name) || typeof wire[name] !== 'string') return undefined;
    if (parsed.source !== undefined && typeof parsed.source !== 'string') return undefined;
    const { id = '', realm = '', method, intent, request = '', expires = '', opaque = '', digest, description } = wire;
    const rail = railOf(method, intent);
    if (rail === undefined || digest === '') return undefined;
    const bound = [realm, method, intent, request].join('|');
    if (!isSame(id, challengeId(key, bound, expires, digest ?? '', opaque))) return undefined;
    const challenge = {
      ...(description === undefined ? {} : { description }),
      ...(digest === undefined ? {} : { digest }),
      expires,
      id,
      intent,
      method,
      opaque,
      realm,
      request: JSON.parse(Buffer.from(request, 'base64url').toString()),
    } as Credential.Credential['challenge'];
    const meta = JSON.parse(Buffer.from(opaque, 'base64url').toString()) as Record<string, string>;
    const credential = { challenge, payload: parsed.payload, ...(parsed.source && { source: parsed.source }) };
    return { via: 'mpp', rail, id, hash: hashOf(text), text, credential, request, meta };
  } catch {
    return undefined;
  }
}

/** Any credential, by mppx. @throws Problem `payment_invalid` */
export function readAny(text: string, key: string): MppCredential {
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
  if (credential.source !== undefined && typeof credential.source !== 'string')
    throw new Problem('payment_invalid', 'The source of the payment credential is not text.');
  const { challenge } = credential;
  const rail = railOf(challenge.method, challenge.intent);
  if (rail === undefined)
    throw new Problem('payment_invalid', 'This payment method is not offered here; pay one of the challenges.');
  if (!isOurs(challenge, key))
    throw new Problem('payment_invalid', 'The challenge was not issued by this host; pay the new challenge.');
  const request = PaymentRequest.serialize(challenge.request);
  return { via: 'mpp', rail, id: challenge.id, hash: hashOf(text), text, credential, request, meta };
}

function railOf(method = '', intent = ''): MppCredential['rail'] | undefined {
  const rail = `${method}/${intent}`;
  return rail === 'tempo/charge' || rail === 'tempo/session' || rail === 'tempo/subscription' ? rail : undefined;
}

function hashOf(text: string): string {
  return sha256(text.replace(/^payment\s+/i, ''));
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
  return isSame(challenge.id, challengeId(key, bound, expires, digest, opaque));
}

function isSame(id: string, expected: string): boolean {
  const given = Buffer.from(id);
  const wanted = Buffer.from(expected);
  return wanted.length === given.length && timingSafeEqual(wanted, given);
}
