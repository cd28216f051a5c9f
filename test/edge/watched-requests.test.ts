import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { ProxiedRequest } from '../../host/edge/proxied-request.ts';
import { WatchedRequests } from '../../host/edge/watched-requests.ts';
import type { SeenRequest } from '../../host/shared/contracts.ts';

let told: SeenRequest[][];
let watched: WatchedRequests;
beforeEach(() => {
  vi.useFakeTimers();
  told = [];
  watched = new WatchedRequests((requests) => told.push(requests));
});
afterEach(() => vi.useRealTimers());

const finish = (slug: string | undefined, target = '/one/a?b', prefix = '/one') =>
  watched.finished({
    slug,
    place: { prefix },
    exchange: { head: { method: 'GET', target } },
    status: 200,
    startedAt: performance.now(),
  } as unknown as ProxiedRequest);

it('tells of watched slugs alone, with the path that the tenant sees, and together', () => {
  finish('one');
  watched.watch(['one']);
  for (const slug of ['one', 'two', undefined]) finish(slug);
  finish('one', '/one?q', '/one');
  finish('one', '/whole', '');
  expect(told).toEqual([]);
  vi.advanceTimersByTime(1_000);
  expect(told).toEqual([
    ['/a?b', '/?q', '/whole'].map((path) => ({
      slug: 'one',
      method: 'GET',
      path,
      status: 200,
      ms: expect.any(Number),
    })),
  ]);
  watched.watch([]);
  finish('one');
  vi.advanceTimersByTime(1_000);
  expect(told).toHaveLength(1);
});

it('is bounded whatever callers send', () => {
  watched.watch(['one']);
  for (let i = 0; i < 10_000; i++) finish('one', `/${'x'.repeat(20_000)}`, '');
  vi.advanceTimersByTime(1_000);
  expect(told).toHaveLength(1);
  expect(told[0]).toHaveLength(100);
  expect(told[0]?.[0]?.path.length).toBeLessThan(2_100);
});
