/** One tenant alone, or several: when the edge says so. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Contention } from '../../host/edge/contention.ts';

describe('who goes through the edge', () => {
  let said: boolean[];
  let contention: Contention;

  /** One after the other, every 10 ms. */
  function pass(slugs: string[], ms: number): void {
    for (let at = 0; at < ms; at += 10) {
      contention.seen(slugs[(at / 10) % slugs.length] ?? '');
      vi.advanceTimersByTime(10);
    }
  }

  beforeEach(() => {
    vi.useFakeTimers();
    said = [];
    contention = new Contention((alone) => said.push(alone));
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('the first tenant is alone at once, and stays so without a timer', () => {
    pass(['one'], 3_000);
    expect(said).toEqual([true]);
    expect(contention.alone).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('another is told of at its first request, and that it has gone a second later', () => {
    pass(['one'], 100);
    contention.seen('two');
    expect(said).toEqual([true, false]);
    contention.seen('one');
    vi.advanceTimersByTime(990);
    expect(said).toEqual([true, false]);
    vi.advanceTimersByTime(20);
    expect(said).toEqual([true, false, true]);
    expect(contention.alone).toBe(true);
  });

  test('two tenants that take turns contend for as long as both come', () => {
    pass(['one', 'two'], 5_000);
    expect(said).toEqual([true, false]);
    pass(['two'], 900);
    expect(contention.alone).toBe(false);
    pass(['two'], 200);
    expect(said).toEqual([true, false, true]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('who comes every half a second counts all the time', () => {
    for (let round = 0; round < 10; round += 1) {
      contention.seen('two');
      pass(['one'], 500);
    }
    expect(said).toEqual([true, false]);
  });

  test('what control answers counts as one more', () => {
    pass(['one'], 100);
    contention.seen('');
    expect(contention.alone).toBe(false);
  });
});
