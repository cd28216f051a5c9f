/**
 * A month of hundreds of watches with the real charging, the real ledger and two schedulers, with outages, cuts in the
 * middle of a charge, top-ups and deletions at random: every micro-USD is accounted for by a day that a watch ran.
 */
import { expect, test } from 'vitest';
import type { Database } from '../../builtin-tenants/deals/src/environment.ts';
import { chargeDue, resume, resumeAll } from '../../builtin-tenants/deals/src/watches/charging.ts';
import { LATE_MS, PERIOD_MS } from '../../builtin-tenants/deals/src/watches/periods.ts';
import { Watches } from '../../builtin-tenants/deals/src/watches/watch-store.ts';
import { chargedWatches, DAY_PRICE, ledgerIsSound } from './support/charged-watches.ts';
import { gatedDatabase } from './support/stepped.ts';

const MINUTE_MS = 60_000;
/** How far the clocks of two schedulers are apart. */
const APART_MS = 5_000;
const STEP_MS = 10 * MINUTE_MS;
/** Over a leap day. */
const START = Date.UTC(2028, 1, 10, 23, 59, 59);
const DAYS = 30;
const WATCHES = Number(process.env.MONTH_WATCHES ?? 400);
const ACCOUNTS = 40;
/** Another one makes another month. */
const SEED = Number(process.env.TEST_SEED ?? 20_280_210);

/** Numbers that are the same in every run (mulberry32). */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Period {
  start: number;
  bookedAt: number;
}

