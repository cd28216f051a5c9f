import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Gas, settlementCost, transactionsOf } from '../../host/payments/methods/x402/gas.ts';
import { OfferBook } from '../../host/payments/offers.ts';
import { custodyOf, type Terms } from '../../host/payments/terms.ts';
import type { Registry } from '../../host/registry/index.ts';
import { type Money, micro, ZERO } from '../../host/shared/money.ts';
import { openTestRegistry } from '../registry/support/open.ts';

let folder: string;
let registry: Registry;
let now: number;
let changes: number;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-gas-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  now = Date.UTC(2026, 0, 1, 12);
  changes = 0;
});
afterEach(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

const CHAIN = 1;
const GWEI = 1_000_000_000n;

async function gas(price: bigint, minPrice: Money = ZERO): Promise<Gas> {
  const clock = { now: () => now } as never;
  const onChange = () => {
    changes += 1;
  };
  const options = { registry, clock, coinUsd: 4_000, minPrice, budget: micro(25_000), onChange };
  const made = new Gas({ ...options, gasPrices: new Map([[CHAIN, async () => price]]) });
  await made.refresh();
  return made;
}

function terms(amount: number, more: Partial<Terms> = {}): Terms {
  return { kind: 'route', tenant: 't', amount: micro(amount), mode: 'fixed', slow: false, feeBps: 0, ...more } as Terms;
}

test('what settling costs is the least price', async () => {
  // 150,000 units at 0.02 gwei are 0.000003 of a coin.
  expect(settlementCost(GWEI / 50n, 4_000)).toBe(12_000n);
  const dear = await gas(GWEI / 50n);
  expect([dear.mayOffer(terms(11_999), CHAIN), dear.mayOffer(terms(12_000), CHAIN)]).toEqual([false, true]);
  expect(dear.mayOffer(terms(1, { kind: 'operation' }), CHAIN)).toBe(true);
});

test('where a facilitator elsewhere settles, only the price that the operator named counts', async () => {
  const dear = await gas(GWEI, micro(500));
  await dear.note('t', CHAIN, 0);
  expect([dear.mayOffer(terms(499), CHAIN, 0), dear.mayOffer(terms(500), CHAIN, 0)]).toEqual([false, true]);
  expect(await dear.use()).toEqual([]);
});

test('what takes two transactions costs twice as much', async () => {
  const dear = await gas(GWEI / 50n);
  expect([dear.mayOffer(terms(23_999), CHAIN, 2), dear.mayOffer(terms(24_000), CHAIN, 2)]).toEqual([false, true]);
  await dear.note('t', CHAIN, 2);
  expect((await dear.use())[0]?.spent).toBe(24_000n);
});

test('what may be sent back takes a second transaction', () => {
  const metered = terms(1, { mode: 'metered' });
  expect([
    transactionsOf('exact', terms(1)),
    transactionsOf('exact', metered),
    transactionsOf('upto', metered),
  ]).toEqual([1, 2, 1]);
  const live = { ...metered, live: true };
  expect([transactionsOf('exact', live), transactionsOf('upto', live)]).toEqual([2, 2]);
  expect(transactionsOf('exact', terms(1, { kind: 'binding', mode: 'metered' }))).toBe(1);
});

test('where gas costs nothing all is offered, unless a least price is set', async () => {
  expect((await gas(0n)).mayOffer(terms(1), CHAIN)).toBe(true);
  const set = await gas(0n, micro(500));
  expect([set.mayOffer(terms(499), CHAIN), set.mayOffer(terms(500), CHAIN)]).toEqual([false, true]);
  await set.note('t', CHAIN);
  expect(await set.use()).toEqual([]);
});

test('each network has its own least price, and all of them one budget', async () => {
  const clock = { now: () => now } as never;
  const two = new Gas({
    ...{ registry, clock, coinUsd: 4_000, minPrice: ZERO, budget: micro(25_000), onChange: () => {} },
    gasPrices: new Map([
      [1, async () => GWEI / 50n],
      [2, async () => GWEI / 25n],
      [3, async () => 0n],
    ]),
  });
  await two.refresh();
  const offered = () => [1, 2, 3].map((chain) => two.mayOffer(terms(12_000), chain));
  expect(offered()).toEqual([true, false, true]);
  expect(two.floor).toBe(0n);
  await two.note('t', 2);
  expect((await two.use())[0]?.spent).toBe(24_000n);
  await two.note('t', 1);
  expect(offered()).toEqual([false, false, true]);
});

test('a tenant’s budget is used up, over restarts, until the next day', async () => {
  const first = await gas(GWEI / 50n);
  await first.note('t', CHAIN);
  await first.note('t', CHAIN);
  expect(first.mayOffer(terms(20_000), CHAIN)).toBe(true);
  const before = changes;
  await (await gas(GWEI / 50n)).note('t', CHAIN);
  const again = await gas(GWEI / 50n);
  expect(again.mayOffer(terms(20_000), CHAIN)).toBe(false);
  expect(again.mayOffer(terms(20_000, { tenant: 'other' }), CHAIN)).toBe(true);
  expect(changes).toBeGreaterThan(before);
  expect(await again.use()).toEqual([{ tenant: 't', spent: 36_000n, budget: 25_000n, isUsedUp: true }]);
  now += 86_400_000;
  await again.refresh();
  expect(again.mayOffer(terms(20_000), CHAIN)).toBe(true);
});

test('a debtor’s offers are collected, as soon as the debt is known', () => {
  let owes = false;
  const rail = {
    name: 'tempo/charge',
    offer: (of: Terms) => ({
      via: 'mpp',
      intent: 'charge',
      method: 'tempo',
      request: {},
      custody: custodyOf({ takesParts: false, outlastsSlowWork: false }, of),
    }),
  };
  const offers = new OfferBook([rail as never], (tenant) => tenant === 't' && owes);
  const custody = (tenant: string) => offers.prepare(terms(10, { tenant })).offers[0]?.custody;
  expect(custody('t')).toBe('direct');
  owes = true;
  const { edition } = offers;
  offers.changed();
  expect(offers.edition).not.toBe(edition);
  expect([custody('t'), custody('other')]).toEqual(['collected', 'direct']);
  expect(custodyOf({ takesParts: true, outlastsSlowWork: true }, terms(10, { collected: true }))).toBe('collected');
});
