/** The days of watches: charged in advance, once each, never for time in which a watch did not run. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chargeDue, resume, resumeAll } from '../../builtin-tenants/deals/src/watches/charging.ts';
import { chargeKey, duePeriod, LATE_MS } from '../../builtin-tenants/deals/src/watches/periods.ts';
import { type ChargedWatches, chargedWatches, DAY_PRICE, ledgerIsSound } from './support/charged-watches.ts';
import { DAY_MS, HOUR_MS, NOON } from './support/parts.ts';

let rig: ChargedWatches;

beforeEach(async () => {
  rig = await chargedWatches(NOON);
});
afterEach(() => {
  expect(ledgerIsSound(rig.pay)).toBe(true);
  rig.close();
});

const sweep = async (now = rig.now) => {
  rig.now = now;
  await chargeDue(rig.watches, rig.credit, now);
  await resumeAll(rig.watches, rig.credit, now);
};
const states = (...ids: string[]) => ids.map((id) => rig.row(id).state);

describe('periods', () => {
  test.each([
    ['before the end of the paid time', -1, undefined],
    ['at its very end', 0, 0],
    ['as late as it may be', LATE_MS, 0],
    ['later', LATE_MS + 1_000, LATE_MS + 1_000],
    ['three days later, in the middle of a second', 3 * DAY_MS + 999, 3 * DAY_MS],
  ])('%s', (_name, late, start) => {
    expect(duePeriod(NOON, NOON + late)).toBe(start === undefined ? undefined : NOON + start);
  });

  test('have keys of UTC seconds, over a leap day too', () => {
    const last = Date.UTC(2028, 1, 28, 23, 59, 59);
    expect(chargeKey('wat_1', last)).toBe('watch_day:wat_1:2028-02-28T23:59:59Z');
    expect(chargeKey('wat_1', last + DAY_MS)).toBe('watch_day:wat_1:2028-02-29T23:59:59Z');
    expect(chargeKey('wat_1', last + 2 * DAY_MS)).toBe('watch_day:wat_1:2028-03-01T23:59:59Z');
  });

  test('follow one another by 24 hours over a leap day', async () => {
    rig.now = Date.UTC(2028, 1, 28, 23, 59, 59);
    await rig.account('acc_1', 10 * DAY_PRICE);
    const watch = await rig.create('acc_1');
    for (let day = 1; day <= 3; day++) await sweep(Date.UTC(2028, 1, 28, 23, 59, 59) + day * DAY_MS);
    expect(rig.charged(watch).map((key) => key.slice(-20))).toEqual([
      '2028-02-29T23:59:59Z',
      '2028-03-01T23:59:59Z',
      '2028-03-02T23:59:59Z',
    ]);
  });
});

test('the first 24 hours are paid by the creation; then each day is charged once, however often the sweep runs', async () => {
  await rig.account('acc_1', 10 * DAY_PRICE);
  const watch = await rig.create('acc_1');
  await sweep(NOON + DAY_MS - 1_000);
  expect(rig.charged()).toEqual([]);
  for (let minute = 0; minute < 5; minute++) await sweep(NOON + DAY_MS + minute * 60_000);
  expect(rig.charged()).toEqual([chargeKey(watch, NOON + DAY_MS)]);
  expect(rig.row(watch)).toMatchObject({ state: 'running', paid_through: NOON + 2 * DAY_MS });
});

test('the same paid request makes one watch', async () => {
  await rig.account('acc_1', DAY_PRICE);
  const input = JSON.parse(rig.row(await rig.create('acc_1')).query);
  expect(input).toEqual({});
  const [{ count } = { count: 0 }] = rig.deals.sql<{ count: number }>('SELECT count(*) AS count FROM watches');
  const watch = { query: {}, trigger: { on: ['enter'] }, every_s: 900, delivery: { feed: true } } as never;
  const first = await rig.watches.create('acc_1', 'req_same', watch, NOON);
  const again = await rig.watches.create('acc_1', 'req_same', watch, NOON + HOUR_MS);
  expect(again.watch).toEqual(first.watch);
  expect(rig.deals.sql<{ count: number }>('SELECT count(*) AS count FROM watches')[0]?.count).toBe(count + 1);
});

test('99,999 micro-USD suspend the watch as of the end of its paid time, 100,000 do not', async () => {
  await rig.account('acc_1', DAY_PRICE - 1);
  await rig.account('acc_2', DAY_PRICE);
  const [poor, rich] = [await rig.create('acc_1'), await rig.create('acc_2')];
  await sweep(NOON + DAY_MS + 120_000);
  expect(states(poor, rich)).toEqual(['suspended', 'running']);
  expect(rig.row(poor).suspended_at).toBe(NOON + DAY_MS);
  expect(await rig.ledger.available('acc_1')).toBe(DAY_PRICE - 1);
  expect(await rig.ledger.available('acc_2')).toBe(0);
});

test('a suspended watch costs nothing, and a top-up begins its day then', async () => {
  await rig.account('acc_1', 0);
  const watch = await rig.create('acc_1');
  for (let hour = 24; hour < 100; hour++) await sweep(NOON + hour * HOUR_MS);
  expect(rig.charged()).toEqual([]);
  rig.now = NOON + 100 * HOUR_MS + 1_234;
  await rig.grant('acc_1', 5 * DAY_PRICE);
  await resume(rig.watches, rig.credit, 'acc_1', rig.now);
  expect(rig.charged()).toEqual([chargeKey(watch, NOON + 100 * HOUR_MS + 1_000)]);
  expect(rig.row(watch)).toMatchObject({
    state: 'running',
    suspended_at: null,
    paid_through: NOON + 100 * HOUR_MS + 1_000 + DAY_MS,
  });
});

describe('a paused watch', () => {
  test('is neither charged nor evaluated nor resumed by credit, and keeps no other one waiting', async () => {
    await rig.account('acc_1', 10 * DAY_PRICE);
    const paused = await rig.create('acc_1');
    rig.now = NOON + 1_000;
    const other = await rig.create('acc_1');
    expect(await rig.watches.pause('acc_2', paused, NOON)).toBeUndefined();
    await rig.watches.pause('acc_1', paused, NOON + HOUR_MS);
    expect((await rig.watches.takeDue(NOON + 13 * HOUR_MS, 10)).map(({ id }) => id)).toEqual([other]);
    await sweep(NOON + DAY_MS + 60_000);
    await rig.grant('acc_1', DAY_PRICE);
    await resume(rig.watches, rig.credit, 'acc_1', rig.now);
    expect(rig.charged()).toEqual([chargeKey(other, NOON + DAY_MS + 1_000)]);
    expect(rig.row(paused)).toMatchObject({ state: 'suspended', paid_through: NOON + DAY_MS });
    // Another one that waits for credit is behind it in age, not in line.
    await rig.watches.unpause('acc_1', other, rig.now);
    expect(states(other)).toEqual(['running']);
    await rig.watches.unpause('acc_1', paused, NOON + 3 * DAY_MS);
    await sweep(NOON + 3 * DAY_MS);
    expect(rig.charged(paused)).toEqual([chargeKey(paused, NOON + 3 * DAY_MS)]);
    expect(states(paused)).toEqual(['running']);
    expect(await rig.watches.pause('acc_1', paused, rig.now)).toMatchObject({ suspended_at: rig.now });
    await rig.watches.delete('acc_1', paused, rig.now);
    expect(await rig.watches.unpause('acc_1', paused, rig.now)).toBeUndefined();
  });

  test('goes on at once with what is left of its paid day', async () => {
    await rig.account('acc_1', DAY_PRICE);
    const watch = await rig.create('acc_1');
    await rig.watches.pause('acc_1', watch, NOON + HOUR_MS);
    await rig.watches.pause('acc_1', watch, NOON + 2 * HOUR_MS);
    expect(rig.row(watch)).toMatchObject({ paused_at: NOON + HOUR_MS });
    await rig.watches.unpause('acc_1', watch, NOON + 3 * HOUR_MS);
    expect(rig.row(watch)).toMatchObject({ state: 'running', suspended_at: null, paid_through: NOON + DAY_MS });
    expect(rig.charged()).toEqual([]);
  });

  test.each(['before', 'after'] as const)(
    'that is paused %s its day is booked has that day, and no other',
    async (when) => {
      await rig.account('acc_1', 5 * DAY_PRICE);
      const watch = await rig.create('acc_1');
      rig[when] = () => {
        // The statement is done before the next one begins.
        void rig.watches.pause('acc_1', watch, rig.now);
      };
      for (let day = 1; day <= 4; day++) await sweep(NOON + day * DAY_MS);
      expect(rig.charged()).toEqual([chargeKey(watch, NOON + DAY_MS)]);
      expect(rig.row(watch)).toMatchObject({
        state: 'suspended',
        paid_through: NOON + 2 * DAY_MS,
        period_start: null,
      });
    },
  );

  test('without credit waits for it when it goes on', async () => {
    await rig.account('acc_1', 0);
    const watch = await rig.create('acc_1');
    await sweep(NOON + DAY_MS);
    await rig.watches.pause('acc_1', watch, rig.now);
    await rig.grant('acc_1', DAY_PRICE);
    await sweep(NOON + 2 * DAY_MS);
    expect(rig.charged()).toEqual([]);
    await rig.watches.unpause('acc_1', watch, rig.now);
    expect(states(watch)).toEqual(['suspended']);
    await sweep(NOON + 2 * DAY_MS + 60_000);
    expect(states(watch)).toEqual(['running']);
  });
});

test('a top-up resumes the oldest first, as far as it goes', async () => {
  await rig.account('acc_1', 0);
  const ids: string[] = [];
  for (let second = 0; second < 3; second++) {
    rig.now = NOON + second * 1_000;
    ids.push(await rig.create('acc_1'));
  }
  await sweep(NOON + 2 * DAY_MS);
  expect(states(...ids)).toEqual(['suspended', 'suspended', 'suspended']);
  await rig.grant('acc_1', 2 * DAY_PRICE + 1);
  await resume(rig.watches, rig.credit, 'acc_1', rig.now);
  expect(states(...ids)).toEqual(['running', 'running', 'suspended']);
  expect(await rig.ledger.available('acc_1')).toBe(1);
});

test('hundreds of watches without credit keep nobody behind them waiting', async () => {
  await rig.account('acc_poor', 0);
  await rig.account('acc_rich', DAY_PRICE);
  for (let count = 0; count < 450; count++) await rig.create('acc_poor');
  rig.now = NOON + 1_000;
  const watch = await rig.create('acc_rich');
  await rig.ledger.charge({ key: 'spent', account: 'acc_rich', service: 'x', amount: DAY_PRICE, usage: '[]' });
  await sweep(NOON + 2 * DAY_MS);
  expect(states(watch)).toEqual(['suspended']);
  await rig.grant('acc_rich', DAY_PRICE);
  await sweep(NOON + 2 * DAY_MS + 60_000);
  expect(states(watch)).toEqual(['running']);
});

test('a top-up between refusal and suspension is taken up by the same sweep', async () => {
  await rig.account('acc_1', 0);
  const watch = await rig.create('acc_1');
  rig.now = NOON + DAY_MS;
  let waiting: Promise<void> | undefined;
  rig.after = () => {
    waiting ??= rig.grant('acc_1', DAY_PRICE);
  };
  await chargeDue(rig.watches, rig.credit, rig.now);
  await waiting;
  delete rig.after;
  await resumeAll(rig.watches, rig.credit, rig.now);
  expect(states(watch)).toEqual(['running']);
  expect(rig.charged()).toEqual([chargeKey(watch, NOON + DAY_MS)]);
});

test('an account without credit is asked about once a sweep, however many of its watches wait', async () => {
  await rig.account('acc_poor', 0);
  for (let count = 0; count < 30; count++) await rig.create('acc_poor');
  await sweep(NOON + 2 * DAY_MS);
  let asked = 0;
  const { credit } = rig;
  const counting: typeof credit = {
    ...credit,
    charge(charges) {
      asked += charges.length;
      return credit.charge(charges);
    },
  };
  await resumeAll(rig.watches, counting, NOON + 2 * DAY_MS + 60_000);
  expect(asked).toBe(1);
});

test('what one scheduler is charging, another one leaves alone, and a top-up meanwhile is taken up afterwards', async () => {
  await rig.account('acc_1', 0);
  const watch = await rig.create('acc_1');
  rig.now = NOON + 2 * DAY_MS;
  const refused = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  // It is refused before the top-up, and writes that down after the other one looked.
  const slow: typeof rig.credit = {
    ...rig.credit,
    async charge(charges) {
      const outcomes = await rig.credit.charge(charges);
      refused.resolve();
      await go.promise;
      return outcomes;
    },
  };
  const first = chargeDue(rig.watches, slow, rig.now);
  await refused.promise;
  await rig.grant('acc_1', 2 * DAY_PRICE);
  await sweep();
  expect(rig.charged(watch)).toEqual([]);
  go.resolve();
  await first;
  await sweep(NOON + 2 * DAY_MS + 60_000);
  expect(rig.row(watch)).toMatchObject({ state: 'running', paid_through: NOON + 3 * DAY_MS + 60_000 });
  expect(rig.charged(watch)).toEqual([chargeKey(watch, NOON + 2 * DAY_MS + 60_000)]);
});

test('two schedulers on one boundary charge one day', async () => {
  await rig.account('acc_1', 10 * DAY_PRICE);
  const ids = await Promise.all(Array.from({ length: 5 }, () => rig.create('acc_1')));
  rig.now = NOON + DAY_MS;
  await Promise.all([sweep(NOON + DAY_MS), sweep(NOON + DAY_MS), sweep(NOON + DAY_MS + 1_000)]);
  expect(rig.charged()).toHaveLength(5);
  expect(await rig.ledger.available('acc_1')).toBe(5 * DAY_PRICE);
  for (const id of ids) expect(rig.row(id).paid_through).toBe(NOON + 2 * DAY_MS);
});

test('two schedulers that are late by different seconds agree on the start', async () => {
  await rig.account('acc_1', 10 * DAY_PRICE);
  const watch = await rig.create('acc_1');
  const late = NOON + DAY_MS + LATE_MS;
  rig.now = late + 1_000;
  await Promise.all([
    chargeDue(rig.watches, rig.credit, late),
    chargeDue(rig.watches, rig.credit, late + 1_000),
    chargeDue(rig.watches, rig.credit, late + 2_000),
  ]);
  expect(rig.charged(watch)).toHaveLength(1);
  expect(rig.row(watch).state).toBe('running');
});

test('three days’ outage are not billed: the day begins when the sweep comes back', async () => {
  await rig.account('acc_1', 10 * DAY_PRICE);
  const watch = await rig.create('acc_1');
  await sweep(NOON + 4 * DAY_MS);
  expect(rig.charged()).toEqual([chargeKey(watch, NOON + 4 * DAY_MS)]);
  expect(rig.row(watch).paid_through).toBe(NOON + 5 * DAY_MS);
});

describe('cut off', () => {
  const cut = () => {
    throw new Error('cut off');
  };

  test('after the charge and before it was noted: the same key again, one charge', async () => {
    await rig.account('acc_1', 10 * DAY_PRICE);
    const watch = await rig.create('acc_1');
    rig.now = NOON + DAY_MS;
    rig.after = cut;
    await expect(chargeDue(rig.watches, rig.credit, rig.now)).rejects.toThrow('cut off');
    expect(rig.charged()).toHaveLength(1);
    expect(rig.row(watch).paid_through).toBe(NOON + DAY_MS);
    delete rig.after;
    await sweep(NOON + DAY_MS + 600_000);
    expect(rig.charged()).toEqual([chargeKey(watch, NOON + DAY_MS)]);
    expect(rig.row(watch).paid_through).toBe(NOON + 2 * DAY_MS);
  });

  test('so, and away for hours: what was charged counts', async () => {
    await rig.account('acc_1', 10 * DAY_PRICE);
    const watch = await rig.create('acc_1');
    rig.now = NOON + DAY_MS;
    rig.after = cut;
    await expect(chargeDue(rig.watches, rig.credit, rig.now)).rejects.toThrow('cut off');
    delete rig.after;
    await sweep(NOON + DAY_MS + 5 * HOUR_MS);
    expect(rig.charged(watch)).toHaveLength(1);
    expect(rig.row(watch)).toMatchObject({ state: 'running', paid_through: NOON + 2 * DAY_MS });
  });

  test('before the charge, and away for hours: the start that was agreed on is given up, and time away is free', async () => {
    await rig.account('acc_1', 10 * DAY_PRICE);
    const watch = await rig.create('acc_1');
    rig.now = NOON + DAY_MS;
    rig.before = cut;
    await expect(chargeDue(rig.watches, rig.credit, rig.now)).rejects.toThrow('cut off');
    delete rig.before;
    const back = NOON + DAY_MS + 5 * HOUR_MS;
    await sweep(back);
    await sweep(back + 60_000);
    expect(rig.charged(watch)).toHaveLength(1);
    const row = rig.row(watch);
    expect(row.state).toBe('running');
    expect(row.paid_through).toBeGreaterThanOrEqual(back + DAY_MS);
  });
});

describe('DELETE', () => {
  test('ends the charges, is idempotent, and is the account’s own', async () => {
    await rig.account('acc_1', 10 * DAY_PRICE);
    const watch = await rig.create('acc_1');
    expect(await rig.watches.delete('acc_2', watch, NOON)).toBe(false);
    expect(await rig.watches.delete('acc_1', watch, NOON)).toBe(true);
    expect(await rig.watches.delete('acc_1', watch, NOON)).toBe(true);
    await sweep(NOON + 2 * DAY_MS);
    expect(rig.charged()).toEqual([]);
  });

  test('against the day’s charge: charged once or not at all, and never again', async () => {
    await rig.account('acc_1', 1_000 * DAY_PRICE);
    for (let round = 0; round < 20; round++) {
      const watch = await rig.create('acc_1');
      const due = rig.row(watch).paid_through;
      rig.now = due;
      await Promise.all([
        chargeDue(rig.watches, rig.credit, due),
        (async () => {
          for (let more = 0; more < round; more++) await new Promise((resolve) => setImmediate(resolve));
          await rig.watches.delete('acc_1', watch, due);
        })(),
      ]);
      const before = rig.charged(watch).length;
      expect(before).toBeLessThanOrEqual(1);
      expect(rig.row(watch).state).toBe('deleted');
      for (let day = 1; day < 3; day++) await sweep(due + day * DAY_MS);
      expect(rig.charged(watch)).toHaveLength(before);
      expect(rig.row(watch).state).toBe('deleted');
      rig.now = NOON;
    }
  });
});

test('an unpaid watch is never given out for evaluation', async () => {
  await rig.account('acc_1', 0);
  await rig.create('acc_1');
  expect(await rig.watches.takeDue(NOON + DAY_MS - 1_000, 10)).toHaveLength(1);
  await rig.create('acc_1');
  expect(await rig.watches.takeDue(NOON + 2 * DAY_MS, 10)).toEqual([]);
  await sweep(NOON + 2 * DAY_MS);
  expect(await rig.watches.takeDue(NOON + 2 * DAY_MS, 10)).toEqual([]);
});