test('charges equal running days to the micro-USD, none runs unpaid, none is paid but idle', async () => {
  const next = random(SEED);
  const pick = (below: number) => Math.floor(next() * below);
  const rig = await chargedWatches(START);
  const granted = new Map<string, number>();
  const give = async (account: string, days: number) => {
    // Seldom a whole number of days.
    const amount = Math.max(1, days * DAY_PRICE - pick(DAY_PRICE));
    granted.set(account, (granted.get(account) ?? 0) + amount);
    await rig.grant(account, amount);
  };
  const accounts = Array.from({ length: ACCOUNTS }, (_, index) => `acc_${index}`);
  for (const account of accounts) {
    await rig.account(account, 0);
    await give(account, 1 + pick(400));
  }
  const watches: { id: string; account: string; createdAt: number; deletedAt?: number }[] = [];
  const byId = new Map<string, (typeof watches)[number]>();
  const periods = new Map<string, Period[]>();
  let seen = 0;
  const readCharges = () => {
    const rows = rig.pay.sql<{ place: number; key: string; at: number }>(
      "SELECT rowid AS place, request_id AS key, at FROM ledger_transactions WHERE kind = 'charge' AND rowid > ? ORDER BY rowid",
      seen,
    );
    for (const { place, key, at } of rows) {
      seen = place;
      const [, id = '', start = ''] = /^watch_day:([^:]+):(.+)$/.exec(key) ?? [];
      periods.set(id, [...(periods.get(id) ?? []), { start: Date.parse(start), bookedAt: at }]);
    }
  };
  const isPaid = (watch: { id: string; createdAt: number }, at: number) =>
    (at >= watch.createdAt && at < watch.createdAt + PERIOD_MS) ||
    (periods.get(watch.id) ?? []).some(({ start }) => at >= start && at < start + PERIOD_MS);

  const faults: string[] = [];
  let [outages, cutOff, topUps, deletions, evaluations] = [0, 0, 0, 0, 0];
  let awayUntil = 0;
  let calm = 0;
  const end = START + DAYS * PERIOD_MS;
  for (let at = START; at < end; at += STEP_MS) {
    rig.now = at + pick(MINUTE_MS);
    const { now } = rig;
    // A watch is born every few minutes in the first days.
    for (let born = 0; born < 3 && watches.length < WATCHES; born++) {
      const account = accounts[pick(ACCOUNTS)] ?? '';
      const watch = { id: await rig.create(account), account, createdAt: Math.floor(now / 1_000) * 1_000 };
      watches.push(watch);
      byId.set(watch.id, watch);
    }
    if (now < awayUntil) {
      calm = 0;
      continue;
    }
    if (next() < 0.006) {
      outages++;
      awayUntil = now + (next() < 0.1 ? 3 * PERIOD_MS : pick(3 * 3_600_000));
      continue;
    }
    if (next() < 0.05) {
      const account = accounts[pick(ACCOUNTS)] ?? '';
      topUps++;
      await give(account, 1 + pick(60));
      // The platform tells of it at once, most of the time.
      if (next() < 0.7) await resume(rig.watches, rig.credit, account, now);
    }
    // Schedulers may be cut off before or after any charge, and at any step on the database.
    const resumes = Math.round((at - START) / STEP_MS) % 6 === 0;
    const cut = next() < 0.03;
    if (cut) {
      let left = 1 + pick(3);
      const moment = next() < 0.5 ? 'before' : 'after';
      rig[moment] = () => {
        if (--left <= 0) throw new Error('cut off');
      };
    }
    const stopped = next() < 0.03;
    let steps = pick(30);
    const stopping = gatedDatabase(rig.deals, async () => {
      if (steps-- <= 0) throw new Error('stopped');
    });
    const scheduler = async (time: number, db = rig.deals as Database) => {
      const watches = new Watches(db, () => rig.now);
      await chargeDue(watches, rig.credit, time);
      // Accounts without credit are asked about once an hour here, for the sake of the test's own time.
      if (resumes) await resumeAll(watches, rig.credit, time);
    };
    const deletion = async () => {
      if (next() >= 0.03) return;
      const watch = watches[pick(watches.length)];
      if (!watch || watch.deletedAt !== undefined) return;
      deletions++;
      await rig.watches.delete(watch.account, watch.id, now);
      watch.deletedAt = now;
    };
    // Often a second one meets the first on the same boundary.
    const second = next() < 0.4 ? [scheduler(now + pick(APART_MS))] : [];
    const ends = await Promise.allSettled([scheduler(now, stopped ? stopping : rig.deals), ...second, deletion()]);
    delete rig.before;
    delete rig.after;
    const failed = ends.filter(({ status }) => status === 'rejected').length;
    if (failed > 0) {
      cutOff++;
      calm = 0;
    } else calm++;
    expect(failed).toBeLessThanOrEqual((cut ? 2 : 0) + (stopped ? 1 : 0));

    readCharges();
    // What the service would evaluate now must be paid.
    for (const { id } of await rig.watches.takeDue(now, 100_000)) {
      evaluations++;
      const watch = byId.get(id);
      if (!watch || !(isPaid(watch, now) || isPaid(watch, now + APART_MS))) faults.push(`${id} runs unpaid at ${now}`);
    }
    if (calm < 2 || pick(4) > 0) continue;
    // In calm time whatever is paid runs, and whoever has credit has nothing suspended.
    const states = new Map(
      rig.deals.sql<{ id: string; state: string }>('SELECT id, state FROM watches').map(({ id, state }) => [id, state]),
    );
    for (const watch of watches) {
      const state = states.get(watch.id);
      if (watch.deletedAt !== undefined) {
        if (state !== 'deleted') faults.push(`${watch.id} came back`);
      } else if (state === 'running') {
        if (!isPaid(watch, now) && !isPaid(watch, now + APART_MS)) faults.push(`${watch.id} runs unpaid at ${now}`);
        // Of clocks that are apart one may find its paid time over while it goes on by the other.
      } else if (resumes && isPaid(watch, now) && isPaid(watch, now + APART_MS))
        faults.push(`${watch.id} is paid but ${state} at ${now}`);
    }
    if (resumes) {
      for (const account of new Set(
        watches.filter(({ id }) => states.get(id) === 'suspended').map((one) => one.account),
      ))
        if ((await rig.ledger.available(account)) >= DAY_PRICE) faults.push(`${account} has credit at ${now}`);
    }
  }
  expect(faults.slice(0, 10)).toEqual([]);

  // The books: what was granted is what is left and what was charged, and each charge is one day of one watch.
  let charges = 0;
  for (const watch of watches) {
    const days = (periods.get(watch.id) ?? []).toSorted((a, b) => a.start - b.start);
    charges += days.length;
    let freeFrom = watch.createdAt + PERIOD_MS;
    for (const { start, bookedAt } of days) {
      expect(start, 'days of one watch do not overlap').toBeGreaterThanOrEqual(freeFrom);
      expect(bookedAt - start, 'no time of the past is billed').toBeLessThanOrEqual(LATE_MS + MINUTE_MS);
      if (watch.deletedAt !== undefined) expect(start).toBeLessThanOrEqual(watch.deletedAt);
      freeFrom = start + PERIOD_MS;
    }
  }
  expect(rig.charged()).toHaveLength(charges);
  let left = 0;
  for (const account of accounts) left += await rig.ledger.available(account);
  const total = [...granted.values()].reduce((sum, amount) => sum + amount, 0);
  expect(total - left).toBe(charges * DAY_PRICE);
  const [revenue] = rig.pay.sql<{ balance: number }>(
    "SELECT balance FROM ledger_accounts WHERE id = 'revenue:deals-watches'",
  );
  expect(revenue?.balance).toBe(charges * DAY_PRICE);
  expect(ledgerIsSound(rig.pay)).toBe(true);

  // The month had something of everything.
  expect(watches).toHaveLength(WATCHES);
  expect(charges).toBeGreaterThan(5_000);
  expect(evaluations).toBeGreaterThan(10_000);
  for (const count of [outages, cutOff, topUps, deletions]) expect(count).toBeGreaterThan(5);
  const resumed = [...periods.values()].flatMap((days) =>
    days.slice(1).filter((day, index) => day.start > (days[index]?.start ?? 0) + PERIOD_MS),
  );
  expect(resumed.length).toBeGreaterThan(100);
  rig.close();
}, 400_000);
