/**
 * `extra.challenge` of an offer, which clients of v2 send back with what they accepted: the token of a tenant's own
 * challenge, where there is one, and a nonce that one caller alone was told.
 */

const NONCE = /(?:^|\.)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** @param nonce a UUID */
export function withChallenge(extra: Record<string, unknown>, nonce: string): Record<string, unknown> {
  const { challenge, ...rest } = extra;
  return { ...rest, challenge: challenge === undefined ? nonce : `${challenge}.${nonce}` };
}

/** @param challenge as a payer sent it: anything */
export function hasNonce(challenge: unknown): boolean {
  return typeof challenge === 'string' && NONCE.test(challenge);
}

/** What stands before the nonce. Those of former versions have none. */
export function tokenOf(challenge: unknown): unknown {
  return typeof challenge === 'string' ? challenge.replace(NONCE, '') : challenge;
}
