/**
 * The boundary for credentials: what a caller sends in `Authorization: Payment` or `PAYMENT-SIGNATURE` becomes a typed
 * value here or a Problem. Nothing is believed yet: only the shape is checked, and for MPP that we issued the challenge.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { Credential, PaymentRequest } from 'mppx';
import { z } from 'zod';
import { Problem } from '../../shared/problem.ts';
import { lower, type X402Requirements } from '../terms.ts';
import type { RailName } from '../types.ts';

export interface MppCredential {
  via: 'mpp';
  rail: 'tempo/charge' | 'tempo/session';
  /** Challenge id: unique per 402. */
  id: string;
  /** SHA-256 of the credential: two signatures for one challenge are two credentials. */
  hash: string;
  /** The credential as it was sent. */
  text: string;
  credential: Credential.Credential;
  /** `opaque` of the challenge, which we wrote. */
  meta: Record<string, string>;
}

export interface X402Credential {
  via: 'x402';
  rail: 'x402/exact' | 'x402/upto';
  /** Network, payer and nonce. */
  id: string;
  /** SHA-256 of all of it: what is signed, and what was accepted and named with it. */
  hash: string;
  text: string;
  payload: X402Payload;
}

export type Presented = MppCredential | X402Credential;

const hex = z
  .string()
  .regex(/^0x[0-9a-fA-F]*$/)
  .max(16_384);
const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/);
const atomic = z.string().regex(/^\d{1,78}$/);

const exactPayload = z.object({
  signature: hex,
  authorization: z.object({
    from: address,
    to: address,
    value: atomic,
    validAfter: atomic,
    validBefore: atomic,
    nonce: z.string().regex(/^0x[0-9a-fA-F]{64}$/),
  }),
});

const uptoPayload = z.object({
  signature: hex,
  permit2Authorization: z.object({
    from: address,
    permitted: z.object({ token: address, amount: atomic }),
    spender: address,
    nonce: atomic,
    deadline: atomic,
    witness: z.object({ to: address, facilitator: address, validAfter: atomic }),
  }),
});

/** x402 v2 `PaymentPayload` (x402 specification, section 5.2). */
const paymentPayload = z.object({
  x402Version: z.literal(2),
  resource: z
    .object({ url: z.string().max(8192) })
    .loose()
    .optional(),
  accepted: z.object({
    scheme: z.enum(['exact', 'upto']),
    network: z.string().regex(/^eip155:\d{1,12}$/),
    asset: address,
    amount: atomic,
    payTo: address,
    maxTimeoutSeconds: z.number(),
    extra: z.record(z.string(), z.unknown()).optional(),
  }),
  payload: z.union([exactPayload, uptoPayload]),
  extensions: z.record(z.string(), z.unknown()).optional(),
});

export type X402Payload = z.infer<typeof paymentPayload>;

/**
 * @param key HMAC key of our challenges
 * @returns undefined when the request offers no payment
 * @throws Problem `payment_invalid` for anything that is not a well-formed credential of ours
 */
export function readCredential(headers: Headers, key: string): Presented | undefined {
  const signature = headers.get('payment-signature');
  if (signature !== null) return readX402(signature);
  const authorization = headers.get('authorization');
  const payment = authorization === null ? null : Credential.extractPaymentScheme(authorization);
  return payment === null ? undefined : readMpp(payment, key);
}

/** Reads a credential that was stored, such as one that a recovery has to settle. */
export function readStored(rail: RailName, text: string, key: string): Presented {
  return rail.startsWith('x402/') ? readX402(text) : readMpp(text, key);
}

function readMpp(text: string, key: string): MppCredential {
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
  if (rail !== 'tempo/charge' && rail !== 'tempo/session')
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

/** mppx's Challenge.verify with the platform's HMAC; see serializeChallenge. */
function isOurs(challenge: Credential.Credential['challenge'], key: string): boolean {
  if (challenge.header !== undefined) return false;
  const input = [
    challenge.realm,
    challenge.method,
    challenge.intent,
    PaymentRequest.serialize(challenge.request),
    challenge.expires ?? '',
    challenge.digest ?? '',
    challenge.opaque ?? '',
  ].join('|');
  const expected = Buffer.from(createHmac('sha256', key).update(input).digest('base64url'));
  const given = Buffer.from(challenge.id);
  return expected.length === given.length && timingSafeEqual(expected, given);
}

function readX402(text: string): X402Credential {
  let payload: X402Payload;
  try {
    payload = paymentPayload.parse(JSON.parse(Buffer.from(text, 'base64').toString('utf8')));
  } catch (error) {
    throw new Problem('payment_invalid', 'PAYMENT-SIGNATURE is not a readable x402 v2 payment.', { cause: error });
  }
  const { scheme, network } = payload.accepted;
  const exact = 'authorization' in payload.payload;
  if (exact !== (scheme === 'exact'))
    throw new Problem('payment_invalid', `The payload does not fit the scheme ${scheme}.`);
  const [from, nonce] =
    'authorization' in payload.payload
      ? [payload.payload.authorization.from, payload.payload.authorization.nonce.toLowerCase()]
      : [payload.payload.permit2Authorization.from, BigInt(payload.payload.permit2Authorization.nonce).toString()];
  return {
    via: 'x402',
    rail: scheme === 'exact' ? 'x402/exact' : 'x402/upto',
    id: `x402:${scheme}:${network}:${lower(from)}:${nonce}`,
    hash: sha256(canonicalJson(payload)),
    text,
    payload,
  };
}

/** Whether the payer accepted exactly what is offered now. */
export function acceptsRequirements(payload: X402Payload, offered: X402Requirements): boolean {
  const { accepted } = payload;
  return (
    accepted.scheme === offered.scheme &&
    accepted.network === offered.network &&
    lower(accepted.asset) === lower(offered.asset) &&
    accepted.amount === offered.amount &&
    lower(accepted.payTo) === lower(offered.payTo)
  );
}

/** The same text for the same value, in whatever order its members came. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_name, member: unknown) =>
    typeof member === 'object' && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
