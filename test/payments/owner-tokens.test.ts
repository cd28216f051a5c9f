import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { createOwnerTokens } from '../../host/payments/owner-tokens.ts';
import { growing, Passes } from '../../host/payments/passes.ts';
import { type OpenClaims, openClaims } from '../registry/support/claims.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const MINUTE_MS = 60_000;
const payer = { address: `0x${'1'.repeat(40)}`, did: 'did:pkh:eip155:1:0x1' } as const;

let claims: OpenClaims;

beforeAll(async () => {
  claims = await openClaims();
});
afterAll(() => claims.close());
beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

/** Those of a node, as it starts. */
function tokensOf(trustedNow: () => number, highest = NOW) {
  const now = growing(trustedNow, highest);
  return createOwnerTokens(new Passes({ purpose: 'owner-token', key: Buffer.alloc(32), keys: claims.keys, now }));
}

it('a token ends after fifteen minutes, and no clock that is set back revives it', async () => {
  let clock = NOW;
  const tokens = tokensOf(() => clock);
  const { token } = tokens.issue('hello', payer);
  expect(await tokens.verify('hello', token)).toEqual(payer);
  clock += 16 * MINUTE_MS;
  expect(await tokens.verify('hello', token)).toBeUndefined();
  clock -= 60 * MINUTE_MS;
  expect(await tokens.verify('hello', token)).toBeUndefined();
  // After a restart, too: what was believed before is kept.
  expect(await tokensOf(() => clock, NOW + 16 * MINUTE_MS).verify('hello', token)).toBeUndefined();
  // One that is issued while the clock is behind ends like any other.
  const later = tokens.issue('hello', payer).token;
  vi.advanceTimersByTime(14 * MINUTE_MS);
  expect(await tokens.verify('hello', later)).toEqual(payer);
  vi.advanceTimersByTime(2 * MINUTE_MS);
  expect(await tokens.verify('hello', later)).toBeUndefined();
});

it('a session is for every slug of its wallet, lasts an hour, and can be ended, at all nodes', async () => {
  const tokens = tokensOf(() => NOW);
  const { token } = tokens.issue(null, payer);
  expect(await tokens.verify('hello', token)).toEqual({ ...payer, isSession: true });
  expect(await tokens.read(token)).toMatchObject({ slug: null, payer });
  vi.advanceTimersByTime(59 * MINUTE_MS);
  const later = tokens.issue(null, payer).token;
  expect(await tokens.read(token)).toBeDefined();
  vi.advanceTimersByTime(2 * MINUTE_MS);
  expect(await tokens.read(token)).toBeUndefined();
  expect(await tokens.end('owner_nothing')).toBe(false);
  expect(await tokens.end(later)).toBe(true);
  expect(await tokens.read(later)).toBeUndefined();
  expect(await tokensOf(() => NOW).read(later)).toBeUndefined();
  expect(await tokens.verify('hello', later)).toBeUndefined();
  expect(await tokens.end(later)).toBe(false);
  // The last digit has bits that say nothing.
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = digits.indexOf(later.at(-1) ?? '');
  for (const bits of [1, 2, 3]) expect(await tokens.read(later.slice(0, -1) + digits[last ^ bits])).toBeUndefined();
});
