import { describe, expect, it } from 'vitest';
import { afterFailure, NO_FAILURES } from '../../host/runtime/back-off.ts';
import { type Candidate, chooseEvictions } from '../../host/runtime/eviction.ts';
import { SoloTenant } from '../../host/runtime/solo-tenant.ts';
import { StallWatch } from '../../host/runtime/stall-watch.ts';
import { CpuShare } from '../../host/sandbox/cpu-share.ts';
import type { Appetite } from '../../host/shared/priority.ts';

describe('back-off', () => {
  it('forgives the first failure, then doubles up to a minute', () => {
    let record = NO_FAILURES;
    const pauses: number[] = [];
    for (let failure = 0; failure < 9; failure++) {
      record = afterFailure(record, 1_000, 0);
      pauses.push(record.retryAt - 1_000);
    }
    expect(pauses).toEqual([0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  });

  it('starts over after a good run', () => {
    const record = afterFailure({ count: 7, retryAt: 0 }, 0, 61_000);
    expect(record).toEqual({ count: 1, retryAt: 0 });
  });
});

describe('evictions', () => {
  const limits = { idleMs: 300_000, bloatedIdleMs: 10_000, bloatedBytes: 100, totalBytes: 1_000 };
  const now = 1_000_000;
  const one = (slug: string, idleMs: number, privateBytes = 10, inFlight = 0): Candidate => ({
    slug,
    lastActive: now - idleMs,
    inFlight,
    privateBytes,
  });

  it('a preview ends sooner, and never later than others', () => {
    const at = (idleMs: number, own: number) => ({ ...one('hello@0123456789ab', idleMs), idleMs: own });
    const ended = (candidate: Candidate) => chooseEvictions([candidate], limits, now).length;
    expect([ended(at(59_999, 60_000)), ended(at(60_000, 60_000)), ended(at(300_000, 900_000))]).toEqual([0, 1, 1]);
  });

  it('ends what is idle, and what is swollen sooner, but nothing with a request in flight', () => {
    const candidates = [
      one('a', 300_000),
      one('b', 299_999),
      one('c', 10_000, 100),
      one('d', 9_999, 100),
      one('e', 999_999, 500, 1),
    ];
    expect(chooseEvictions(candidates, limits, now)).toEqual([
      { slug: 'a', reason: 'idle' },
      { slug: 'c', reason: 'swollen' },
    ]);
  });

  it('makes room from the least recently used, until a tenth is free', () => {
    const candidates = [
      one('young', 1_000, 90),
      one('old', 9_000, 90),
      one('middle', 5_000, 90),
      one('busy', 9_999, 800, 2),
    ];
    expect(chooseEvictions(candidates, limits, now)).toEqual([
      { slug: 'old', reason: 'memory_pressure' },
      { slug: 'middle', reason: 'memory_pressure' },
    ]);
  });

  it('counts what is wanted on top, and leaves alone what was used this very moment', () => {
    const candidates = [one('now', 100, 50), one('before', 1_000, 50)];
    expect(chooseEvictions(candidates, limits, now, 901)).toEqual([{ slug: 'before', reason: 'memory_pressure' }]);
    expect(chooseEvictions(candidates, limits, now, 900)).toEqual([]);
  });
});

describe('stall watch', () => {
  function watch() {
    const seen = { stalls: 0, pings: 0 };
    let answer = (_: boolean): void => undefined;
    const stall = new StallWatch({
      limitMs: 10_000,
      ping: () => {
        seen.pings++;
        return new Promise((resolve) => {
          answer = resolve;
        });
      },
      onStall: () => seen.stalls++,
    });
    return { stall, seen, answer: (value: boolean) => answer(value) };
  }

  it('does not look at what does not burn CPU', () => {
    const { stall, seen } = watch();
    for (let second = 0; second < 60; second++) stall.sample(second * 1_000, second * 10);
    expect(seen).toMatchObject({ pings: 0, stalls: 0 });
  });

  it('reports a loop once it used its allowance', () => {
    const { stall, seen } = watch();
    for (let second = 0; second <= 10; second++) stall.sample(second * 1_000, second * 1_000);
    expect(seen.stalls).toBe(1);
  });

  it('lets busy work that answers go on', async () => {
    const { stall, seen, answer } = watch();
    for (let second = 0; second < 30; second++) {
      stall.sample(second * 1_000, second * 1_000);
      answer(true);
      await Promise.resolve();
    }
    expect(seen.stalls).toBe(0);
    expect(seen.pings).toBeGreaterThan(10);
  });

  it('asks ten times in the time that is allowed, and notices a loop that began right after an answer', async () => {
    const { stall, seen, answer } = watch();
    let at = 0;
    for (; at <= 20_000; at += 100) {
      stall.sample(at, at);
      answer(true);
      await Promise.resolve();
    }
    expect(seen).toEqual({ pings: 20, stalls: 0 });
    for (; seen.stalls === 0 && at < 60_000; at += 100) stall.sample(at, at);
    expect(at - 20_000).toBeLessThanOrEqual(11_100);
  });

  it('lets a loop go on that answers no ping and makes much of its answers, until it does not', async () => {
    const { stall, seen, answer } = watch();
    let at = 0;
    for (; at <= 60_000; at += 1_000) {
      stall.sample(at, at);
      stall.answered(5_000_000);
    }
    expect(seen).toEqual({ pings: 1, stalls: 0 });
    answer(false);
    await Promise.resolve();
    for (; seen.stalls === 0 && at < 90_000; at += 1_000) {
      stall.sample(at, at);
      // What slow callers still read out of buffers.
      stall.answered(100_000);
    }
    expect(seen).toEqual({ pings: 2, stalls: 1 });
    expect(at - 60_000).toBeLessThanOrEqual(12_000);
  });

  it('does not count the garbage collector twice: more CPU than time is time', () => {
    const { stall, seen } = watch();
    for (let second = 0; second <= 6; second++) stall.sample(second * 1_000, second * 2_000);
    expect(seen.stalls).toBe(0);
  });

  it('ends a loop that gets a tenth of a core after three times as long', () => {
    const { stall, seen } = watch();
    for (let second = 0; second <= 29; second++) stall.sample(second * 1_000, second * 100);
    expect(seen.stalls).toBe(0);
    stall.sample(30_000, 3_000);
    expect(seen.stalls).toBe(1);
  });
});

describe('solo tenant', () => {
  it('is whoever else did something in the last ten seconds', () => {
    const soloTenant = new SoloTenant();
    expect(soloTenant.isAlone('a', 0)).toBe(true);
    soloTenant.seen('a', 0);
    soloTenant.seen('a', 1_000);
    expect(soloTenant.isAlone('a', 1_000)).toBe(true);
    expect(soloTenant.isAlone('b', 1_000)).toBe(false);
    soloTenant.seen('b', 2_000);
    for (let at = 2_000; at < 12_000; at += 100) {
      soloTenant.seen('a', at);
      expect(soloTenant.isAlone('a', at)).toBe(false);
    }
    expect(soloTenant.isAlone('a', 12_000)).toBe(true);
  });

  it('is each of many', () => {
    const soloTenant = new SoloTenant();
    for (let at = 0; at < 30_000; at += 100) {
      for (const slug of ['a', 'b', 'c']) {
        soloTenant.seen(slug, at);
        if (at > 0) expect(soloTenant.isAlone(slug, at)).toBe(false);
      }
    }
  });
});

describe('share of a core', () => {
  /** Samples ten times a second. @param shares of a core, each for so many samples, and of the time without sleep */
  function changes(
    ...shares: [share: number, samples: number, sleepless?: number][]
  ): { appetite: Appetite; at: number }[] {
    const seen: { appetite: Appetite; at: number }[] = [];
    let [at, cpuMs, wantedMs] = [0, 0, 0];
    const share = new CpuShare();
    share.sample(at, { cpuMs, wantedMs });
    for (const [used, samples, wanted = used] of shares) {
      for (let sample = 0; sample < samples; sample++) {
        at += 100;
        cpuMs += used * 100;
        wantedMs += wanted * 100;
        const before = share.appetite;
        share.sample(at, { cpuMs, wantedMs });
        if (share.appetite !== before) seen.push({ appetite: share.appetite, at });
      }
    }
    return seen;
  }

  it('who takes a whole core is hungry after a tenth of a second, and no longer soon after it stops', () => {
    expect(changes([1, 20], [0, 110])).toEqual([
      { appetite: 'hungry', at: 100 },
      { appetite: 'steady', at: 2_200 },
      { appetite: 'light', at: 12_600 },
    ]);
  });

  it('who takes less than half of one, or a whole one for a moment, is not', () => {
    expect(changes([0.45, 100])).toEqual([]);
    const bursts = Array.from({ length: 20 }, (): [number, number][] => [
      [0.7, 1],
      [0, 5],
    ]);
    expect(changes(...bursts.flat())).toEqual([]);
  });

  it('who has wanted little for a second goes first, until it wants more; then it takes ten', () => {
    expect(changes([0.1, 30], [0.25, 30], [0.4, 30], [0.1, 50], [0.4, 5], [0.1, 110])).toEqual([
      { appetite: 'light', at: 1_100 },
      { appetite: 'steady', at: 6_100 },
      { appetite: 'light', at: 24_700 },
    ]);
  });

  it('who gets less because others want it, too, stays hungry', () => {
    expect(changes([1, 5], [0.34, 50])).toHaveLength(1);
  });

  it('who never sleeps does not go first, however little it gets', () => {
    expect(changes([0.05, 100, 1], [0.05, 20, 0.1])).toEqual([
      { appetite: 'light', at: 1_100 },
      { appetite: 'steady', at: 3_100 },
    ]);
  });

  it('who wants little is light although it waits for a core most of the time', () => {
    expect(changes([0.1, 100, 0.9])).toEqual([{ appetite: 'light', at: 1_100 }]);
  });

  it('counts by what was used where the kernel does not tell how long it waited', () => {
    const share = new CpuShare();
    for (let at = 0; at < 5_000; at += 100) share.sample(at, { cpuMs: at / 10 });
    expect(share.appetite).toBe('light');
  });

  it('who is taken for hungry is so until it has been seen to be modest', () => {
    const seen: number[] = [];
    const share = new CpuShare('hungry');
    let at = 0;
    for (let cpuMs = 0; at <= 3_000; at += 100, cpuMs += at <= 1_000 ? 100 : 5) {
      share.sample(at, { cpuMs });
      if (share.appetite === 'hungry') seen.push(at);
    }
    expect(seen.at(-1)).toBe(1_100);
  });

  it('a process that was replaced begins again', () => {
    const seen: Appetite[] = [];
    const share = new CpuShare();
    for (const [at, cpuMs] of [
      [0, 50_000],
      [100, 0],
      [200, 10],
      [300, 20],
    ] as const) {
      share.sample(at, { cpuMs });
      seen.push(share.appetite);
    }
    expect(new Set(seen)).toEqual(new Set(['steady']));
  });
});
