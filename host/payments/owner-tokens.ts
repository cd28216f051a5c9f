/**
 * Short-lived bearer tokens for owners, issued against a proof. One for a slug lasts fifteen minutes; one for all slugs of
 * a wallet, which a browser holds (a session), an hour.
 */
import type { Passes } from './passes.ts';
import type { OwnerTokens, Payer } from './types.ts';

const LIFE_MS = 15 * 60_000;
const SESSION_MS = 60 * 60_000;
const PREFIX = 'owner_';

/** `slug`: null for every slug of the wallet. */
export type OwnerClaims = { slug: string | null } & Payer;

export function createOwnerTokens(passes: Passes<OwnerClaims>): OwnerTokens {
  const passOf = (token: string) => (token.startsWith(PREFIX) ? token.slice(PREFIX.length) : '');
  const tokens: OwnerTokens = {
    issue(slug, payer) {
      const { token, expiresAt } = passes.issue({ slug, ...payer }, slug === null ? SESSION_MS : LIFE_MS);
      return { token: PREFIX + token, expiresAt };
    },

    async read(token) {
      const read = await passes.read(passOf(token));
      return read && { slug: read.slug, payer: { address: read.address, did: read.did }, expiresAt: read.expiresAt };
    },

    async verify(slug, token) {
      const read = await tokens.read(token);
      if (read?.slug === null) return { ...read.payer, isSession: true };
      return read?.slug === slug ? read.payer : undefined;
    },

    async end(token) {
      return (await passes.end(passOf(token))) !== undefined;
    },
  };
  return tokens;
}
