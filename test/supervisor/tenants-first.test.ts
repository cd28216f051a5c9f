import { expect, it } from 'vitest';
import { Later } from '../../host/supervisor/later.ts';
import { tenantsFirst } from '../../host/supervisor/tenants-first.ts';

it('payments wait for tenants that start, for a while', async () => {
  let now = 0;
  let looks = 0;
  // Each look at whether one starts takes a tenth of a second; for the first half a second one does.
  const runtime = {
    get starting() {
      looks += 1;
      now += 100;
      return now <= 500 || now > 1_000;
    },
  };
  const pause = tenantsFirst(runtime, new Later(), () => now);
  await pause();
  expect([now, looks]).toEqual([600, 6]);
  now = 1_000;
  await pause();
  expect(now).toBe(2_500);
  await pause();
  expect(now).toBe(2_600);
});

it('payments do not wait for an instance that waits for them', async () => {
  const payments = new Later<string>();
  const opened = payments.promise;
  await tenantsFirst({ starting: true }, payments, () => 0)();
  payments.resolve('there');
  expect(await opened).toBe('there');
});
