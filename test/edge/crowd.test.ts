/** One tenant alone, or several: when the edge says so. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Crowd } from '../../host/edge/crowd.ts';

describe('who goes through the edge', () => {
  let said: boolean[];
  let crowd: Crowd;

  /** One after the other, every 10 ms. */
  function pass(slugs: string[], ms: number): void {
    for (let at = 0; at < ms; at += 10) {
      crowd.seen(slugs[(at / 10) % slugs.length] ?? '');
      vi.advanceTimersByTime(10);
    }
  }

  beforeEach(() => {
    vi.useFakeTimers();
    said = [];
    crowd = new Crowd((alone) => said.push(alone));
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('the first tenant is alone at once, and stays so without a timer', () => {
    pass(['one'], 3_000);
    expect(said).toEqual([true]);
    expect(crowd.alone).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('another is told of at its first request, and that it has gone a second later', () => {
    pass(['one'], 100);
    crowd.seen('two');
    expect(said).toEqual([true, false]);
    crowd.seen('one');
    vi.advanceTimersByTime(990);
    expect(said).toEqual([true, false]);
    vi.advanceTimersByTime(20);
    expect(said).toEqual([true, false, true]);
    expect(crowd.alone).toBe(true);
  });

  test('two that take turns are a crowd for as long as both come', () => {
    pass(['one', 'two'], 5_000);
    expect(said).toEqual([true, false]);
    pass(['two'], 900);
    expect(crowd.alone).toBe(false);
    pass(['two'], 200);
    expect(said).toEqual([true, false, true]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('who comes every half a second counts all the time', () => {
    for (let round = 0; round < 10; round += 1) {
      crowd.seen('two');
      pass(['one'], 500);
    }
    expect(said).toEqual([true, false]);
  });

  test('what control answers counts as one more', () => {
    pass(['one'], 100);
    crowd.seen('');
    expect(crowd.alone).toBe(false);
  });
});
