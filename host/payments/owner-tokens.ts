/**
 * Short-lived bearer tokens for owners, issued against a proof: an HMAC and no state. One for a slug lasts fifteen
 * minutes; one for all slugs of a wallet, which a browser holds (a session), an hour.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { OwnerTokens, Payer } from './types.ts';

const LIFE_MS = 15 * 60_000;
const SESSION_MS = 60 * 60_000;
/** Sessions that were ended before their time; where there are more, the oldest is forgotten. */
const MOST_ENDED = 10_000;

const claims = z.object({
  /** Null: every slug of the wallet. */
  slug: z.string().nullable(),
  address: z.string().regex(/^0x[0-9a-f]{40}$/),
  did: z.string(),
  expiresAt: z.number(),
});

/**
 * @param trustedNow trusted business time, ms
 * @param highest the latest that was trusted before, ms
 */
export function createOwnerTokens(key: Buffer, trustedNow: () => number, highest: number): OwnerTokens {
  let latest = highest;
  let asked = performance.now();
  // Goes on where the clock is set back: that must not revive a token.
  const now = () => {
    const elapsed = performance.now() - asked;
    asked += elapsed;
    latest = Math.max(latest + elapsed, trustedNow());
    return Math.floor(latest);
  };
  const sign = (body: string) => createHmac('sha256', key).update(body).digest();
  const ended = new Set<string>();
  const tokens: OwnerTokens = {
    issue(slug, payer) {
      const expiresAt = now() + (slug === null ? SESSION_MS : LIFE_MS);
      const body = Buffer.from(JSON.stringify({ slug, ...payer, expiresAt })).toString('base64url');
      return { token: `owner_${body}.${sign(body).toString('base64url')}`, expiresAt };
    },

    read(token) {
      const match = /^owner_([\w-]{1,1024})\.([\w-]{43})$/.exec(token);
      if (!match?.[1] || !match[2]) return undefined;
      const given = Buffer.from(match[2], 'base64url');
      const expected = sign(match[1]);
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
      const parsed = claims.safeParse(JSON.parse(Buffer.from(match[1], 'base64url').toString('utf8')));
      if (!parsed.success || parsed.data.expiresAt <= now() || ended.has(given.toString('hex'))) return undefined;
      const { slug, address, did, expiresAt } = parsed.data;
      return { slug, payer: { address: address as Payer['address'], did }, expiresAt };
    },

    verify(slug, token) {
      const read = tokens.read(token);
      if (read?.slug === null) return { ...read.payer, isSession: true };
      return read?.slug === slug ? read.payer : undefined;
    },

    end(token) {
      if (!tokens.read(token)) return false;
      const [oldest] = ended;
      if (ended.size >= MOST_ENDED && oldest !== undefined) ended.delete(oldest);
      // As bytes: the same signature can be written in several ways.
      ended.add(Buffer.from(token.slice(token.indexOf('.') + 1), 'base64url').toString('hex'));
      return true;
    },
  };
  return tokens;
}
