/** What was used once stays used, whatever the clock does. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Registry } from '../../host/registry/index.ts';
import { Books } from '../../host/registry/payments/books.ts';
import { PaymentKeys } from '../../host/registry/payments/keys.ts';
import { paymentClaims } from '../../host/registry/payments/schema.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

let folder: string;
let registry: Registry;
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'claims-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

const open = () => new PaymentKeys(new Books(registry, new ManualClock(NOW)));
const kept = async () => (await registry.db.select().from(paymentClaims)).map(({ key }) => key);

it('a proof is not accepted again after the clock was set back, in this process and the next', async () => {
  const keys = open();
  const expires = NOW + 5 * MINUTE_MS;
  expect(await keys.claim('proof:a', expires)).toBe(true);
  await keys.sweep(DAY_MS, NOW + 10 * MINUTE_MS, NOW + 10 * MINUTE_MS);
  expect(await kept()).toEqual(['proof:a']);
  expect(await keys.claim('proof:a', expires)).toBe(false);
  await keys.sweep(DAY_MS, NOW + 2 * DAY_MS, NOW + 2 * DAY_MS);
  expect(await kept()).toEqual([]);
  expect(await keys.claim('proof:a', expires)).toBe(false);
  expect(await open().claim('proof:a', expires)).toBe(false);
  // What comes after the clock is set back does not make it forget that.
  await keys.sweep(DAY_MS, NOW, NOW);
  expect(await open().claim('proof:a', expires)).toBe(false);
});

it('a clock that was a year ahead refuses what was used before, and nothing that is made afterwards', async () => {
  const keys = open();
  expect(await keys.claim('proof:a', NOW + 5 * MINUTE_MS)).toBe(true);
  await keys.sweep(DAY_MS, NOW + 365 * DAY_MS, NOW + 365 * DAY_MS);
  expect(await kept()).toEqual([]);
  expect(await keys.claim('proof:a', NOW + 5 * MINUTE_MS)).toBe(false);
  expect(await keys.claim('proof:b', NOW + DAY_MS + 5 * MINUTE_MS)).toBe(true);
  expect(await keys.claim('proof:b', NOW + DAY_MS + 5 * MINUTE_MS)).toBe(false);
});

it('a clock that was an hour ahead refuses no proof that is made afterwards', async () => {
  const keys = open();
  await keys.sweep(DAY_MS, NOW + 60 * MINUTE_MS, NOW + 60 * MINUTE_MS);
  expect(await keys.claim('proof:b', NOW + 5 * MINUTE_MS)).toBe(true);
});
