import { expect, it, vi } from 'vitest';
import { moveBuiltinClocks } from '../../host/control/builtin-secrets.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { KeyedLock, Mutex } from '../../host/shared/mutex.ts';

const HOUR_MS = 3_600_000;

it('tells of a moved clock after what is being deployed, which was given the time before', async () => {
  const clock = new ManualClock(Date.now());
  const builtinTurns = new Mutex();
  let secrets: Record<string, string> = { KEY: 'kept' };
  const sealed = vi.fn((_tenant: string, values: Record<string, string>) => {
    secrets = values;
    return [];
  });
  const parts = {
    builtins: [{ name: 'pay', asks: { secrets: { KEY: 'generate', CLOCK_OFFSET_MS: 'clockOffset' } } }],
    builtinTurns,
    updates: new KeyedLock(),
    clock,
    deployments: {
      bySlug: async () => ({ builtin: true, state: 'active', tenant: 'tnt', slug: 'pay' }),
      snapshot: async () => ({}),
      update: async () => ({ slug: 'pay' }),
    },
    secrets: { reveal: async () => secrets, seal: sealed, keepingKeys: (work: () => unknown) => work() },
    runtime: { activate: async () => undefined },
    routes: { push: async () => undefined },
    scheduleChanged: () => undefined,
  } as unknown as ControlDeps;

  const deployed = Promise.withResolvers<void>();
  const deploying = builtinTurns.run(async () => {
    const given = { KEY: 'newer' };
    await deployed.promise;
    secrets = given;
  });
  clock.advance(HOUR_MS);
  const moved = moveBuiltinClocks(parts);
  await new Promise(setImmediate);
  expect(sealed).not.toHaveBeenCalled();
  deployed.resolve();
  await Promise.all([deploying, moved]);
  expect(secrets.KEY).toBe('newer');
  expect(Math.abs(Number(secrets.CLOCK_OFFSET_MS) - HOUR_MS)).toBeLessThan(10_000);
});
