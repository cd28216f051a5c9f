/** When a slug gets one more instance, and when it has one too many. */
import { expect, test } from 'vitest';
import { isSpreadable } from '../../host/bindings/durable-objects/classes.ts';
import { InstanceCount } from '../../host/runtime/instance-count.ts';

interface Second {
  count?: number;
  /** Cores that the event loops had, and for which they waited. */
  ran: number;
  waited?: number;
  inFlight?: number;
  idle?: number;
}

/** What is decided, by the second in which it is. */
function decisions(seconds: Second[], limits = { most: 4, idleCores: 0.5 }): string[] {
  const instances = new InstanceCount();
  let ranMs = 0;
  let waitedMs = 0;
  return seconds.flatMap(({ count = 1, ran, waited = 0, inFlight = 9, idle = 2 }, second) => {
    ranMs += ran * 1_000;
    waitedMs += waited * 1_000;
    const load = { count, ranMs, waitedMs, inFlight };
    const change = instances.sample(second * 1_000, load, idle, limits);
    return change === undefined ? [] : [`${second} ${change}`];
  });
}

const repeat = (second: Second, times: number): Second[] => Array.from({ length: times }, () => second);

test('a core that is used all the time while requests wait and cores are idle brings one more', () => {
  expect(decisions(repeat({ ran: 0.97 }, 6))).toEqual(['3 more']);
});

test('neither does a core that is not full, one caller after the other, a busy machine, nor the last that may be', () => {
  expect(decisions(repeat({ ran: 0.8 }, 20))).toEqual([]);
  expect(decisions(repeat({ ran: 0.97, inFlight: 1 }, 20))).toEqual([]);
  expect(decisions(repeat({ ran: 0.97, idle: 0.3 }, 20))).toEqual([]);
  expect(decisions(repeat({ count: 4, ran: 3.9 }, 20))).toEqual([]);
  expect(decisions([...repeat({ ran: 0.97 }, 3), { ran: 0.5 }, ...repeat({ ran: 0.97 }, 2)])).toEqual([]);
});

test('who waits for a core wants it as much as who has it, where idle cores are not asked for', () => {
  expect(decisions(repeat({ ran: 0.3, waited: 0.65, idle: 0 }, 6), { most: 2, idleCores: 0 })).toEqual(['3 more']);
});

test('one goes when the others would have an easy time, when cores are wanted elsewhere, or fewer are allowed', () => {
  expect(decisions(repeat({ count: 2, ran: 0.55 }, 12))).toEqual(['10 fewer']);
  expect(decisions(repeat({ count: 2, ran: 0.7 }, 30))).toEqual([]);
  expect(decisions(repeat({ count: 2, ran: 1, waited: 0.9, idle: 0 }, 12))).toEqual(['10 fewer']);
  expect(decisions(repeat({ count: 5, ran: 4.9 }, 12))).toEqual(['10 fewer']);
});

test('a deployment whose instance keeps what all have to agree on stays in one', () => {
  expect(isSpreadable({ kv: true, d1: true, r2: true })).toBe(true);
  expect(isSpreadable({ durableObjects: { ROOMS: { class: 'Room' } } })).toBe(false);
  expect(isSpreadable({ queues: { Q: { queue: 'q' } } })).toBe(false);
  expect(isSpreadable({ ratelimit: { LIMIT: { limit: 1, period: 10 } } })).toBe(false);
  expect(isSpreadable({ d1: true }, true)).toBe(false);
});
