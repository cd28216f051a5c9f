/** Which instance a slug has, and what becomes of the one before. */
import { expect, test } from 'vitest';
import { BulkPace } from '../../host/edge/bulk-pace.ts';
import { Contention } from '../../host/edge/contention.ts';
import { Instances } from '../../host/edge/instances.ts';
import { readMemory } from '../../host/http/message/blocks.ts';
import type { AcquiredInstance } from '../../host/shared/contracts.ts';

function instances(acquire: () => Promise<AcquiredInstance>): Instances {
  return new Instances(acquire, readMemory(), new BulkPace(new Contention()));
}

test('callers that come at once share one start', async () => {
  let asked = 0;
  const all = instances(async () => {
    asked += 1;
    return { socket: '/s', generation: 1, first: 1 };
  });
  const [a, b] = await Promise.all([all.start('x'), all.start('x')]);
  expect(a).toBe(b);
  expect(asked).toBe(1);
  expect(all.current('x')).toBe(a);
});

test('a start that fails fails for all that waited, and is tried anew', async () => {
  let asked = 0;
  const all = instances(async () => {
    asked += 1;
    throw new Error('no');
  });
  const outcomes = await Promise.allSettled([all.start('x'), all.start('x')]);
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await expect(all.start('x')).rejects.toThrow('no');
  expect(asked).toBe(2);
});

test('more waiting callers than can be served are turned away', async () => {
  const all = instances(() => new Promise(() => {}));
  for (let i = 0; i < 1024; i += 1) void all.start('x');
  await expect(all.start('x')).rejects.toMatchObject({ code: 'overloaded' });
});

test('news of an older instance does not replace a newer one', () => {
  const all = instances(async () => ({ socket: '/s', generation: 1, first: 1 }));
  all.set({ slug: 'x', generation: 2, first: 2, socket: '/2' });
  all.set({ slug: 'x', generation: 1, first: 1, socket: '/1' });
  expect(all.current('x')?.generation).toBe(2);
});

test('retiring answers once nothing is in flight', async () => {
  const all = instances(async () => ({ socket: '/s', generation: 1, first: 1 }));
  all.set({ slug: 'x', generation: 1, first: 1, socket: '/1' });
  const instance = all.current('x')!;
  instance.enter();
  let retired = false;
  const done = all.retire({ slug: 'x', generation: 1, timeoutMs: 60_000 }).then((result) => {
    retired = true;
    return result;
  });
  expect(all.current('x')).toBeUndefined();
  await Promise.resolve();
  expect(retired).toBe(false);
  instance.leave();
  expect(await done).toEqual({ inFlight: 0 });
});

test('retiring gives up after its time', async () => {
  const all = instances(async () => ({ socket: '/s', generation: 1, first: 1 }));
  all.set({ slug: 'x', generation: 1, first: 1, socket: '/1' });
  all.current('x')?.enter();
  expect(await all.retire({ slug: 'x', generation: 1, timeoutMs: 5 })).toEqual({ inFlight: 1 });
  expect(await all.retire({ slug: 'x', generation: 9, timeoutMs: 5 })).toEqual({ inFlight: 0 });
});

test('a death is told to those that ask later and to those that wait, also after a replacement', async () => {
  const all = instances(async () => ({ socket: '/s', generation: 1, first: 1 }));
  all.set({ slug: 'x', generation: 1, first: 1, socket: '/1' });
  const old = all.current('x')!;
  old.enter();
  all.set({ slug: 'x', generation: 2, first: 2, socket: '/2' });
  const waiting = old.whyDead(10_000);
  all.failed({ slug: 'x', generation: 1, code: 'memory_exceeded', detail: 'too much' });
  expect(await waiting).toMatchObject({ code: 'memory_exceeded', message: 'too much' });
  expect(await old.whyDead(1)).toMatchObject({ code: 'memory_exceeded' });
  expect(all.current('x')?.generation).toBe(2);
  expect(await all.current('x')?.whyDead(1)).toBeUndefined();
});

test('of several that serve the same code, a request goes to the one with the fewest that wait, in turn among equals', () => {
  const all = instances(async () => ({ socket: '/s', generation: 1, first: 1 }));
  for (const generation of [1, 2, 3]) all.set({ slug: 'x', generation, first: 1, socket: `/${generation}` });
  const chosen = [1, 2, 3].map(() => all.current('x')!);
  expect(chosen.map(({ generation }) => generation).sort()).toEqual([1, 2, 3]);
  for (const one of chosen) one.waiting = one.generation === 2 ? 1 : 2;
  expect([1, 2, 3].map(() => all.current('x')?.generation)).toEqual([2, 2, 2]);
});

test('one that is lost leaves its requests to the others; new code replaces all', async () => {
  const all = instances(async () => ({ socket: '/s', generation: 9, first: 9 }));
  for (const generation of [1, 2]) all.set({ slug: 'x', generation, first: 1, socket: `/${generation}` });
  const lost = [all.current('x')!, all.current('x')!].find(({ generation }) => generation === 1)!;
  all.lost(lost);
  expect((await all.next('x')).generation).toBe(2);
  all.set({ slug: 'x', generation: 3, first: 3, socket: '/3' });
  all.set({ slug: 'x', generation: 4, first: 1, socket: '/4' });
  expect([all.current('x'), all.current('x')].map((one) => one?.generation)).toEqual([3, 3]);
  all.lost(all.current('x')!);
  expect((await all.next('x')).generation).toBe(9);
});

test('an edge that asks learns all that serve', async () => {
  const beside = [{ slug: 'x', generation: 2, first: 1, socket: '/2' }];
  const all = instances(async () => ({ socket: '/1', generation: 1, first: 1, beside }));
  await all.start('x');
  expect([all.current('x'), all.current('x')].map((one) => one?.generation).sort()).toEqual([1, 2]);
});
