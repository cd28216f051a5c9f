/**
 * Short-lived bearer tokens for owners, issued against a proof: an HMAC, which each node of a host can check. One for a
 * slug lasts fifteen minutes; one for all slugs of a wallet, which a browser holds (a session), an hour. That one was
 * ended before its time is in the registry.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { PaymentKeys } from '../registry/payments/keys.ts';
import type { OwnerTokens, Payer } from './types.ts';

const LIFE_MS = 15 * 60_000;
const SESSION_MS = 60 * 60_000;

const claims = z.object({
  /** Null: every slug of the wallet. */
  slug: z.string().nullable(),
  address: z.string().regex(/^0x[0-9a-f]{40}$/),
  did: z.string(),
  expiresAt: z.number(),
});

/**
 * @param keys remembers which were ended
 * @param trustedNow trusted business time, ms
 * @param highest the latest that was trusted before, ms
 */
export function createOwnerTokens(
  key: Buffer,
  keys: Pick<PaymentKeys, 'claim' | 'isClaimed'>,
  trustedNow: () => number,
  highest: number,
): OwnerTokens {
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
  // By the bytes of the signature: the same one can be written in several ways.
  const endOf = (given: string) => `owner-token:${Buffer.from(given, 'base64url').toString('hex')}`;
  const tokens: OwnerTokens = {
    issue(slug, payer) {
      const expiresAt = now() + (slug === null ? SESSION_MS : LIFE_MS);
      const body = Buffer.from(JSON.stringify({ slug, ...payer, expiresAt })).toString('base64url');
      return { token: `owner_${body}.${sign(body).toString('base64url')}`, expiresAt };
    },

    async read(token) {
      const match = /^owner_([\w-]{1,1024})\.([\w-]{43})$/.exec(token);
      if (!match?.[1] || !match[2]) return undefined;
      const given = Buffer.from(match[2], 'base64url');
      const expected = sign(match[1]);
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
      const parsed = claims.safeParse(JSON.parse(Buffer.from(match[1], 'base64url').toString('utf8')));
      if (!parsed.success || parsed.data.expiresAt <= now()) return undefined;
      if (await keys.isClaimed(endOf(match[2]))) return undefined;
      const { slug, address, did, expiresAt } = parsed.data;
      return { slug, payer: { address: address as Payer['address'], did }, expiresAt };
    },

    async verify(slug, token) {
      const read = await tokens.read(token);
      if (read?.slug === null) return { ...read.payer, isSession: true };
      return read?.slug === slug ? read.payer : undefined;
    },

    async end(token) {
      const read = await tokens.read(token);
      // Claims go by real time, which business time may be behind.
      const until = Math.max(read?.expiresAt ?? 0, Date.now() + SESSION_MS);
      return read !== undefined && (await keys.claim(endOf(token.slice(token.indexOf('.') + 1)), until));
    },
  };
  return tokens;
}
