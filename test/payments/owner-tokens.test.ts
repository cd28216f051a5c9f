import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createOwnerTokens } from '../../host/payments/owner-tokens.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const MINUTE_MS = 60_000;
const payer = { address: `0x${'1'.repeat(40)}`, did: 'did:pkh:eip155:1:0x1' } as const;

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

it('a token ends after fifteen minutes, and no clock that is set back revives it', () => {
  let clock = NOW;
  const key = Buffer.alloc(32);
  const tokens = createOwnerTokens(key, () => clock, NOW);
  const { token } = tokens.issue('hello', payer);
  expect(tokens.verify('hello', token)).toEqual(payer);
  clock += 16 * MINUTE_MS;
  expect(tokens.verify('hello', token)).toBeUndefined();
  clock -= 60 * MINUTE_MS;
  expect(tokens.verify('hello', token)).toBeUndefined();
  // After a restart, too: what was believed before is kept.
  expect(createOwnerTokens(key, () => clock, NOW + 16 * MINUTE_MS).verify('hello', token)).toBeUndefined();
  // One that is issued while the clock is behind ends like any other.
  const later = tokens.issue('hello', payer).token;
  vi.advanceTimersByTime(14 * MINUTE_MS);
  expect(tokens.verify('hello', later)).toEqual(payer);
  vi.advanceTimersByTime(2 * MINUTE_MS);
  expect(tokens.verify('hello', later)).toBeUndefined();
});
