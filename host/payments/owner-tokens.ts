/** Short-lived bearer tokens for owners: one slug, fifteen minutes, an HMAC and no state. Issued against a proof. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { OwnerTokens, Payer } from './types.ts';

const LIFE_MS = 15 * 60_000;

const claims = z.object({
  slug: z.string(),
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
  return {
    issue(slug, payer) {
      const expiresAt = now() + LIFE_MS;
      const body = Buffer.from(JSON.stringify({ slug, ...payer, expiresAt })).toString('base64url');
      return { token: `owner_${body}.${sign(body).toString('base64url')}`, expiresAt };
    },

    verify(slug, token) {
      const match = /^owner_([\w-]{1,1024})\.([\w-]{43})$/.exec(token);
      if (!match?.[1] || !match[2]) return undefined;
      const given = Buffer.from(match[2], 'base64url');
      const expected = sign(match[1]);
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
      const parsed = claims.safeParse(JSON.parse(Buffer.from(match[1], 'base64url').toString('utf8')));
      if (!parsed.success || parsed.data.slug !== slug || parsed.data.expiresAt <= now()) return undefined;
      return { address: parsed.data.address as Payer['address'], did: parsed.data.did };
    },
  };
}
