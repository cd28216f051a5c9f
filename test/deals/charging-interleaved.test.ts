/**
 * Two schedulers and a top-up in every order of their steps in which each is interrupted once, each scheduler killed or
 * not: whatever happens, a later sweep finds what was charged and nothing is charged twice.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Credit, chargeDue, resumeAll } from '../../builtin-tenants/deals/src/watches/charging.ts';
import { LATE_MS, PERIOD_MS } from '../../builtin-tenants/deals/src/watches/periods.ts';
import { Watches } from '../../builtin-tenants/deals/src/watches/watch-store.ts';
import { type ChargedWatches, chargedWatches, DAY_PRICE, ledgerIsSound } from './support/charged-watches.ts';
import { DAY_MS, NOON } from './support/parts.ts';
import { gatedDatabase, Stepped } from './support/stepped.ts';

let rig: ChargedWatches;

beforeEach(async () => {
  rig = await chargedWatches(NOON);
});
afterEach(() => {
  expect(ledgerIsSound(rig.pay)).toBe(true);
  rig.close();
});

/** A scheduler whose every step on the database, every question to the platform and every answer waits to be let through. */
function scheduler(now: number): Stepped {
  return new Stepped(async (gate) => {
    const watches = new Watches(gatedDatabase(rig.deals, gate), () => rig.now);
    const credit: Credit = {
      async charge(charges) {
        await gate();
        const outcomes = await rig.credit.charge(charges);
        await gate();
        return outcomes;
      },
      async wasCharged(key) {
        await gate();
        return rig.credit.wasCharged(key);
      },
    };
    await chargeDue(watches, credit, now);
    await resumeAll(watches, credit, now);
  });
}

interface Order {
  /** Steps of the first scheduler before the second begins, and of the second before the first goes on. */
  first: number;
  second: number;
  /** When the money comes: before the second scheduler, after its steps, or when the first one has ended. */
  topUp: 0 | 1 | 2;
  killed: 'none' | 'first' | 'second' | 'both';
}

let accounts = 0;

/** So late that each scheduler begins the day by its own clock: two days that overlap, if both were charged. */
const LATE = LATE_MS + 60_000;
/** How far the clocks of the schedulers are apart. */
const APART_MS = 5_000;

/** Two watches of an account with half a day's credit, after the end of their paid time. */
async function play({ first, second, topUp, killed }: Order, days: number) {
  const account = `acc_${++accounts}`;
  rig.now += 10 * DAY_MS;
  await rig.account(account, DAY_PRICE / 2);
  const ids: string[] = [];
  for (let age = 2; age > 0; age--) {
    rig.now += 1_000;
    ids.push(await rig.create(account));
  }
  rig.now += DAY_MS + LATE;
  const now = rig.now;
  const one = scheduler(now);
  const other = scheduler(now + APART_MS);
  const pay = async (moment: Order['topUp']) => {
    if (moment === topUp && days > 0) await rig.grant(account, days * DAY_PRICE);
  };
  // Less where it has no more steps.
  const taken = { first: await one.step(first), second: 0 };
  await pay(0);
  taken.second = await other.step(second);
  await pay(1);
  if (killed === 'none' || killed === 'second') await one.finish();
  await pay(2);
  if (killed === 'none' || killed === 'first') await other.finish();

  // What a killed run left is settled once its time is over.
  for (const minutes of [3, 6]) {
    rig.now = now + minutes * 60_000;
    await chargeDue(rig.watches, rig.credit, rig.now);
    await resumeAll(rig.watches, rig.credit, rig.now);
  }
  const faults: string[] = [];
  const left = await rig.ledger.available(account);
  let running = 0;
  for (const [index, id] of ids.entries()) {
    const { state, paid_through } = rig.row(id);
    const starts = rig.charged(id).map((key) => Date.parse(key.slice(-20)));
    if (index === 1 && running === 0 && state === 'running') faults.push('the younger one runs alone');
    if (starts.length > 1) faults.push(`watch ${index} was charged for ${starts.length} days`);
    for (const start of starts)
      if (start < now - 1_000 || start > rig.now) faults.push(`watch ${index} begins its day at ${start - now}`);
    const [start] = starts;
    const paid = start !== undefined && rig.now < start + PERIOD_MS;
    if (paid !== (state === 'running')) faults.push(`watch ${index} is ${state}, paid: ${paid}`);
    if (paid && paid_through !== start + PERIOD_MS) faults.push(`watch ${index} is paid through ${paid_through}`);
    if (paid) running++;
    else if (left >= DAY_PRICE) faults.push(`watch ${index} is suspended with ${left} left`);
    await rig.watches.delete(account, id, rig.now);
  }
  if (left !== days * DAY_PRICE + DAY_PRICE / 2 - running * DAY_PRICE) faults.push(`${left} are left`);
  if (running !== Math.min(2, days)) faults.push(`${running} run`);
  return { faults, taken };
}

test.each([
  ['nothing', 0],
  ['one of two', 1],
  ['both', 2],
])(
  'a top-up that funds %s',
  async (_name, days) => {
    const wrong: object[] = [];
    let orders = 0;
    for (const killed of ['none', 'first', 'second', 'both'] as const) {
      for (const topUp of days === 0 ? ([0] as const) : ([0, 1, 2] as const)) {
        // Until the schedulers have no more steps than they took the time before.
        for (let first = 0, firstEnded = false; !firstEnded; first++) {
          for (let second = 0, secondEnded = false; !secondEnded; second++) {
            const { faults, taken } = await play({ first, second, topUp, killed }, days);
            firstEnded = taken.first < first;
            secondEnded = taken.second < second;
            orders++;
            if (faults.length > 0) wrong.push({ first, second, topUp, killed, faults });
          }
        }
      }
    }
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(orders).toBeGreaterThan(days === 0 ? 200 : 600);
  },
  300_000,
);
