import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createScheduler, type Scheduler } from '../../host/scheduler/index.ts';
import { AdjustableClock, ManualClock } from '../../host/shared/clock.ts';

const START = Date.parse('2026-11-21T10:00:00Z');
const MINUTE = 60_000;
const log = pino({ level: 'silent' });
/** Lets everything that is ready run. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

let clock: ManualClock;
let scheduler: Scheduler;

beforeEach(() => {
  clock = new ManualClock(START);
  scheduler = createScheduler({ clock, log });
});

afterEach(() => scheduler.stop());

describe('at', () => {
  test('runs once when its time is reached, not before', async () => {
    const work = vi.fn();
    scheduler.at(START + MINUTE, 'expiry', work);
    clock.advance(MINUTE - 1);
    await settle();
    expect(work).not.toHaveBeenCalled();
    clock.advance(1);
    await settle();
    clock.advance(MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(1);
  });

  test('runs soon when its time is past, never when cancelled', async () => {
    const past = vi.fn();
    const cancelled = vi.fn();
    scheduler.at(START - 1, 'past', past);
    scheduler.at(START + 1, 'cancelled', cancelled)();
    await expect.poll(() => past).toHaveBeenCalledTimes(1);
    clock.advance(MINUTE);
    await settle();
    expect(cancelled).not.toHaveBeenCalled();
  });
});

describe('every', () => {
  test('a long gap is one run, and a run that lasts is not joined by another', async () => {
    const running = Promise.withResolvers<void>();
    const work = vi.fn(() => running.promise);
    scheduler.every(MINUTE, 'sweep', work);
    clock.advance(10 * MINUTE);
    await settle();
    clock.advance(10 * MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(1);
    running.resolve();
    await settle();
    clock.advance(MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(2);
  });

  test('goes on after the clock was set back, and after an error', async () => {
    const work = vi.fn(() => {
      throw new Error('expected');
    });
    scheduler.every(MINUTE, 'sweep', work);
    clock.advance(-24 * 60 * MINUTE);
    clock.advance(MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(1);
    clock.advance(MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(2);
  });
});

describe('cron', () => {
  const times = (work: ReturnType<typeof vi.fn>) =>
    work.mock.calls.map(([time]) => new Date(time).toISOString().slice(11, 16));

  test('runs at its occurrences with the time they were scheduled for', async () => {
    const work = vi.fn();
    scheduler.cron('*/5 * * * *', 'test', work);
    for (let minute = 0; minute < 11; minute++) {
      clock.advance(MINUTE + 7);
      await settle();
    }
    expect(times(work)).toEqual(['10:05', '10:10']);
  });

  test('makes up for the last missed occurrence at start, once', async () => {
    const work = vi.fn();
    scheduler.cron('0 * * * *', 'test', work, { lastRun: START - 3 * 24 * 60 * MINUTE });
    await expect.poll(() => times(work)).toEqual(['10:00']);
    clock.advance(59 * MINUTE);
    await settle();
    expect(work).toHaveBeenCalledTimes(1);
  });

  test('does not run at start when nothing was missed', async () => {
    const work = vi.fn();
    scheduler.cron('0 * * * *', 'test', work, { lastRun: START });
    scheduler.cron('0 * * * *', 'new', work);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(work).not.toHaveBeenCalled();
  });

  test('occurrences during a run do not pile up: the last follows it', async () => {
    const runs: PromiseWithResolvers<void>[] = [];
    const work = vi.fn(() => {
      const run = Promise.withResolvers<void>();
      runs.push(run);
      return run.promise;
    });
    scheduler.cron('* * * * *', 'test', work);
    for (let minute = 0; minute < 10; minute++) {
      clock.advance(MINUTE);
      await settle();
    }
    expect(times(work)).toEqual(['10:01']);
    runs[0]?.resolve();
    await expect.poll(() => times(work)).toEqual(['10:01', '10:10']);
    runs[1]?.resolve();
  });

  test('a clock set back by minutes repeats nothing; set back by a day it goes on from there', async () => {
    const work = vi.fn();
    scheduler.cron('*/10 * * * *', 'test', work);
    clock.advance(10 * MINUTE);
    await settle();
    clock.advance(-5 * MINUTE);
    clock.advance(5 * MINUTE);
    await settle();
    expect(times(work)).toEqual(['10:10']);
    clock.advance(-24 * 60 * MINUTE);
    clock.advance(10 * MINUTE);
    await settle();
    expect(times(work)).toEqual(['10:10', '10:20']);
  });
});

test('real time passes too: a job due in some milliseconds runs without a step', async () => {
  const real = createScheduler({ clock: new AdjustableClock(), log });
  const work = vi.fn();
  real.at(Date.now() + 20, 'soon', work);
  await expect.poll(() => work).toHaveBeenCalled();
  await real.stop();
});

test('the clock of the system set back by an hour silences nothing, set ahead it makes up for what is due', async () => {
  vi.useFakeTimers({ now: START, toFake: ['Date', 'setTimeout', 'clearTimeout'] });
  const real = createScheduler({ clock: new AdjustableClock(), log });
  try {
    const often = vi.fn();
    const hourly = vi.fn();
    real.every(5_000, 'usage', often);
    real.cron('0 * * * *', 'hourly', hourly);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(often).toHaveBeenCalledTimes(4);
    vi.setSystemTime(Date.now() - 60 * MINUTE);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(often.mock.calls.length).toBeGreaterThanOrEqual(10);
    expect(hourly).not.toHaveBeenCalled();
    vi.setSystemTime(START + 61 * MINUTE);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(hourly.mock.calls).toEqual([[START + 60 * MINUTE]]);
  } finally {
    await real.stop();
    vi.useRealTimers();
  }
});

test('stop waits for what runs and starts nothing more', async () => {
  const run = Promise.withResolvers<void>();
  const work = vi.fn(() => run.promise);
  scheduler.every(MINUTE, 'sweep', work);
  clock.advance(MINUTE);
  await settle();
  let stopped = false;
  const stopping = scheduler.stop().then(() => {
    stopped = true;
  });
  await settle();
  expect(stopped).toBe(false);
  run.resolve();
  await stopping;
  clock.advance(MINUTE);
  await settle();
  expect(work).toHaveBeenCalledTimes(1);
});
