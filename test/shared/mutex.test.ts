/** Turns of work: one at a time, and one for all who ask before it begins. */
import { expect, test } from 'vitest';
import { Mutex } from '../../host/shared/mutex.ts';

test('callers that ask before a round begins share it, and those after it get the next one', async () => {
  const turns = new Mutex();
  const first = Promise.withResolvers<void>();
  let rounds = 0;
  const look = () =>
    turns.round(async () => {
      rounds++;
      if (rounds === 1) await first.promise;
    });
  const early = [look(), look()];
  await Promise.resolve();
  await Promise.resolve();
  const late = [look(), look(), look()];
  first.resolve();
  await Promise.all([...early, ...late]);
  expect(rounds).toBe(2);
});

test('a round that fails is told to all who share it, and the next one begins all the same', async () => {
  const turns = new Mutex();
  const fails = () => turns.round(() => Promise.reject(new Error('away')));
  const ends = await Promise.allSettled([fails(), fails()]);
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await expect(turns.round(async () => undefined)).resolves.toBeUndefined();
});
