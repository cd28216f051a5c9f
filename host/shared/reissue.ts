/**
 * What an edge needs to write an unpaid 402 once more, with challenges of its own: control sends it with the 402, and
 * edges answer the same call by it for a moment. Only ids, nonces and expiry differ, so that each stays a payment of its own.
 */
import { createHmac, randomUUID } from 'node:crypto';

/** Longest time between a 402 and its payment, ms. */
export const CHALLENGE_LIFE_MS = 5 * 60_000;

/** Header of a 402 that edges may write again (base64url JSON); they believe control alone. */
export const REISSUE_HEADER = 'x-turnpike-reissue';

/** The parts of a 402 that no other one has, by method. */
export interface Reissue {
  mpp?: {
    expires: string;
    opaque: string;
    /** What stands in `opaque` before and after its nonce. */
    around: [before: string, after: string];
    /** What is authenticated of each challenge beside expiry and `opaque`. */
    challenges: { id: string; bound: string }[];
  };
  x402?: {
    /** As `newNonce` made it. */
    nonce: string;
  };
}

type Mpp = NonNullable<Reissue['mpp']>;

/** Parts of new challenges, in the order of `marksOf`. */
export function reissued({ mpp, x402 }: Reissue, key: string): string[] {
  return [...(mpp ? reissuedMpp(mpp, key) : []), ...(x402 ? [newNonce()] : [])];
}

function reissuedMpp({ around, challenges }: Mpp, key: string): string[] {
  const expires = new Date(Date.now() + CHALLENGE_LIFE_MS).toISOString();
  const opaque = opaqueOf(around, randomUUID());
  return [expires, opaque, ...challenges.map(({ bound }) => challengeId(key, bound, expires, '', opaque))];
}

/** What of the 402 has to give way. */
export function marksOf({ mpp, x402 }: Reissue): string[] {
  return [
    ...(mpp ? [mpp.expires, mpp.opaque, ...mpp.challenges.map(({ id }) => id)] : []),
    ...(x402 ? [x402.nonce] : []),
  ];
}

/** A UUID in base64, which has no other signs than letters and digits then, and no padding. */
export function newNonce(): string {
  return Buffer.from(randomUUID()).toString('base64');
}

export function opaqueOf([before, after]: Mpp['around'], nonce: string): string {
  return Buffer.from(before + nonce + after).toString('base64url');
}

/**
 * The id is mppx's: HMAC-SHA256 over `realm|method|intent|request|expires|digest|opaque` (mppx 0.11 Challenge.js,
 * computeId), done here with the platform's crypto because mppx spends 0.3 ms on it in JavaScript.
 * @param bound `realm|method|intent|request`
 */
export function challengeId(key: string, bound: string, expires: string, digest: string, opaque: string): string {
  return createHmac('sha256', key).update(`${bound}|${expires}|${digest}|${opaque}`).digest('base64url');
}
