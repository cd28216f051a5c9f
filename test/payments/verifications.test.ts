/** Whose payments are verified when: a flood of one caller keeps no other one waiting, and holds what is bounded. */
import { expect, test } from 'vitest';
import { Verifications } from '../../host/payments/settlement/verifications.ts';

test('of one caller 32 are verified at once, others do not wait for it, and what is too much is refused uncharged', async () => {
  const verifications = new Verifications();
  const silent = Promise.withResolvers<void>();
  let begun = 0;
  const hang = () => {
    begun += 1;
    return silent.promise;
  };
  const flood = Array.from({ length: 2_000 }, () => verifications.run('192.0.2.1', hang));
  const ended = Promise.allSettled(flood);
  expect(await verifications.run('192.0.2.2', async () => begun)).toBe(32);
  await expect(verifications.run('192.0.2.1', hang)).rejects.toMatchObject({ code: 'overloaded' });
  silent.resolve();
  const statuses = (await ended).map(({ status }) => status);
  expect(statuses.filter((status) => status === 'fulfilled')).toHaveLength(32 + 1_024);
  // What failed gives its place back.
  for (let count = 0; count < 200; count++)
    await expect(verifications.run('192.0.2.1', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
});
