import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Activity } from '../../host/runtime/activity.ts';
import { TrackRecord } from '../../host/runtime/track-record.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance', 'Date'] }));
afterEach(() => void vi.useRealTimers());

/** The machine's clock is set; no time passes. */
function stepClock(ms: number): void {
  vi.setSystemTime(Date.now() + ms);
}

const CRASH = { reason: 'crashed', detail: 'It ended with code 1.', at: 0 } as const;
const SWELL = { reason: 'memory_exceeded', detail: 'It held 200 MB.', at: 0 } as const;

describe('a track record', () => {
  it('lets a slug start again after its pause, with the reason until then', () => {
    const record = new TrackRecord();
    record.failed(CRASH, 0);
    expect(record.pauseMs).toBe(0);
    record.failed(CRASH, 0);
    expect(record.pauseMs).toBe(1_000);
    expect(() => record.refuseWhileBackingOff()).toThrow('2 times in a row, last with crashed: It ended with code 1.');
    vi.advanceTimersByTime(1_000);
    expect(record.pauseMs).toBe(0);
    record.refuseWhileBackingOff();
  });

  it('gives a new revision a new chance', () => {
    const record = new TrackRecord();
    for (let i = 0; i < 5; i++) record.failed(CRASH, 0);
    record.startAfresh();
    record.refuseWhileBackingOff();
    expect(record.lastExit).toEqual(CRASH);
  });

  it('remembers for a minute that a limit was exceeded', () => {
    const record = new TrackRecord();
    expect(record.exceededLately).toBe(false);
    record.failed(CRASH, 0);
    expect(record.exceededLately).toBe(false);
    record.failed(SWELL, 0);
    expect(record.exceededLately).toBe(true);
    vi.advanceTimersByTime(60_000);
    expect(record.exceededLately).toBe(false);
  });

  it('keeps its pauses where the clock steps', () => {
    const record = new TrackRecord();
    for (let i = 0; i < 3; i++) record.failed(CRASH, 0);
    for (const hours of [1, -2]) {
      stepClock(hours * 3_600_000);
      expect(record.pauseMs).toBe(2_000);
    }
  });
});

describe('activity', () => {
  it('counts what edges report, for a while, and scheduled runs until they end', async () => {
    const activity = new Activity();
    activity.report(3, 2);
    expect(activity.inFlight).toBe(2);
    // Another edge has none.
    activity.report(0, 0);
    expect(activity.inFlight).toBe(2);
    vi.advanceTimersByTime(2_500);
    expect(activity.inFlight).toBe(0);
    const run = Promise.withResolvers<void>();
    const running = activity.run(() => run.promise);
    expect(activity.inFlight).toBe(1);
    run.reject(new Error('it failed'));
    await expect(running).rejects.toThrow('it failed');
    expect(activity.inFlight).toBe(0);
  });

  it('is renewed by requests, not by silence', () => {
    const activity = new Activity();
    vi.advanceTimersByTime(500);
    activity.report(1, 0);
    const then = activity.lastActive;
    vi.advanceTimersByTime(500);
    activity.report(0, 0);
    expect(activity.lastActive).toBe(then);
    activity.touch();
    expect(activity.lastActive).toBe(then + 500);
  });

  it('does not change where the clock steps', () => {
    const activity = new Activity();
    activity.report(1, 1);
    const { lastActive } = activity;
    stepClock(3_600_000);
    expect(activity.inFlight).toBe(1);
    activity.touch();
    expect(activity.lastActive).toBe(lastActive);
  });
});
